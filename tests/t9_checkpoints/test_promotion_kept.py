"""What a promotion has copied stays until a person demotes it, whatever is missing or older."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from gateway.common.errors import UserError
from gateway.common.types import GATEWAY_CRED, SetAttr
from gateway.config import settings as settings_module
from gateway.db.engine import Database
from gateway.db.models import PROMOTED_INO
from gateway.lifecycle.promotion import task
from gateway.lifecycle.promotion.store import NO_OPTIONS, Hold, PromotionOptions, PromotionState
from gateway.namespace import adopt
from gateway.namespace.data_files import DataFiles
from tests.support.s3proxy import Act, Request, S3Proxy
from tests.support.s3server import MotoServer, Server
from tests.support.t9.promoting import Promoting, held, lock, save
from tests.support.volumes import query
from tests.support.waiting import until

numbers = count(1)
BELOW = "team/run/.spillway/promoted/best/"
MANIFEST = "team/run/.spillway/promoted/best.json"
PATH = "__0_0.distcp"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with MotoServer(tmp_path_factory.mktemp("s3") / "store") as made:
        yield made


@pytest.fixture
def site(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Promoting]:
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 0.001)
    monkeypatch.setattr(task, "BACKOFF_SECONDS", 0.0)
    with S3Proxy(server.port) as proxy:
        made = Promoting(tmp_path, server, f"kept-{next(numbers)}", proxy)
        yield made
        made.close()


def copy_all(site: Promoting, options: PromotionOptions = NO_OPTIONS) -> dict[str, bytes]:
    """Promote a checkpoint up to its manifest, which the bucket does not take. Returns the
    files."""
    data = save(site)
    site.ask("job/step-5", "best", options)
    site.proxy.inject(
        lambda request: (request.method, request.key) == ("PUT", MANIFEST), Act.FAIL, 4
    )
    site.promoter().run_once()
    assert site.copies() == {f"best/{path}": text for path, text in data.items()}
    assert site.described() == set()
    return data


def remove_original(site: Promoting, data: dict[str, bytes]) -> None:
    for path in data:
        site.unlink(f"job/step-5/{path}")
    site.drain()
    assert not any(key.startswith("job/") for key in site.objects())


def wait_for(site: Promoting, why: str) -> None:
    """Carry the promotion out until it waits for a reason. Require that it says so."""
    promoter = site.promoter()

    def is_said() -> bool:
        promoter.run_once()
        row = site.promotion("best")
        assert row is not None
        assert row.state == PromotionState.COPYING, row.reason
        return why in str(row.reason)

    until(is_said, f"the promotion to say: {why}")


def test_one_wrong_answer_about_a_copy_removes_nothing(site: Promoting) -> None:
    data = copy_all(site)
    remove_original(site, data)
    wrong = site.proxy.inject(
        lambda request: (request.method, request.key) == ("HEAD", BELOW + PATH),
        Act.FAIL,
        1,
        status=404,
    )
    wait_for(site, "original")
    assert wrong.times == 0
    site.settle()
    site.drain()
    site.require_whole()
    assert site.copies() == {f"best/{path}": text for path, text in data.items()}


@pytest.mark.parametrize("body", [None, b"shorter"])
def test_what_is_missing_of_a_copy_is_copied_again(site: Promoting, body: bytes | None) -> None:
    data = copy_all(site)
    if body is None:
        site.client.delete_object(Bucket=site.bucket, Key=BELOW + PATH)
    else:
        described = site.metadata((BELOW + PATH).removeprefix("team/run/"))
        site.client.put_object(Bucket=site.bucket, Key=BELOW + PATH, Body=body, Metadata=described)
    site.settle()
    site.drain()
    site.require_whole()
    assert site.copies() == {f"best/{path}": text for path, text in data.items()}


def test_what_cannot_be_copied_again_waits_for_a_person(site: Promoting) -> None:
    lock(site)
    data = copy_all(site, PromotionOptions(legal_hold=True))
    remove_original(site, data)
    site.client.put_object(Bucket=site.bucket, Key=BELOW + PATH, Body=b"foreign")
    wait_for(site, f"{BELOW}{PATH}: the bucket does not have the copy any more")
    site.drain()
    kept = {f"best/{path}": text for path, text in data.items()} | {f"best/{PATH}": b"foreign"}
    assert site.copies() == kept
    assert site.tree() == {}
    # Only a person who names the hold ends it.
    failed = site.demoted_without_release("best")
    assert (failed.state, failed.legal_hold) == (PromotionState.FAILED, Hold.HELD)
    assert all(held(site)[BELOW + path] for path in data)
    site.end("best", releases=True)
    site.settle()
    site.drain()
    assert site.promotion("best") is None
    # The object of another program is none of the copy.
    assert site.copies() == {f"best/{PATH}": b"foreign"}


def test_a_name_or_a_manifest_that_is_taken_ends_no_copy(site: Promoting) -> None:
    data = copy_all(site)
    remove_original(site, data)
    foreign = {"volume": "another", "ino": "7"}
    site.client.put_object(Bucket=site.bucket, Key=MANIFEST, Body=b"{}", Metadata=foreign)
    wait_for(site, "an object that this gateway did not put there")
    site.client.delete_object(Bucket=site.bucket, Key=MANIFEST)
    site.namespace.mkdir(GATEWAY_CRED, PROMOTED_INO, b"best", SetAttr(mode=0o755))
    wait_for(site, "something has its name in .spillway/promoted")
    site.namespace.remove(GATEWAY_CRED, PROMOTED_INO, b"best")
    site.settle()
    site.drain()
    site.require_whole()
    assert site.copies() == {f"best/{path}": text for path, text in data.items()}


def path_of(site: Promoting) -> Path:
    return Path(site.settings.database_url.removeprefix("sqlite:///"))


def restored(site: Promoting, backup: Path) -> None:
    """Replace the database by an older one, and have it take the files over, as people do."""
    site.namespace.close()
    database = path_of(site)
    for end in ("-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)
    shutil.copy(backup, database)
    with closing(Database(site.settings.database_url)) as older:
        adopt.adopt_files(older, DataFiles(site.settings.files_dir))
    site.namespace = type(site.namespace)(site.settings)


@pytest.mark.parametrize("releases", [True, False])
def test_an_older_database_removes_no_copy(
    site: Promoting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, releases: bool
) -> None:
    monkeypatch.setattr(task, "BATCH", 1)
    if releases:
        lock(site)
    data = save(site)
    site.ask("job/step-5", "best", PromotionOptions(legal_hold=releases))
    backup = tmp_path / "backup.sqlite"

    def when_copied(request: Request) -> None:
        if request.operation == "COPY" and request.key == f"{BELOW}empty":
            with (
                closing(sqlite3.connect(path_of(site))) as now,
                closing(sqlite3.connect(backup)) as kept,
            ):
                now.backup(kept)

    site.proxy.on_applied = when_copied
    site.settle()
    site.proxy.on_applied = None
    remove_original(site, data)
    restored(site, backup)
    made = query(site.settings, "SELECT path FROM promotion_member WHERE is_made = 1 AND kind = 1")
    assert 0 < len(made) < len(data)
    site.settle()
    site.drain()
    assert site.copies() == {f"best/{path}": text for path, text in data.items()}
    assert site.described() == {"best"}
    if releases:
        assert all(held(site)[key] for key in (MANIFEST, *(BELOW + path for path in data)))
    assert "does not have the object of the record" in site.failed("best")
    with pytest.raises(UserError, match="spillway promotion remove best --yes"):
        site.ask("job/step-5", "best")
    monkeypatch.setattr(task, "BATCH", len(data))
    site.end("best", releases=releases)
    site.settle()
    site.drain()
    assert site.promotion("best") is None
    assert site.copies() == {}
