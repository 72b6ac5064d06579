"""A file whose local bytes are known to be lost never reaches the bucket, closed or open."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from gateway.common.errors import DataFileError
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.drain.rows import File
from gateway.drain.send import checksum
from gateway.objectstore.bodies import FileRange
from tests.support.drainsite import Site
from tests.support.waiting import until

PIPE_BYTES = 65536
REASON = "fdatasync failed: Input/output error"


def test_a_file_whose_bytes_are_lost_is_not_uploaded(site: Site) -> None:
    ino = site.write("lost", b"what is left of it")
    site.namespace.damaged(ino, REASON)
    site.write("whole", b"all of it")
    site.drain()
    assert site.objects() == {"whole": b"all of it"}
    assert site.rows("SELECT count(*) FROM upload") == [(0,)]
    site.namespace.whole(ino)
    site.drain()
    assert set(site.objects()) == {"whole", "lost"}


def opened(site: Site, path: str, data: bytes) -> int:
    """Make and write a file that stays open. Returns its inode number."""
    parent, name = site.split(path)
    attr = site.namespace.create(ROOT_CRED, parent, name, SetAttr(mode=0o644))
    site.namespace.files.path(attr.ino, attr.epoch).write_bytes(data)
    return attr.ino


def has_object(site: Site, path: str) -> bool:
    return path in site.objects()


def test_an_open_file_whose_bytes_are_lost_gets_no_snapshot(site: Site) -> None:
    site.configure(max_open_age_seconds=0.3)
    site.namespace.damaged(opened(site, "run/lost.log", b"what is left of it"), REASON)
    with site.draining():
        # Open files are planned in the order of inode numbers, so the first one was skipped.
        for path in ("run/second.log", "run/third.log"):
            opened(site, path, b"all of it")
            until(partial(has_object, site, path), "a snapshot")
    assert set(site.objects()) == {"run/second.log", "run/third.log"}


def test_an_error_of_the_disk_is_not_taken_for_the_end_of_a_file() -> None:
    """A read that meets a bad sector answers the bytes before it: only the next one fails."""
    pieces, end = os.pipe()
    with os.fdopen(pieces, "rb", 0) as data, os.fdopen(end, "wb", 0) as writer:
        # Each read answers what is there, less than it was asked for.
        with ThreadPoolExecutor(1) as pool:
            body = pool.submit(checksum.read, data, 2 * PIPE_BYTES)
            for _ in range(2):
                writer.write(bytes(PIPE_BYTES))
            assert body.result() == bytes(2 * PIPE_BYTES)
        writer.write(b"cut off")
        writer.close()
        with pytest.raises(DataFileError, match="ended 93 bytes early"):
            checksum.read(data, 100)
    # Address 0 is in no mapping, so the kernel answers EIO, as for a bad sector.
    with Path("/proc/self/mem").open("rb", buffering=0) as unreadable:
        with pytest.raises(DataFileError, match="cannot be read: Input/output error"):
            checksum.read(unreadable, 100)
        with pytest.raises(DataFileError, match="cannot be read"):
            list(FileRange(unreadable.fileno(), 0, 100))


def test_a_data_file_that_cannot_be_opened_needs_a_person(site: Site) -> None:
    ino = site.write("lost", b"bytes")
    path = site.namespace.files.path(ino, 0)
    path.unlink()
    path.symlink_to(path.name)
    file = File(*[0] * len(File._fields))._replace(ino=ino, size=5)
    with pytest.raises(DataFileError, match="cannot be opened"):
        checksum.open_data(site.namespace.files, file)
    site.drain()
    assert site.objects() == {}
