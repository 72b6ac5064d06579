"""fsck finds damage, repairs it where that is safe, and reports nothing in a healthy namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.common.types import GATEWAY_CRED, ROOT_CRED, InodeKind, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import CHECKPOINTS_INO
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from tests.support.disks import small_disk
from tests.support.namespace import Namespace
from tests.support.t3.names import ROOT, create, mkdir
from tests.support.volumes import query


def check(settings: Settings, *, repair: bool = False) -> list[fsck.BrokenInvariant]:
    database = Database(settings.database_url)
    return fsck.check(database, DataFiles(settings.files_dir), repair=repair)


@pytest.fixture
def healthy(namespace: Namespace, settings: Settings) -> Namespace:
    """Make a namespace with inodes of several kinds. None of them is open."""
    directory = mkdir(namespace, b"d")
    mkdir(namespace, b"sub", directory.ino)
    attr = create(namespace, b"f", directory.ino)
    namespace.files.path(attr.ino, attr.epoch).write_bytes(b"12345")
    namespace.seal(attr.ino, Sealed(5, 4096, 1, 1))
    namespace.link(ROOT_CRED, attr.ino, ROOT, b"hard")
    namespace.symlink(ROOT_CRED, ROOT, b"soft", b"d/f", SetAttr())
    namespace.mknod(ROOT_CRED, ROOT, b"pipe", InodeKind.FIFO, 0, SetAttr())
    namespace.rename(ROOT_CRED, directory.ino, b"sub", ROOT, b"moved")
    return namespace


def test_a_healthy_namespace_has_no_problems(healthy: Namespace, settings: Settings) -> None:
    assert check(settings) == []


BREAKS = {
    "link count": "UPDATE inode SET nlink = 7 WHERE kind = 1",
    "directory link count": "UPDATE inode SET nlink = 9 WHERE ino = 2",
    "parent": "UPDATE inode SET parent = ino WHERE kind = 7 AND ino <> 2",
    "rekey of nothing": "INSERT INTO rekey VALUES (424242, 1)",
    "drained without object": "UPDATE inode SET drained_version = 1 WHERE kind = 1",
}


@pytest.mark.parametrize(("name", "statement"), BREAKS.items(), ids=BREAKS.keys())
def test_what_is_safe_is_repaired(
    healthy: Namespace, settings: Settings, name: str, statement: str
) -> None:
    query(settings, statement)
    broken_invariants = check(settings)
    assert {problem.check for problem in broken_invariants} == {name}
    assert all(problem.repair for problem in broken_invariants)
    assert check(settings) == broken_invariants  # a check changes nothing
    assert check(settings, repair=True) == broken_invariants
    assert check(settings) == []


UNSAFE = {
    "numbers": "UPDATE volume SET next_ino = 3",
    "size": "UPDATE inode SET size = 6 WHERE kind = 1",
    "object version": "INSERT INTO object SELECT ino, 'k', 5, 5, 'e', 'c', 1, NULL FROM inode"
    " WHERE kind = 1",
    "entry in a non-directory": "UPDATE dirent SET parent = (SELECT ino FROM inode WHERE kind = 6)"
    " WHERE ino = (SELECT ino FROM inode WHERE kind = 4)",
    "root": "UPDATE inode SET parent = (SELECT max(ino) FROM inode) WHERE ino = 2",
}


@pytest.mark.parametrize(("name", "statement"), UNSAFE.items(), ids=UNSAFE.keys())
def test_what_would_be_a_guess_is_only_reported(
    healthy: Namespace, settings: Settings, name: str, statement: str
) -> None:
    query(settings, statement)
    problems = [problem for problem in check(settings, repair=True) if problem.check == name]
    assert problems
    assert not any(problem.repair for problem in problems)
    assert [problem for problem in check(settings) if problem.check == name] == problems


def test_a_cycle_is_found(healthy: Namespace, settings: Settings) -> None:
    a = healthy.mkdir(ROOT_CRED, ROOT, b"a", SetAttr()).ino
    b = healthy.mkdir(ROOT_CRED, a, b"b", SetAttr()).ino
    query(settings, "UPDATE dirent SET parent = :b WHERE ino = :a", a=a, b=b)
    assert {problem.detail for problem in check(settings) if problem.check == "cycle"} == {
        f"inode {ino} cannot be reached from the root" for ino in (a, b)
    }


def test_files_of_no_inode_are_set_aside_not_deleted(
    healthy: Namespace, settings: Settings
) -> None:
    stray = healthy.files.path(777_777, 0)
    stray.write_bytes(b"whose?")
    [problem] = check(settings, repair=True)
    assert problem.check == "data file without inode"
    assert not stray.exists()
    assert (healthy.files.aside / "777777.0").read_bytes() == b"whose?"
    assert check(settings) == []


def test_a_missing_data_file_is_found(healthy: Namespace, settings: Settings) -> None:
    attr = healthy.lookup(ROOT, b"hard")
    healthy.files.remove(attr.ino, attr.epoch)
    [problem] = check(settings)
    assert problem.check == "size"
    assert f"inode {attr.ino} has 5 bytes" in problem.detail


def test_an_inode_without_a_name_is_kept_in_lost_and_found(
    healthy: Namespace, settings: Settings
) -> None:
    file = create(healthy, b"precious")
    healthy.files.path(file.ino, file.epoch).write_bytes(b"checkpoint")
    healthy.seal(file.ino, Sealed(10, 4096, 1, 1))
    directory = mkdir(healthy, b"run")
    inside = mkdir(healthy, b"inside", directory.ino)
    query(
        settings,
        "INSERT INTO object VALUES (:ino, 'precious', 1, 10, 'e', 'c', 1, NULL)",
        ino=file.ino,
    )
    query(settings, "UPDATE inode SET drained_version = 1 WHERE ino = :ino", ino=file.ino)
    for ino in (file.ino, directory.ino):
        query(settings, "DELETE FROM dirent WHERE ino = :ino", ino=ino)
    query(settings, "UPDATE inode SET nlink = nlink - 1 WHERE ino = 2")
    problems = [problem for problem in check(settings, repair=True) if problem.check == "nameless"]
    assert [problem.repair for problem in problems] == [
        f"named /lost+found/#{ino}" for ino in (file.ino, directory.ino)
    ]
    assert check(settings) == []
    healthy.close()
    again = Namespace(settings)
    lost = again.lookup(ROOT, b"lost+found").ino
    assert again.lookup(lost, b"#%d" % file.ino).size == 10
    assert again.lookup(again.lookup(lost, b"#%d" % directory.ino).ino, b"inside") == inside
    assert again.files.path(file.ino, file.epoch).read_bytes() == b"checkpoint"
    # The drain moves the object, because its key is not the file's path any more.
    assert (file.ino,) in query(settings, "SELECT ino FROM rekey")
    again.close()


def test_an_orphan_that_owns_an_object_stops_no_start(
    healthy: Namespace, settings: Settings
) -> None:
    file = create(healthy, b"f")
    healthy.files.path(file.ino, file.epoch).write_bytes(b"checkpoint")
    healthy.seal(file.ino, Sealed(10, 4096, 1, 1))
    healthy.close()
    query(settings, "INSERT INTO object VALUES (:ino, 'f', 1, 10, 'e', 'c', 1, NULL)", ino=file.ino)
    query(settings, "DELETE FROM dirent WHERE ino = :ino", ino=file.ino)
    query(settings, "UPDATE inode SET nlink = 0 WHERE ino = :ino", ino=file.ino)
    Namespace(settings).close()
    assert healthy.files.path(file.ino, file.epoch).read_bytes() == b"checkpoint"
    assert "nameless object" in {problem.check for problem in check(settings)}


def test_the_data_files_may_be_on_a_disk_of_their_own(settings: Settings, tmp_path: Path) -> None:
    """Prepared files come in among them, and those of no inode go away from them, by a rename."""
    with small_disk(settings.files_dir, tmp_path / "image", 16):
        DataFiles(settings.files_dir).create()
        namespace = Namespace(settings)
        namespace.files.incoming.mkdir()
        (namespace.files.incoming / "made").write_bytes(b"54321")
        made = namespace.install(
            GATEWAY_CRED, CHECKPOINTS_INO, b"receipt", b"made", SetAttr(mode=0o444)
        )
        assert namespace.files.path(made.attr.ino, made.attr.epoch).read_bytes() == b"54321"
        namespace.files.path(777_777, 0).write_bytes(b"whose?")
        namespace.close()
        check(settings, repair=True)
        assert (namespace.files.aside / "777777.0").read_bytes() == b"whose?"


def test_what_was_set_aside_before_is_not_replaced(healthy: Namespace, settings: Settings) -> None:
    for body in (b"first", b"second"):
        healthy.files.path(777_777, 0).write_bytes(body)
        check(settings, repair=True)
    assert (healthy.files.aside / "777777.0").read_bytes() == b"first"
    assert (healthy.files.aside / "777777.0.1").read_bytes() == b"second"


def test_a_disk_that_is_not_there_is_one_problem_more_and_repairs_nothing(
    healthy: Namespace, settings: Settings
) -> None:
    before = query(settings, "SELECT ino, size, nlink FROM inode ORDER BY ino")
    settings.files_dir.rename(settings.files_dir.with_name("unmounted"))
    broken_invariants = check(settings, repair=True)
    assert {problem.check for problem in broken_invariants} == {"stamp", "size"}
    assert query(settings, "SELECT ino, size, nlink FROM inode ORDER BY ino") == before


@pytest.mark.parametrize(
    ("reason", "data", "is_whole"),
    [
        ("data file 18.0 has 3 bytes, 5 expected", b"12345", True),
        ("data file 18.0 cannot be read: Input/output error", b"12345", True),
        ("data file 18.0 has 3 bytes, 5 expected", b"123", False),
        ("data file 18.0 is missing, 5 bytes expected", None, False),
        # The kernel dropped bytes that it could not write: what is read is what was there before.
        ("fdatasync failed: Input/output error", b"12345", False),
        ("data file /d/files/12/18.0 has bytes of an earlier time", b"12345", False),
    ],
)
def test_damage_that_reading_showed_ends_when_the_file_can_be_read(
    healthy: Namespace, settings: Settings, reason: str, data: bytes | None, is_whole: bool
) -> None:
    attr = healthy.lookup(healthy.lookup(ROOT, b"d").ino, b"f")
    healthy.damaged(attr.ino, reason)
    path = healthy.files.path(attr.ino, attr.epoch)
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    [broken_invariant] = check(settings)
    assert (broken_invariant.check, broken_invariant.repair) == (
        "damaged",
        "damage forgotten" if is_whole else "",
    )
    assert reason in broken_invariant.detail
    assert check(settings) == [broken_invariant]
    assert check(settings, repair=True) == [broken_invariant]
    assert check(settings) == ([] if is_whole else [broken_invariant])
