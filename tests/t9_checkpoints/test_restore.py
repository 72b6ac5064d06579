"""A checkpoint that has a manifest can be restored from the bucket alone, whatever was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import pytest

from gateway.catalogue import manifest_check
from gateway.catalogue.manifest_writer import Manifests
from gateway.catalogue.tracker import Follower
from gateway.cli.main import main
from gateway.common.failpoints import MANIFEST
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db.engine import Database
from gateway.drain.send.checksum import ChecksumForm
from gateway.objectstore.bodies import digest
from gateway.objectstore.checksums import ChecksumKind
from tests.support.checkpoints.world import follow, rows_of
from tests.support.drainsite import MIB, PART_BYTES, PREFIX, Site
from tests.support.processes import process
from tests.support.s3server import flip
from tests.support.t9 import restore
from tests.support.waiting import until

BUCKET = "checkpoints"
SECONDS = 60.0
TARGET = b"../elsewhere/\xff"
Content = dict[bytes, str]


class Saves:
    """The saves of a job: what a restore of each checkpoint must give."""

    def __init__(self, site: Site, directory: Path) -> None:
        self._site = site
        self._directory = directory
        self._number = 0
        self.saved: dict[str, list[Content]] = {}

    def save(self, path: str) -> None:
        """Save a checkpoint, or save it again in place. ``.metadata`` is last."""
        self._number += 1
        copy = self._directory / f"save-{self._number}"
        if path not in self.saved:
            parent = self._site.directory(f"{path}/deeper")
            self._site.directory(f"{path}/empty")
            mode = SetAttr(mode=0o777)
            self._site.namespace.symlink(ROOT_CRED, parent, b"link", TARGET, mode)
        for name in ("__0_0.distcp", "deeper/100%41 \udcff\n", ".metadata"):
            data = f"{name} {self._number}".encode("utf-8", "backslashreplace") * 1000
            self._site.write(f"{path}/{name}", data)
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        (copy / "empty").mkdir()
        (copy / "deeper/link").symlink_to(os.fsdecode(TARGET))
        for name in ("deeper", "empty"):
            (copy / name).chmod(0o755)
        self.saved.setdefault(path, []).append(restore.content(copy))

    def restored(self) -> set[str]:
        """Restore all checkpoints that have a manifest, and return those whose newest version it
        is. What was saved again since need not be restored: the ETags tell it."""
        client, whole = self._site.client, set()
        for manifest in restore.manifests(client, BUCKET, PREFIX).values():
            self._number += 1
            copy = self._directory / f"restore-{self._number}"
            versions = self.saved[manifest["path"]]
            try:
                restore.restore(client, BUCKET, manifest, copy)
            except AssertionError:
                assert len(versions) > 1
                continue
            content = restore.content(copy)
            assert content in versions
            if content == versions[-1]:
                whole.add(manifest["path"])
        return whole


def catalogue(site: Site, failpoint: str = "") -> AbstractContextManager[subprocess.Popen[bytes]]:
    log = site.settings.log_dir / "checkpoints.log"
    return process("checkpoints", site.settings, log, SPILLWAY_FAILPOINT=failpoint)


def is_restored(saves: Saves, wanted: set[str]) -> bool:
    return saves.restored() == wanted


def test_what_has_a_manifest_can_be_restored_after_any_kill(site: Site, tmp_path: Path) -> None:
    saves = Saves(site, tmp_path)
    with ExitStack() as drains:
        drain = drains.enter_context(site.process())
        for number, when in enumerate(("intent", "put", "doomed", "deleted")):
            saves.save(f"job/step-{number}")
            if when in ("doomed", "deleted"):
                saves.save("job/step-0")
            with catalogue(site, f"{MANIFEST.format(when=when)}.1") as process:
                process.wait(SECONDS)
                assert process.returncode == -signal.SIGKILL
            saves.restored()
            if number % 2:
                site.kill(drain)
                drain = drains.enter_context(site.process())
            wanted = set(saves.saved)
            with catalogue(site):
                until(partial(is_restored, saves, wanted), f"all manifests after {when}")
    # Nothing runs that could still change it.
    states = {row.path.decode(): row.state for row in rows_of(site.settings)}
    assert states == dict.fromkeys(wanted, "durable")
    assert saves.restored() == wanted


Verified = tuple[int, list[tuple[bool, list[str]]]]


def verify(capsys: pytest.CaptureFixture[str], *words: str) -> Verified:
    """Return the exit status, and of each manifest whether it is whole and what is wrong."""
    status = main(["bucket", "verify", *words, "--json"])
    manifests = json.loads(capsys.readouterr().out or '{"manifests": []}')["manifests"]
    return status, [
        (manifest["is_whole"], [f"{p['path']}: {p['why']}" for p in manifest["problems"]])
        for manifest in manifests
    ]


def put_all(site: Site, directory: Path) -> None:
    """Save two checkpoints, and bring them and their manifests to the bucket."""
    saves = Saves(site, directory)
    saves.save("job/step-5")
    site.write("job/step-5/large.distcp", os.urandom(PART_BYTES + MIB))
    saves.save("job/step-6")
    site.drain()
    database = Database(site.settings.database_url)
    follow(Follower(site.settings, database, threading.Event()))
    assert Manifests(site.settings, database, threading.Event()).run_once() == 30.0
    database.close()


def test_a_bucket_is_compared_with_its_manifests(
    site: Site,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_all(site, tmp_path)
    monkeypatch.setenv("SPILLWAY_CONFIG", "/nonexistent.toml")
    file = str(site.settings.credentials_file)
    alone = ("--endpoint-url", site.server.url, "--credentials-file", file)
    own = ("--config", str(site.settings.source))
    key = f"s3://{BUCKET}/{PREFIX}/.spillway/checkpoints/job/5.json"

    whole: tuple[bool, list[str]] = (True, [])
    above = f"s3://{BUCKET}/{PREFIX}"
    for words, many in [
        ((key, *alone), 1),
        ((key, *alone, "--deep"), 1),
        ((above, *alone, "--all", "--deep"), 2),
        ((above, *alone, "--run", "job", "--step", "6"), 1),
        ((above, *alone, "--run", "job"), 2),
        ((*own, "--all"), 2),
        ((*own, "--run", "job", "--step", "5"), 1),
        ((*own, key), 1),
    ]:
        assert verify(capsys, *words) == (0, [whole] * many), words
    for words in [(), ("--step", "5"), ("5.json",), ("s3://b",), (*own, "--all", *alone)]:
        assert main(["bucket", "verify", *words]) == 2
        assert capsys.readouterr().err.startswith("spillway: ")
    assert verify(capsys, above, *alone, "--run", "job", "--step", "7")[0] == 1
    assert verify(capsys, above, *alone, "--run", "none") == (1, [])
    # Bytes that changed under the store: only reading tells it.
    root = site.server.directory / BUCKET / PREFIX / "job/step-5"  # type: ignore[attr-defined]
    flip(root / "large.distcp", PART_BYTES + 5)
    assert verify(capsys, key, *alone) == (0, [whole])
    status, [(is_whole, [problem])] = verify(capsys, key, *alone, "--deep")
    assert (status, is_whole) == (1, False)
    assert "large.distcp has other bytes" in problem
    site.client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/job/step-5/.metadata", Body=b"x" * 11000)
    site.client.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/job/step-5/__0_0.distcp")
    status, [(is_whole, problems)] = verify(capsys, key, *alone)
    assert (status, is_whole, len(problems)) == (1, False, 2)
    assert problems[0].startswith(".metadata: ")
    assert problems[1].endswith("__0_0.distcp is missing")
    assert verify(capsys, above, *alone, "--all")[1][1] == whole
    assert main(["bucket", "verify", key, *alone]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"{key[len(f's3://{BUCKET}/') :]}: NOT WHOLE"


def test_a_checksum_that_is_not_known_leaves_the_etag_to_decide(site: Site) -> None:
    put = site.client.put_object(Bucket=BUCKET, Key="f", Body=bytes(5 * MIB))
    member = {"type": "file", "path": "f", "size": 5 * MIB, "key": "f", "algorithm": "newer"}
    for etag, problems in ((put["ETag"].strip('"'), 0), ("other", 1)):
        manifest = {"members": [{**member, "checksum": "0", "etag": etag}]}
        differences = list(manifest_check.differing(site.client, BUCKET, manifest, is_deep=True))
        assert len(differences) == problems


@pytest.mark.parametrize("kind", list(ChecksumKind))
@pytest.mark.parametrize("part_bytes", [None, 1000])
def test_checksums_are_those_of_the_drain(kind: ChecksumKind, part_bytes: int | None) -> None:
    data = os.urandom(3500)
    starts = range(0, len(data), part_bytes or len(data))
    parts = [digest(data[at : at + (part_bytes or len(data))], {kind}) for at in starts]
    algorithm, *size, value = ChecksumForm(kind, part_bytes).of(parts).split(":")
    pieces = [data[at : at + 333] for at in range(0, len(data), 333)]
    assert manifest_check._checksum(algorithm, pieces, int(size[0]) if size else 0) == value
