"""Tests that each object has digests of its blocks, from the reading that sent it."""

from __future__ import annotations

import os

import pytest
from sqlalchemy.exc import IntegrityError

from gateway.db.engine import Database
from gateway.drain.verify import changed
from gateway.namespace.data_files import DataFiles
from tests.support.drainsite import MIB, Site
from tests.support.t4.block_digests import found, of
from tests.support.t4.checksum import flip
from tests.support.t4.interrupted import killed_after_two_parts
from tests.support.t4.snapshots import append, opened
from tests.support.volumes import query
from tests.support.waiting import until
from tests.t4_drain.conftest import Counted

SIZES = [0, 9, 3 * MIB, 9 * MIB + 1, 17 * MIB]
"""Sizes that are sent in a batch, alone, and in parts of 5 MiB, which are no whole blocks."""


@pytest.mark.parametrize("processes", [0, 1])
def test_each_object_is_published_with_the_digests_of_its_blocks(
    site: Site, processes: int
) -> None:
    site.configure(processes=processes)
    files = {f"f{size}": os.urandom(size) for size in SIZES}
    for path, data in files.items():
        site.write(path, data)
    site.drain()
    assert site.objects() == files
    assert found(site) == {path: of(data) for path, data in files.items()}


def test_nothing_is_read_once_more_for_the_digests(rclone_site: Site, read_bytes: Counted) -> None:
    """Parts are read for their checksum and for the wire. A hole is not read at all."""
    site = rclone_site
    data = os.urandom(6 * MIB) + bytes(6 * MIB) + b"end"
    path = site.namespace.files.path(site.write("f", data), 0)
    with path.open("r+b") as file:
        file.truncate(6 * MIB)
        file.seek(12 * MIB)
        file.write(b"end")
    site.drain()
    assert found(site) == {"f": of(data)}
    assert read_bytes() <= 2 * (6 * MIB + 4096)


def test_a_resumed_upload_has_the_digests_of_all_its_parts(site: Site) -> None:
    data = killed_after_two_parts(site)
    site.drain()
    assert site.objects() == {"f": data}
    assert found(site) == {"f": of(data)}


def test_a_snapshot_has_the_digests_of_what_it_shows(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(max_open_age_seconds=0.3)
    attr, path = opened(site, "f.log")
    data = os.urandom(11 * MIB)
    append(path, data)
    with site.draining():
        until(lambda: found(site) == {"f.log": of(data)}, "a snapshot")
        append(path, b"end")
        site.seal(attr.ino, data + b"end")
        until(site.is_clean, "the final version is drained")
    assert found(site) == {"f.log": of(data + b"end")}


def test_digests_live_as_long_as_their_object(rclone_site: Site) -> None:
    site = rclone_site
    old, new = os.urandom(5 * MIB), os.urandom(9 * MIB)
    ino = site.write("f", old)
    site.write("g", b"data")
    site.drain()
    assert found(site) == {"f": of(old), "g": of(b"data")}
    site.rename("f", "moved")
    # The file is opened and closed without a write.
    site.namespace.open_write(ino)
    site.namespace.seal(ino, site.sealed_unchanged(old))
    site.drain()
    assert found(site) == {"moved": of(old), "g": of(b"data")}
    site.write("moved", new)
    # The digests are those of the object, until the next object replaces it.
    assert found(site) == {"moved": of(old), "g": of(b"data")}
    site.drain()
    assert found(site) == {"moved": of(new), "g": of(b"data")}
    site.unlink("moved")
    assert found(site) == {"g": of(b"data")}
    assert site.rows("SELECT count(*) FROM block_digest") == [(1,)]


def test_no_digests_without_an_object(rclone_site: Site) -> None:
    ino = rclone_site.write("f", b"data")
    with pytest.raises(IntegrityError):
        query(rclone_site.settings, "INSERT INTO block_digest VALUES (:ino, 1, '')", ino=ino)


def test_fsck_names_the_blocks_that_changed(rclone_site: Site) -> None:
    site = rclone_site
    size = 17 * MIB
    ino = site.write("dir/f", os.urandom(size))
    site.write("fine", os.urandom(size))
    site.drain()
    for at in (0, 5 * MIB, size - 1):
        flip(site, "dir/f", at)
    before = site.rows("SELECT * FROM block_digest ORDER BY ino")
    database = Database(site.settings.database_url)
    ((file, why),) = changed(database, DataFiles(site.settings.files_dir))
    database.close()
    assert file.ino == ino
    assert why.startswith(f"bytes 0 to {8 * MIB - 1}, {16 * MIB} to {size - 1} of ")
    assert site.rows("SELECT * FROM block_digest ORDER BY ino") == before
