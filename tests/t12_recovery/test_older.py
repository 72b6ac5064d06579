"""What a restore and a comparison take although it is not all that there was."""

from __future__ import annotations

from pathlib import Path

from gateway.common.types import Residency
from tests.support.drainsite import Site
from tests.support.t12.names import copied
from tests.support.t12.reconcile import (
    assert_at_rest,
    copy_object,
    delete_object,
    evict,
    key_of,
    readable,
    reconcile,
)
from tests.support.t12.restored import RestoredSite
from tests.support.volumes import query


def hold(site: Site, ino: int) -> None:
    """Let the drain leave a file alone."""
    row = "INSERT INTO queue_order (ino, hold, set_ns) VALUES (:ino, 1, 1)"
    query(site.settings, row, ino=ino)


def test_bytes_without_digests_come_back(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    for path in ("a", "b", "empty"):
        site.write(path, b"" if path == "empty" else b"1")
    site.drain()
    query(site.settings, "DELETE FROM block_digest")
    for path in ("b", "empty"):
        hold(site, site.write(path, b"only on the lost disk"))
    with copied(site) as copy:
        copy.all()
    gateway = RestoredSite(site, tmp_path / "new")
    restored = gateway.restore()
    assert (restored.lost, sorted(restored.older)) == ([], ["b", "empty"])
    [(size, residency)] = gateway.rows(
        "SELECT size, residency FROM inode JOIN dirent ON dirent.ino = inode.ino "
        "WHERE size = 0 AND kind = 1 AND reserved = 0"
    )
    assert (size, residency) == (0, Residency.RESIDENT)
    gateway.rows("DELETE FROM object WHERE size = 0 RETURNING 1")
    assert gateway.contents() == {"a": b"1", "b": b"1"}


def test_an_older_version_that_no_name_knows_comes_back(moto_site: Site, tmp_path: Path) -> None:
    """The drain sent it while a client wrote the next one."""
    site = moto_site
    ino = site.write("a", b"1")
    site.drain()
    query(site.settings, "DELETE FROM object")
    query(
        site.settings,
        "UPDATE inode SET drained_version = 0, content_version = content_version + 1 "
        "WHERE ino = :ino",
        ino=ino,
    )
    with copied(site) as copy:
        copy.all()
    gateway = RestoredSite(site, tmp_path / "new")
    restored = gateway.restore()
    assert (restored.lost, restored.older) == ([], ["a"])
    assert gateway.contents() == {"a": b"1"}


def test_a_moved_copy_that_was_not_recorded_is_taken(each_site: Site) -> None:
    """The database is of the moment in which the drain was about to copy the object."""
    site = each_site
    site.write("run/a", b"one")
    site.drain()
    evict(site, "run/a")
    copy_object(site, "run/a", "run/b")
    delete_object(site, "run/a")
    site.rows(
        "INSERT INTO tombstone (key, ino, content_version, etag, generation, deleted_ns) "
        f"SELECT '{key_of('run/b')}', ino, content_version, NULL, generation, 1 "
        "FROM inode WHERE size = 3 RETURNING 1"
    )
    report = reconcile(site)
    assert (report.lost, report.outcomes) == (0, {"recorded again": 1})
    assert readable(site) == {"run/b": b"one"}
    assert_at_rest(site)
