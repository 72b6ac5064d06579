"""After kill -9 at any step of a change, all of the change is there or nothing, and fsck is clean.

Each case runs in a process of its own, which opens the namespace, arms one failpoint and makes one
change.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.common import failpoints
from gateway.common.types import GATEWAY_CRED, ROOT_CRED, InodeKind, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import CHECKPOINTS_INO
from gateway.namespace import fsck, volume
from gateway.namespace.data_files import DataFiles
from tests.support.namespace import Namespace
from tests.support.t3.crash import run
from tests.support.volumes import query

STEPS_MAX = 40
NAMES = [b"file", b"drained", b"gone", b"absent"]
ROOT = 2


class Scene(NamedTuple):
    """The inode numbers of the files and directories that ``prepare`` makes."""

    full: int
    other: int
    file: int
    drained: int
    orphan: int
    absent: int


def prepare(ns: Namespace, settings: Settings) -> Scene:
    full = ns.mkdir(ROOT_CRED, ROOT, b"full", SetAttr(mode=0o755)).ino
    other = ns.mkdir(ROOT_CRED, ROOT, b"other", SetAttr(mode=0o755)).ino
    ns.mkdir(ROOT_CRED, ROOT, b"empty", SetAttr(mode=0o755))
    made = [ns.create(ROOT_CRED, full, name, SetAttr()) for name in NAMES]
    for attr in made:
        ns.files.path(attr.ino, attr.epoch).write_bytes(b"12345")
        ns.seal(attr.ino, Sealed(5, 4096, 1, 1))
    file, drained, orphan, absent = (attr.ino for attr in made)
    for ino, key in ((drained, "k"), (absent, "a")):
        query(settings, "UPDATE inode SET drained_version = 1 WHERE ino = :ino", ino=ino)
        query(
            settings,
            "INSERT INTO object VALUES (:ino, :key, 1, 5, 'e', 'c', 1, NULL)",
            ino=ino,
            key=key,
        )
        query(settings, "INSERT INTO block_digest VALUES (:ino, 4194304, :crc)", ino=ino, crc=b"8")
    ns.remove(ROOT_CRED, full, b"gone")
    epoch = ns.evict(absent, 1).epoch
    query(
        settings,
        "INSERT INTO present_blocks VALUES (:ino, :epoch, 4194304, :blocks)",
        ino=absent,
        epoch=epoch,
        blocks=b"1",
    )
    query(settings, "INSERT INTO warm_request VALUES (:ino, 1)", ino=absent)
    ns.files.path(absent, epoch).write_bytes(b"12345")
    install(ns, b"old")
    return Scene(full, other, file, drained, orphan, absent)


def install(ns: Namespace, name: bytes) -> object:
    ns.files.incoming.mkdir(exist_ok=True)
    (ns.files.incoming / "made").write_bytes(b"12345")
    return ns.install(GATEWAY_CRED, CHECKPOINTS_INO, name, b"made", SetAttr())


Mutation = Callable[[Namespace, Scene], object]
MUTATIONS: dict[str, Mutation] = {
    "create": lambda ns, s: ns.create(ROOT_CRED, s.full, b"new", SetAttr(), b"verifier"),
    "mkdir": lambda ns, s: ns.mkdir(ROOT_CRED, s.full, b"new", SetAttr()),
    "symlink": lambda ns, s: ns.symlink(ROOT_CRED, s.full, b"new", b"target", SetAttr()),
    "mknod": lambda ns, s: ns.mknod(ROOT_CRED, s.full, b"new", InodeKind.FIFO, 0, SetAttr()),
    "link": lambda ns, s: ns.link(ROOT_CRED, s.drained, s.other, b"new"),
    "remove file": lambda ns, s: ns.remove(ROOT_CRED, s.full, b"drained"),
    "remove directory": lambda ns, s: ns.remove(ROOT_CRED, ROOT, b"empty"),
    "rename": lambda ns, s: ns.rename(ROOT_CRED, s.full, b"file", s.other, b"new"),
    "rename over": lambda ns, s: ns.rename(ROOT_CRED, s.full, b"file", s.full, b"drained"),
    "rename directory": lambda ns, s: ns.rename(ROOT_CRED, ROOT, b"full", s.other, b"moved"),
    "rename directory over": lambda ns, s: ns.rename(ROOT_CRED, ROOT, b"full", ROOT, b"empty"),
    "setattr": lambda ns, s: ns.setattr(s.file, SetAttr(mode=0o600, mtime_ns=5)),
    "open_write": lambda ns, s: ns.open_write(s.drained),
    "open_write and empty": lambda ns, s: ns.open_emptied(s.absent),
    "evict": lambda ns, s: ns.evict(s.drained, 1),
    "arrived": lambda ns, s: ns.arrived(s.absent, ns.getattr(s.absent).epoch, 1),
    "make_orphan": lambda ns, s: install(ns, b"new"),
    "name_orphan": lambda ns, s: install(ns, b"old"),
}


def crash(settings: Settings, scene: Scene, mutation: str, failpoint: str) -> None:
    """Make a change in this process, which the failpoint kills. Otherwise it ends with status 0."""
    ns = Namespace(settings)
    failpoints.arm(failpoint)
    MUTATIONS[mutation](ns, scene)
    os._exit(0)


def dump(settings: Settings) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of the namespace, without times and numbers that are reserved in blocks."""
    return {
        "names": query(settings, "SELECT parent, name FROM dirent ORDER BY parent, name"),
        "inodes": query(
            settings,
            "SELECT kind, mode, uid, gid, nlink, size, change, parent, content_version,"
            " drained_version, write_open, residency, epoch FROM inode WHERE nlink > 0"
            " ORDER BY kind, nlink, change, size, mode, content_version",
        ),
        "cache": query(
            settings,
            "SELECT 'present_blocks' FROM present_blocks"
            " UNION ALL SELECT 'warm_request' FROM warm_request ORDER BY 1",
        ),
        "bucket": query(
            settings,
            "SELECT key FROM object UNION ALL SELECT key FROM tombstone"
            " UNION ALL SELECT 'rekey' FROM rekey ORDER BY 1",
        ),
    }


