"""fsck finds what is broken, repairs what is safe, and says nothing of a healthy namespace."""

from __future__ import annotations

import pytest

from gateway.config import Settings
from gateway.data.layout import DataFiles
from gateway.db.engine import Database
from gateway.namespace import fsck
from gateway.namespace.facade import Namespace
from gateway.types import ROOT_CRED, Kind, Sealed, SetAttr
from tests.support.volumes import query
from tests.t3_namespace.test_names import ROOT, create, mkdir


def check(settings: Settings, *, repair: bool = False) -> list[fsck.Problem]:
    database = Database(settings.database_url)
    return fsck.check(database, DataFiles(settings.files_dir), repair=repair)


@pytest.fixture
def healthy(namespace: Namespace, settings: Settings) -> Namespace:
    """A namespace with some of everything, closed."""
    directory = mkdir(namespace, b"d")
    mkdir(namespace, b"sub", directory.ino)
    attr = create(namespace, b"f", directory.ino)
    namespace.files.path(attr.ino, attr.epoch).write_bytes(b"12345")
    namespace.seal(attr.ino, Sealed(5, 4096, 1, 1))
    namespace.link(ROOT_CRED, attr.ino, ROOT, b"hard")
    namespace.symlink(ROOT_CRED, ROOT, b"soft", b"d/f", SetAttr())
    namespace.mknod(ROOT_CRED, ROOT, b"pipe", Kind.FIFO, 0, SetAttr())
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
    found = check(settings)
    assert {problem.check for problem in found} == {name}
    assert all(problem.repair for problem in found)
    assert check(settings) == found  # looking changes nothing
    assert check(settings, repair=True) == found
    assert check(settings) == []


UNSAFE = {
    "numbers": "UPDATE volume SET next_ino = 3",
    "size": "UPDATE inode SET size = 6 WHERE kind = 1",
    "object version": "INSERT INTO object SELECT ino, 'k', 5, 5, 'e', 'c', 1 FROM inode"
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
    found = [problem for problem in check(settings, repair=True) if problem.check == name]
    assert found
    assert not any(problem.repair for problem in found)
    assert [problem for problem in check(settings) if problem.check == name] == found


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
