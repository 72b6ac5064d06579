"""The manifest of a promoted copy is the last object that is put and the first that is deleted."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.config import settings as settings_module
from gateway.db.engine import Database
from gateway.namespace import adopt
from tests.support.s3proxy import Act, S3Proxy
from tests.support.s3server import MotoServer, Server
from tests.support.t9.promoting import Promoting, context, save, work
from tests.support.volumes import query
from tests.support.waiting import until

numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with MotoServer(tmp_path_factory.mktemp("s3") / "store") as made:
        yield made


@pytest.fixture
def site(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Promoting]:
    # Nothing arrives later than 15 ms after it was given up, unless a test says otherwise.
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 0.001)
    with S3Proxy(server.port) as proxy:
        made = Promoting(tmp_path, server, f"manifests-{next(numbers)}", proxy)
        yield made
        made.close()


REMOVALS = [
    *(f"drain.commit.{when}.1" for when in ("before", "after")),
    *(f"drain.delete_objects.{when}.1" for when in ("before", "after")),
    "rename.1",
    "drain.commit.before.3",
]
"""Commits 1 and 2 add tombstones: of the manifest, and of copies that were not recorded."""


def test_a_manifest_goes_before_anything_else_of_its_copy(site: Promoting) -> None:
    data = save(site)
    for number, failpoint in enumerate(REMOVALS):
        name = f"best-{number}"
        site.ask("job/step-5", name)
        site.settle()
        assert name in site.described()
        site.demote(name)
        site.namespace.close()
        process = context.Process(target=work, args=(site.settings, failpoint))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, failpoint
        # The drain is fast.
        site.namespace = type(site.namespace)(site.settings)
        site.drain()
        whole = {f"{name}/{path}" for path in data} <= site.copies().keys()
        assert whole or name not in site.described(), failpoint
        if failpoint == "drain.delete_objects.after.1":
            assert whole
            assert name not in site.described()
            assert name in site.tree()
        site.settle()
    site.require_whole()
    site.drain()
    assert site.copies() == {}
    assert site.is_clean()


def test_a_manifest_that_arrives_late_goes(
    site: Promoting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 3)
    site.write("job/step-5/.metadata", b"all")
    site.drain()
    site.ask("job/step-5", "best")
    site.values["bucket"]["read_timeout_seconds"] = 1.0
    site.configure()
    path = ".spillway/promoted/best.json"
    key = f"team/run/{path}"
    late = site.proxy.inject(
        lambda request: request.operation == "PUT" and request.key == key, Act.HOLD, 1
    )
    promoter = site.promoter()
    promoter.run_once()
    late.wait()
    # It is not shown before the bucket has its manifest, and the request is not repeated before
    # the first one can arrive no more.
    promoter.run_once()
    assert site.tree() == {}
    # It arrives after the removal has looked for it.
    site.demote("best")
    site.settle(promoter)
    site.drain()
    late.arrive()
    until(lambda: path in site.etags(), "the manifest to arrive")
    assert query(site.settings, "SELECT key FROM indeterminate_write") == [(key,)]
    site.ask("job/step-5", "best")
    promoter.run_once()
    again = site.promotion("best")
    assert again is not None
    assert again.begun_ns is None

    # Nothing else is under way.
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 0)

    def is_gone() -> bool:
        site.drain()
        return (
            site.copies() == {}
            and site.is_clean()
            and not query(site.settings, "SELECT key FROM indeterminate_write")
        )

    until(is_gone, "the drain to delete what came late")
    assert site.described() == set()
    site.settle(promoter)
    assert site.described() == {"best"}


def test_a_copy_of_an_earlier_release_gets_its_manifest(
    site: Promoting, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write("job/step-5/.metadata", b"all")
    site.drain()
    site.ask("job/step-5", "best")
    site.settle()
    query(site.settings, "UPDATE promotion SET manifest_etag = NULL, note = 'größte'")
    key = "team/run/.spillway/promoted/best.json"
    foreign = {"volume": "another", "ino": "7"}
    site.client.put_object(Bucket=site.bucket, Key=key, Body=b"{}", Metadata=foreign)
    promoter = site.promoter()

    def is_said() -> bool:
        promoter.run_once()
        row = site.promotion("best")
        return row is not None and "an object that this gateway did not put there" in str(
            row.reason
        )

    until(is_said, "the promotion to say what is there")
    site.client.delete_object(Bucket=site.bucket, Key=key)
    site.settle()
    site.require_whole()
    body = site.client.get_object(Bucket=site.bucket, Key=key)["Body"].read()
    manifest = json.loads(body)
    said = manifest.pop("promotion")
    assert (said["name"], said["note"], said["source"]) == ("best", "größte", "job/step-5")
    assert said["asked_ns"] > 0
    del manifest["members"]
    assert manifest == {
        "spillway_manifest": 1,
        "path": ".spillway/promoted/best",
        "run": None,
        "step": None,
        "rule": None,
        "extent": "tree",
        "mode": "0755",
        "files": 1,
        "size": 3,
        "complete_ns": None,
        "durable_ns": None,
    }
    assert main(["bucket", "verify", "--all", "--config", str(site.settings.source)]) == 0
    assert capsys.readouterr().out == f"{key}: whole: 1 files, 3 B\n"
    site.client.delete_object(Bucket=site.bucket, Key=key.replace(".json", "/.metadata"))
    assert main(["bucket", "verify", "--all", "--config", str(site.settings.source)]) == 1
    # A manifest says what one bucket has.
    query(site.settings, "UPDATE inode SET residency = 2")
    database = Database(site.settings.database_url)
    adopt.adopt_bucket(database, site.settings.bucket)
    database.close()
    assert [row.name for row in site.pending()] == ["best"]
