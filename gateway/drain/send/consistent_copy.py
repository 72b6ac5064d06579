"""Copy of a file that clients may be writing: accepted only if it shows one moment.

Every change of a file sets its ctime, before the first byte changes and under the lock that the
whole change holds. So no byte was written during the copy if

1. the changes that were under way when it began are over: looking for holes and reading wait for
   that lock (ext4, tmpfs and btrfs at the first, XFS at the second), and
2. ctime and size are the same afterwards, and
3. the ctime was old when the copy began: the kernel's time stamps move in steps of up to 10 ms, and
   within a step a second change would not move it.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from gateway.common import clock

QUIET_NS = clock.NS // 10
"""The age of the ctime from which on a change must move it."""
CHUNK_BYTES = 256 * 1024 * 1024
"""The bytes that are copied between two checks that the file is unchanged."""


class CopyMoment(NamedTuple):
    """The moment that a copy shows."""

    ns: int
    """The time at which the file was as the copy."""
    size: int
    """Bytes."""
    mtime_ns: int


def is_quiet(found: os.stat_result) -> bool:
    """Return whether a file was not changed for so long that a copy is worth trying."""
    return clock.now_ns() - found.st_ctime_ns >= QUIET_NS


def copy(source: int, target: int) -> CopyMoment | None:
    """Copy an open file into an empty one, holes as holes. Returns None if it may have changed.

    Raises OSError.
    """
    before = os.fstat(source)
    moment = CopyMoment(clock.now_ns(), before.st_size, before.st_mtime_ns)
    if not is_quiet(before):
        return None
    await_writes(source)
    os.ftruncate(target, before.st_size)
    at = 0
    while _is_same(before, source):
        if (data := _next_data(source, at, before.st_size)) is None:
            return moment if _is_same(before, source) else None
        start, end = data
        at = start + os.copy_file_range(source, target, end - start, start, start)
    return None


def await_writes(fd: int) -> None:
    """Wait until the writes into a file that are under way are over."""
    _seek(fd, 0, os.SEEK_HOLE)
    os.pread(fd, 1, 0)


def _is_same(before: os.stat_result, fd: int) -> bool:
    now = os.fstat(fd)
    return (now.st_ctime_ns, now.st_size) == (before.st_ctime_ns, before.st_size)


def _next_data(fd: int, at: int, size: int) -> tuple[int, int] | None:
    """Return the next range that is no hole, from an offset on, or None."""
    start = _seek(fd, at, os.SEEK_DATA)
    end = None if start is None else _seek(fd, start, os.SEEK_HOLE)
    if start is None or end is None or start >= size:
        return None
    return start, min(end, size, start + CHUNK_BYTES)


def _seek(fd: int, at: int, whence: int) -> int | None:
    """Seek with lseek. Returns None if the file has nothing there or beyond."""
    try:
        return os.lseek(fd, at, whence)
    except OSError as exc:
        if exc.errno != errno.ENXIO:
            raise
        return None
