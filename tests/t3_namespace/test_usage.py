"""Usage: the sums follow each change, and fsck finds and mends any that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.namespace import fsck, usage
from gateway.namespace.data_files import DataFiles
from gateway.namespace.usage import OwnerUsage, Usage
from tests.support.namespace import Namespace
from tests.support.t3.names import ROOT, mkdir
from tests.support.volumes import query

OTHER = 1000


def write(ns: Namespace, parent: int, name: bytes, size: int, uid: int = 0) -> int:
    """Make a file and close it. Returns its inode."""
    attr = ns.create(ROOT_CRED, parent, name, SetAttr(mode=0o644, uid=uid))
    ns.files.path(attr.ino, attr.epoch).write_bytes(bytes(size))
    ns.seal(attr.ino, Sealed(size, size, 1, 1))
    return attr.ino


def of(ns: Namespace, directory: int) -> Usage:
    with ns._database.reading() as session:
        return usage.of_tree(session, directory)


def sizes(ns: Namespace) -> dict[int, int]:
    """Return the bytes of each owner."""
    with ns._database.reading() as session:
        return {row.uid: row.size for row in usage.owners(session) if not row.reserved}


def test_directories_have_what_is_below_them(namespace: Namespace) -> None:
    ns = namespace
    a = mkdir(ns, b"a").ino
    b = mkdir(ns, b"b", a).ino
    write(ns, a, b"f", 10)
    ino = write(ns, b, b"g", 5)
    ns.symlink(ROOT_CRED, b, b"l", b"target", SetAttr(mode=0o777))
    assert of(ns, b) == Usage(0, 2, 11, 5, 5)
    assert of(ns, a) == Usage(1, 3, 21, 15, 15)
    assert of(ns, ROOT) == Usage(2, 3, 21, 15, 15)
    ns.open_write(ino)
    ns.seal(ino, Sealed(3, 3, 2, 1))
    assert of(ns, a) == Usage(1, 3, 19, 13, 13)
    with ns._database.reading() as session:
        assert dict(usage.below(session, a)) == {b"b": Usage(0, 2, 9, 3, 3)}


def test_what_loses_its_name_is_charged_to_none(namespace: Namespace) -> None:
    ns = namespace
    a = mkdir(ns, b"a").ino
    write(ns, a, b"f", 10)
    write(ns, a, b"g", 20)
    ns.remove(ROOT_CRED, a, b"f")
    assert of(ns, a) == Usage(0, 1, 20, 20, 20)
    write(ns, a, b"h", 1)
    ns.rename(ROOT_CRED, a, b"h", a, b"g")
    assert of(ns, a) == Usage(0, 1, 1, 1, 1)
    ns.remove(ROOT_CRED, a, b"g")
    ns.remove(ROOT_CRED, ROOT, b"a")
    assert of(ns, ROOT) == Usage(0, 0, 0, 0, 0)
    assert sizes(ns) == {}


def test_a_renamed_directory_takes_its_usage_along(namespace: Namespace) -> None:
    ns = namespace
    a, b = mkdir(ns, b"a").ino, mkdir(ns, b"b").ino
    inner = mkdir(ns, b"inner", a).ino
    write(ns, inner, b"f", 10)
    ns.rename(ROOT_CRED, a, b"inner", b, b"inner")
    assert (of(ns, a).size, of(ns, b).size) == (0, 10)
    write(ns, a, b"g", 3)
    ns.rename(ROOT_CRED, a, b"g", inner, b"g")
    assert (of(ns, a).size, of(ns, b).size) == (0, 13)


def test_a_file_of_several_names_counts_once(namespace: Namespace) -> None:
    ns = namespace
    a, b = mkdir(ns, b"a").ino, mkdir(ns, b"b").ino
    ino = write(ns, a, b"f", 10)
    ns.link(ROOT_CRED, ino, b, b"g")
    assert (of(ns, a).size, of(ns, b).size, of(ns, ROOT).size) == (10, 0, 10)
    ns.remove(ROOT_CRED, a, b"f")
    assert (of(ns, a).size, of(ns, b).size, of(ns, ROOT).size) == (0, 10, 10)
    ns.link(ROOT_CRED, ino, b, b"h")
    ns.rename(ROOT_CRED, b, b"g", a, b"g")
    assert of(ns, ROOT).size == 10
    assert of(ns, a).size + of(ns, b).size == 10


def test_owners_have_their_files(namespace: Namespace) -> None:
    ns = namespace
    ino = write(ns, ROOT, b"f", 10, OTHER)
    write(ns, ROOT, b"g", 4)
    assert sizes(ns) == {OTHER: 10, 0: 4}
    ns.setattr(ino, SetAttr(uid=0))
    assert sizes(ns) == {0: 14}


def test_what_the_bucket_has_is_not_only_here(namespace: Namespace, settings: Settings) -> None:
    ns = namespace
    ino = write(ns, ROOT, b"f", 10)
    query(settings, "UPDATE inode SET drained_version = content_version WHERE ino = :ino", ino=ino)
    assert of(ns, ROOT) == Usage(0, 1, 10, 10, 0)
    ns.open_write(ino)
    assert of(ns, ROOT) == Usage(0, 1, 10, 10, 10)
    # What the gateway keeps is another sum of its owner.
    query(settings, "UPDATE inode SET reserved = 1 WHERE ino = :ino", ino=ino)
    with ns._database.reading() as session:
        assert usage.owners(session) == [OwnerUsage(0, 1, 1, 10, 10, 10)]


@pytest.mark.parametrize(
    ("statement", "check"),
    [
        ("UPDATE inode SET charged_to = NULL WHERE kind = 1", "charged"),
        ("UPDATE inode SET charged_to = 2 WHERE kind = 1", "charged"),
        ("UPDATE inode SET charged_to = 2 WHERE kind = 7", "charged"),
        ("UPDATE directory_usage SET size = size + 1", "usage of a directory"),
        ("DELETE FROM directory_usage", "usage of a directory"),
        ("INSERT INTO directory_usage VALUES (77, 1, 1, 1, 1)", "usage of a directory"),
        ("UPDATE owner_usage SET files = 0", "usage of an owner"),
        ("INSERT INTO owner_usage VALUES (77, 1, 1, 1, 1, 1)", "usage of an owner"),
    ],
)
def test_fsck_finds_and_mends_sums(settings: Settings, statement: str, check: str) -> None:
    ns = Namespace(settings)
    write(ns, mkdir(ns, b"a").ino, b"f", 10, OTHER)
    empty = mkdir(ns, b"empty").ino
    before = of(ns, ROOT)
    ns.close()
    assert checks(settings) == set()
    query(settings, statement)
    assert check in checks(settings, repair=True)
    assert checks(settings) == set()
    ns = Namespace(settings)
    assert of(ns, ROOT) == before
    assert sizes(ns) == {OTHER: 10}
    write(ns, empty, b"g", 1, OTHER)
    assert of(ns, empty).size == 1
    ns.close()


def checks(settings: Settings, repair: bool = False) -> set[str]:
    """Return which invariants are broken."""
    database = Database(settings.database_url)
    try:
        found = fsck.check(database, DataFiles(Path(settings.files_dir)), repair=repair)
        return {one.check for one in found}
    finally:
        database.close()