def recovered(settings: Settings) -> dict[str, list[tuple[Any, ...]]]:
    """Start and stop the namespace, check it, and return its rows."""
    Namespace(settings).close()
    database = Database(settings.database_url)
    assert fsck.check(database, DataFiles(settings.files_dir)) == []
    return dump(settings)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_crash_leaves_all_or_nothing(mutation: str, settings: Settings, tmp_path: Path) -> None:
    ns = Namespace(settings)
    scene = prepare(ns, settings)
    ns.close()
    before = recovered(settings)
    verb = mutation.split()[0]
    for step in range(1, STEPS_MAX):
        if run(crash, settings, scene, mutation, f"{verb}.{step}") == 0:
            break
        assert recovered(settings) == before, f"after step {step}"
    else:
        raise AssertionError("the operation never ended")
    assert step >= 2, "no failpoint was passed"


# An installation has two commits. The first one leaves an orphan, which recovery takes away.
@pytest.mark.parametrize(
    "mutation", [mutation for mutation in MUTATIONS if not mutation.endswith("_orphan")]
)
def test_a_commit_is_the_only_border(mutation: str, settings: Settings) -> None:
    ns = Namespace(settings)
    scene = prepare(ns, settings)
    ns.close()
    before = recovered(settings)
    assert run(crash, settings, scene, mutation, failpoints.BEFORE_COMMIT) == -signal.SIGKILL
    assert recovered(settings) == before
    assert run(crash, settings, scene, mutation, failpoints.AFTER_COMMIT) == -signal.SIGKILL
    assert recovered(settings) != before


def leave_orphan(settings: Settings, scene: Scene) -> None:
    """Leave a file without a name, as a kill does while a client has the file open."""
    ns = Namespace(settings)
    attr = ns.create(ROOT_CRED, scene.full, b"x", SetAttr())
    ns.files.path(attr.ino, attr.epoch).write_bytes(b"x")
    ns.seal(attr.ino, Sealed(1, 4096, 1, 1))
    ns.remove(ROOT_CRED, scene.full, b"x")
    ns.close()


def test_a_crash_in_a_reclaim_costs_at_most_space(settings: Settings) -> None:
    ns = Namespace(settings)
    scene = prepare(ns, settings)
    ns.close()
    before = recovered(settings)
    leave_orphan(settings, scene)
    assert run(recover, settings, "reclaim.1") == -signal.SIGKILL
    assert query(settings, "SELECT count(*) FROM inode WHERE nlink = 0") == [(1,)]
    # The row is deleted and the bytes are not: fsck reports the data file and sets it aside.
    assert run(recover, settings, failpoints.RECLAIM_BEFORE_UNLINK) == -signal.SIGKILL
    assert dump(settings)["names"] == before["names"]
    Namespace(settings).close()
    database = Database(settings.database_url)
    files = DataFiles(settings.files_dir)
    [problem] = fsck.check(database, files, repair=True)
    assert problem.check == "data file without inode"
    assert fsck.check(database, files) == []


def recover(settings: Settings, failpoint: str) -> None:
    volume.RECOVERED_TOGETHER = 1
    failpoints.arm(failpoint)
    Namespace(settings)
    os._exit(0)


def test_recovery_can_be_interrupted(settings: Settings) -> None:
    ns = Namespace(settings)
    for index in range(3):
        attr = ns.create(ROOT_CRED, ROOT, b"f%d" % index, SetAttr())
        ns.files.path(attr.ino, attr.epoch).write_bytes(b"x" * index)
    ns.close()
    for _ in range(3):
        assert run(recover, settings, failpoints.RECOVER_AFTER_SEAL) == -signal.SIGKILL
    assert query(settings, "SELECT size FROM inode WHERE kind = 1 ORDER BY size") == [
        (0,),
        (1,),
        (2,),
    ]
    assert query(settings, "SELECT count(*) FROM inode WHERE write_open = 1") == [(0,)]
    recovered(settings)
