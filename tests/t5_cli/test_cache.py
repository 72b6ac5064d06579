"""`spillway evict` and `warm` while no server runs, and what `status`, `ls` and `stat` say."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest

from gateway.cli import output
from gateway.cli.policies import moment
from gateway.common import clock
from gateway.common.errors import START
from gateway.common.process import start_ticks
from gateway.common.types import ROOT_CRED, InodeKind, Sealed, SetAttr
from gateway.db.models import ROOT_INO
from gateway.namespace import residency
from gateway.service import residency as residency_module
from tests.support.clisite import Site
from tests.support.drain import Drain
from tests.support.namespace import Namespace
from tests.support.owner import own
from tests.support.s3server import RcloneServer
from tests.support.t5.names import run
from tests.support.t5.status import lines_of, status
from tests.support.volumes import query
from tests.support.waiting import meanwhile, until

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")
MODE = SetAttr(mode=0o644)
SIZE = 100_000


@pytest.fixture
def filled(site: Site, bucket: RcloneServer) -> Site:
    """Make a gateway with a drained checkpoint of three files, and links to it."""
    site.edit("drain", "settle_seconds", "0.0")
    site.edit("drain", "processes", "0")
    site.edit("bucket", "checksum", '"md5"')
    with closing(Namespace(site.settings)) as namespace:
        top = namespace.mkdir(ROOT_CRED, ROOT_INO, b"run1", SetAttr(mode=0o755)).ino
        step = namespace.mkdir(ROOT_CRED, top, b"step_400", SetAttr(mode=0o755)).ino
        for number in range(3):
            save(namespace, step, b"shard%d" % number)
        for name, target in LINKS.items():
            namespace.symlink(ROOT_CRED, ROOT_INO, name, target, MODE)
    own(site.settings)
    with closing(Drain(site.settings)) as drain:
        drain.cycle()
    assert query(site.settings, "SELECT count(*) FROM object") == [(3,)]
    return site


LINKS = {
    b"latest": b"run1/step_400",
    b"latest-complete": b"./latest",
    b"absolute": b"/checkpoints/run1",
    b"dangling": b"run1/step_500",
    b"outside": b"../../etc",
    b"elsewhere": b"/mnt/ckpt/run1",
    b"loop": b"loop",
}


def save(namespace: Namespace, parent: int, name: bytes, seals: bool = True) -> int:
    attr = namespace.create(ROOT_CRED, parent, name, MODE)
    path = namespace.files.path(attr.ino, attr.epoch)
    path.write_bytes(os.urandom(SIZE))
    if seals:
        namespace.seal(attr.ino, Sealed(SIZE, SIZE, path.stat().st_mtime_ns, 1))
    return attr.ino


def inos(site: Site) -> list[int]:
    rows = query(site.settings, "SELECT ino FROM inode WHERE kind = 1 ORDER BY ino")
    return [ino for (ino,) in rows]


def absent(site: Site) -> int:
    [(count,)] = query(site.settings, "SELECT count(*) FROM inode WHERE kind = 1 AND residency = 0")
    return int(count)


def report(site: Site, **more: Any) -> None:
    """Write the report of a hydrator that is this process."""
    me = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "time_ns": 1}
    (site.settings.run_dir / "cache.json").write_text(json.dumps({**me, **more}))


def test_evict_a_directory(filled: Site, bucket: RcloneServer) -> None:
    files = list(filled.settings.files_dir.glob("*/*"))
    assert len([path for path in files if path.stat().st_size == SIZE]) == 3
    text = run(filled, "evict", "latest")
    assert "3 files evicted, 293.0 KiB freed" in text
    assert absent(filled) == 3
    assert not any(path.exists() for path in files)
    assert query(filled.settings, "SELECT * FROM eviction") == []
    assert "3 files were evicted before" in run(filled, "evict", "run1")
    # One of them has some blocks again.
    [(epoch,)] = query(filled.settings, "SELECT DISTINCT epoch FROM inode WHERE kind = 1")
    query(
        filled.settings,
        "INSERT INTO present_blocks VALUES (:ino, :epoch, 4194304, :blocks)",
        ino=inos(filled)[0],
        epoch=epoch,
        blocks=b"\1",
    )
    head, *listed = run(filled, "ls", "-l", "run1/step_400").splitlines()
    assert head.split()[-1] == "name"
    assert [line.split("shard")[1] for line in listed] == [
        "0 (partial)",
        "1 (absent)",
        "2 (absent)",
    ]
    [found] = json.loads(run(filled, "stat", "--json", "run1/step_400/shard0"))
    assert (found["bytes"], found["size_bytes"]) == ("partial", SIZE)
    _code, facts, lines = status(filled)
    assert facts["cache"]["absent"] == {"files": 3, "bytes": 3 * SIZE}
    assert facts["cache"]["resident"] == {"files": 0, "bytes": 0}
    shown = dict(lines)
    assert shown["on the disk"] == "0 files, 0 B; only in the bucket: 3 files, 293.0 KiB"
    assert shown["evicting"].startswith("from 80 % of the disk down to 70 %; ")
    assert shown["fetching"] == "the hydrator has not reported yet"


def test_what_cannot_be_evicted_is_said(filled: Site, bucket: RcloneServer) -> None:
    with closing(Namespace(filled.settings)) as namespace:
        save(namespace, ROOT_INO, b"new")
    site = filled
    site.edit("cache", "keep", '["run1/*/shard1"]')
    (bucket.directory / "b" / "run1" / "step_400" / "shard2").write_bytes(b"x" * SIZE)
    facts = json.loads(run(site, "evict", "--json", "/"))
    assert facts["evicted_files"] == 1
    assert facts["freed_bytes"] == SIZE
    assert facts["skipped_files"] == {
        "kept (cache.keep)": 1,
        "not drained yet": 1,
        "the bucket does not have the object that was recorded": 1,
    }
    assert {entry["path"] for entry in facts["skipped_first"]} == {
        "/new",
        "/run1/step_400/shard1",
        "/run1/step_400/shard2",
    }
    # What is named and stays is a failure.
    assert "run1/step_400/shard1: kept" in run(site, "evict", "run1/step_400/shard1", status=1)
    assert "new: not drained yet" in run(site, "evict", "run1/step_400/shard0", "new", status=1)
    assert "there is no missing" in run(site, "evict", "missing", status=1)
    rows = f"SELECT key, ino, 1, {1 << 62} FROM object WHERE key LIKE '%shard2'"
    query(
        site.settings,
        f"INSERT INTO indeterminate_write (key, ino, noted_ns, check_after_ns) {rows}",
    )
    assert "got no answer" in run(site, "evict", "run1/step_400/shard2", status=1)
    assert absent(site) == 1


REFUSED = {
    "dangling": "dangling: there is no step_500, through the symbolic link to run1/step_500",
    "outside": "outside: it leads out of the export, through the symbolic link to ../../etc",
    "elsewhere": "the symbolic link to /mnt/ckpt/run1 leads out of the export",
    "loop": "loop: more than 40 symbolic links follow each other",
    "run1/step_400/shard0/x": "shard0 is not a directory",
}


def test_links_are_followed_only_inside(filled: Site) -> None:
    said = run(filled, "warm", *REFUSED, status=1)
    assert [text for text in REFUSED.values() if text not in said] == []


def test_evict_refuses_what_is_pinned(filled: Site, bucket: RcloneServer) -> None:
    run(filled, "checkpoint", "pin", "run1/step_400")
    shard = "run1/step_400/shard0"
    assert f"{shard}: pinned (spillway checkpoint pins shows it" in run(
        filled, "evict", shard, status=1
    )
    assert "3 files skipped: pinned" in run(filled, "evict", "run1")
    assert absent(filled) == 0
    run(filled, "checkpoint", "unpin", "run1/step_400")
    assert "3 files evicted" in run(filled, "evict", "run1")
    assert "only in the bucket: spillway warm" in run(filled, "checkpoint", "pin", shard)


def test_warm_asks_for_absent_files(filled: Site) -> None:
    run(filled, "evict", "run1/step_400/shard0", "run1/step_400/shard1")
    for path in ("latest-complete", "absolute/step_400"):
        text = run(filled, "warm", path)
        assert "asked for: 2 files, 195.3 KiB; 1 files are on the disk; the hydrator" in text
    assert query(filled.settings, "SELECT ino FROM warm_request ORDER BY ino") == [
        (ino,) for ino in inos(filled)[:2]
    ]
    run(filled, "evict", "/")
    assert query(filled.settings, "SELECT count(*) FROM warm_request") == [(2,)]


FAILED = "INSERT INTO retry VALUES ('hydrate', :ino, 'k', 3, 'the object is gone', 1, NULL, 0)"


@contextmanager
def hydrating(site: Site, *arrive: int, fail: int | None = None) -> Iterator[None]:
    """Let files arrive one after the other, as soon as they are wanted and no failure of earlier is
    recorded, or fail."""

    def work() -> None:
        with closing(Namespace(site.settings)) as namespace:
            for ino in (*arrive, fail):
                if ino is None:
                    return
                where = (
                    f"SELECT ino FROM warm_request WHERE ino = {ino}"
                    " AND ino NOT IN (SELECT ino FROM retry WHERE work = 'hydrate')"
                )
                until(partial(query, site.settings, where), "the request")
                if ino == fail:
                    query(site.settings, FAILED, ino=ino)
                    return
                attr = namespace.getattr(ino)
                namespace.run(residency.arrived, ino, attr.epoch, 1)

    with meanwhile(work):
        yield


def test_warm_waits_until_everything_is_there(filled: Site) -> None:
    run(filled, "evict", "latest")
    report(filled)
    with hydrating(filled, *inos(filled)):
        text = run(filled, "warm", "--wait", "latest")
    assert "fetched: 3 files, 293.0 KiB in " in text
    assert absent(filled) == 0


def test_warm_tells_what_cannot_be_fetched(filled: Site) -> None:
    run(filled, "evict", "latest")
    first, second, third = inos(filled)
    report(filled, damaged=[{"ino": second, "path": "/run1/x\x1b", "reason": "wrong\x1b bytes"}])
    with hydrating(filled, first, third, fail=second):
        facts = json.loads(
            run(filled, "warm", "--wait", "--json", "latest", status=1).partition("\nspillway")[0]
        )
    assert facts["left_files"] == 1
    assert facts["damaged"] == [
        {"path": "latest/shard1", "reason": "the object is gone"},
    ]
    assert "1 files cannot be fetched" in facts["error"] and facts["failures"] == []
    # The drain and the status know that this row is not the drain's.
    with closing(Drain(filled.settings)) as drain:
        drain.cycle()
    code, found, lines = status(filled)
    assert code == 1
    assert found["stuck"]["files"] == 0
    assert dict(lines)["damaged"] == (
        r"/run1/x\x1b: wrong\x1b bytes: make the uploaded version of its object readable again, or "
        "delete the file"
    )
    assert "no file" in dict(lines)["fetching"]
    shown = dict(lines_of({**found, "cache": {**found["cache"], "dropped_readers": ["a\x1b"]}}))
    assert shown["journal"] == r"reader a\x1b fell behind and must read everything again"


def test_the_status_tells_what_is_being_restored_and_until_when(filled: Site) -> None:
    since_ns = clock.now_ns() - 2 * 3600 * clock.NS
    expected_ns = since_ns + 5 * 3600 * clock.NS
    one = {"ino": 7, "since_ns": since_ns, "tier": "Standard", "expected_ns": expected_ns}
    away = [{**one, "path": f"run1/x{number}\x1b", "expires_ns": None} for number in range(5)]
    back = {**one, "path": "run1/back", "expires_ns": expected_ns}
    report(filled, restoring=[back, *away], restoring_files=6)
    _code, facts, lines = status(filled)
    assert [text for label, text in lines if label == "restoring"] == [
        f"run1/back: back from the archive until {moment(expected_ns)}, and not fetched yet",
        *(
            rf"run1/x{number}\x1b: asked back 2.0 h ago (Standard), expected until "
            f"{moment(expected_ns)}; reads of it end with EIO until then"
            for number in range(4)
        ),
        "and 1 more: spillway status --json",
    ]
    assert facts["cache"]["hydrator"]["restoring"][0]["expires_at"] == clock.rfc3339(expected_ns)


def test_a_failure_of_earlier_is_forgotten_by_a_new_wish(filled: Site) -> None:
    run(filled, "evict", "latest")
    first, second, third = inos(filled)
    run(filled, "warm", "latest/shard0", "latest/shard1")
    for ino in (first, third):
        query(filled.settings, FAILED, ino=ino)
    query(filled.settings, FAILED.replace("hydrate", "x"), ino=first)
    # The person has restored the first object, and asks again.
    report(filled)
    with hydrating(filled, first, second):
        text = run(filled, "warm", "--wait", "latest/shard0", "latest/shard1")
    assert "fetched: 2 files" in text
    assert query(filled.settings, "SELECT work, ino FROM retry ORDER BY work") == [
        ("hydrate", third),
        ("x", first),
    ]


def test_warm_tells_that_the_disk_has_no_room(
    filled: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency_module, "ROOM_SECONDS", 0.1)
    monkeypatch.setattr(output, "LINE_SECONDS", 0.0)
    run(filled, "evict", "latest")
    report(filled, has_room=False)
    text = run(filled, "warm", "--wait", "latest", status=1)
    left = "3 of 3 files are not there yet; the disk is short of room\n"
    assert f"0 B/s; {left}" in text
    assert "spillway: the disk is short of room, so only what clients wait for is fetched: " in text
    assert "(3 files are asked for" in text


@pytest.mark.parametrize("kind", [InodeKind.FIFO, InodeKind.SOCKET, InodeKind.CHARACTER])
def test_what_has_no_bytes_is_neither_evicted_nor_warmed(filled: Site, kind: InodeKind) -> None:
    with closing(Namespace(filled.settings)) as namespace:
        namespace.mknod(ROOT_CRED, ROOT_INO, b"other", kind, 0, MODE)
    for command in ("evict", "warm"):
        assert re.search(r"other is a [a-z ]+, not a file", run(filled, command, "other", status=1))
    # Below a directory they are passed over.
    assert "3 files evicted" in run(filled, "evict", "/")


def test_warm_does_not_wait_for_a_hydrator_that_does_not_run(
    filled: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency_module, "DEAD_SECONDS", 0.1)
    run(filled, "evict", "latest")
    text = run(filled, "warm", "--wait", "latest", status=1)
    assert f"the hydrator does not run: start it: {START} (3 files" in text
