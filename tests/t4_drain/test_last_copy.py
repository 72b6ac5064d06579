"""The rows of a restored database never delete the last object of a file that was moved since."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.common.types import Residency
from gateway.db.engine import Database
from gateway.namespace import adopt, residency
from tests.support.drain import Drain
from tests.support.drainsite import PREFIX, Site
from tests.support.namespace import Namespace
from tests.support.s3proxy import Act
from tests.support.waiting import until

DATA = b"only here"


def evict(site: Site, ino: int) -> None:
    """Make a file absent, as the server does."""
    before = site.namespace.getattr(ino)
    [(version,)] = site.rows(f"SELECT content_version FROM inode WHERE ino = {ino}")
    site.namespace.run(residency.evict, ino, version, None)
    site.namespace.files.remove(ino, before.epoch)
    site.rows(f"DELETE FROM eviction WHERE ino = {ino} RETURNING 1")


def move(site: Site, old: str, new: str) -> None:
    """Rename a file, and copy its object. The deletion at the old key is still to come."""
    site.rename(old, new)
    drain = Drain(site.settings)
    drain.cycle()
    drain.close()
    assert site.objects().keys() >= {old, new}


def restoring(site: Site) -> Callable[[], None]:
    """Make a backup of the database. Returns a function that restores and adopts it."""
    path = site.settings.data_dir / "namespace.db"
    backup = path.with_suffix(".backup")

    def copy(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)

    def restore() -> None:
        site.namespace.close()
        copy(backup, path)
        database = Database(site.settings.database_url)
        adopt.adopt_files(database, site.namespace.files)
        database.close()
        site.namespace = Namespace(site.settings)

    copy(path, backup)
    return restore


def assert_kept(site: Site, deleted: str, recorded: str) -> None:
    """Assert that an object stays, and that a person is told why."""
    site.drain()
    assert site.objects() == {deleted: DATA}
    [(error,)] = site.rows("SELECT error FROM retry")
    assert error.startswith(
        f"needs a person: {PREFIX}/{deleted} stays: it may be the last copy of its file: the "
        f"bucket does not have the object that is recorded at {PREFIX}/{recorded}"
    )
    # A person copies it to where it is recorded.
    source = f"{site.bucket}/{PREFIX}/{deleted}"
    site.client.copy_object(Bucket=site.bucket, Key=f"{PREFIX}/{recorded}", CopySource=source)
    site.drain()
    assert site.objects() == {recorded: DATA}
    assert site.left() == []


def restoring_indeterminate(site: Site, path: str, ino: int) -> Callable[[], None]:
    """Make a backup in which a request for a key was given up. Returns a function that restores and
    adopts it."""
    values = f"'{PREFIX}/{path}', {ino}, 1, 0"
    site.rows(
        "INSERT INTO indeterminate_write (key, ino, noted_ns, check_after_ns)"
        f" VALUES ({values}) RETURNING 1"
    )
    restore = restoring(site)
    site.rows("DELETE FROM indeterminate_write RETURNING 1")
    return restore


@pytest.mark.parametrize("evicted", ["before", "since", "never"])
def test_a_tombstone_of_a_backup_does_not_delete_the_last_object(site: Site, evicted: str) -> None:
    ino = site.write("a", DATA)
    site.drain()
    if evicted == "before":
        evict(site, ino)
    move(site, "a", "b")
    restore = restoring(site)
    site.drain()
    site.rename("b", "a")
    site.drain()
    if evicted == "since":
        evict(site, ino)
    assert site.objects() == {"a": DATA}
    restore()
    assert (site.attr("b").residency == Residency.RESIDENT) == (evicted == "never")
    assert_kept(site, "a", "b")


def test_an_indeterminate_write_of_a_backup_does_not_delete_the_last_object(
    rclone_site: Site,
) -> None:
    site = rclone_site
    ino = site.write("b", DATA)
    site.drain()
    evict(site, ino)
    restore = restoring_indeterminate(site, "a", ino)
    site.rename("b", "a")
    site.drain()
    assert site.objects() == {"a": DATA}
    restore()
    assert_kept(site, "a", "b")


def test_an_indeterminate_write_of_a_backup_does_not_delete_a_newer_version(
    rclone_site: Site,
) -> None:
    """Not even while the bucket has the version that the database knows."""
    site = rclone_site
    ino = site.write("b", DATA)
    site.drain()
    restore = restoring_indeterminate(site, "a", ino)
    site.rename("b", "a")
    site.write("a", b"newer")
    site.drain()
    evict(site, ino)
    restore()
    assert site.attr("b").residency == Residency.ABSENT
    # A bucket with versions has it still, and a person has brought it back.
    recorded = site.metadata("a")
    recorded["content-version"] = "1"
    site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/b", Body=DATA, Metadata=recorded)
    site.drain()
    assert site.objects() == {"a": b"newer", "b": DATA}
    assert site.left() == []


def test_only_the_deletion_of_a_living_files_object_asks_for_another(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a", DATA)
    site.write("gone", DATA)
    site.drain()
    move(site, "a", "b")
    site.unlink("gone")
    site.proxy.forget()
    site.drain()
    assert site.objects() == {"b": DATA}
    heads = sorted(request.key for request in site.proxy.operations("HEAD"))
    assert heads == [f"{PREFIX}/{key}" for key in ("a", "b", "gone")]


def test_an_older_object_of_a_file_that_is_still_to_be_sent_stays(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a", DATA)
    site.drain()
    move(site, "a", "b")
    site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/b")
    site.write("b", b"newer")
    held = site.proxy.inject(lambda request: request.method == "PUT", Act.HOLD, 1e9)
    with site.draining():
        held.wait()
        until(lambda: site.rows("SELECT 1 FROM retry WHERE work = 'deletes'"), "it is deferred")
        assert site.objects() == {"a": DATA}
        held.release()
        until(lambda: not site.left(), "everything is drained")
    assert site.objects() == {"b": b"newer"}
