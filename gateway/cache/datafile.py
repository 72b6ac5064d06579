"""Writes the data file of an absent file, in which only the hydrator writes.

The file of an epoch is made with its full size. It stays sparse: runs of zeros are not written
where it has a hole already.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import Self

from awscrt.checksums import crc64nvme

from gateway.cache.rows import Rows, Source
from gateway.data.layout import DataFiles, sync_directory
from gateway.objectstore.crc64 import CRC_BYTES, of_hole

log = logging.getLogger("cache")

ZEROS = bytes(64 * 1024)
"""Shorter or unaligned runs of zeros are written: a hole would save hardly any room."""


class DataFile:
    """The open data file of one epoch.

    Parameters: fd; source; was_there, whether it was made before; was_long, whether it had its size
    then.
    """

    def __init__(self, fd: int, source: Source, was_there: bool, was_long: bool) -> None:
        self._fd = fd
        self._source = source
        self.was_there = was_there
        """It may have verified bytes that no durable map names."""
        self.was_long = was_long
        """If it had another size, no durable map is of this file."""
        self._is_named = False
        """Whether its directory was synced since it was made."""

    @classmethod
    def open(cls, files: DataFiles, source: Source, rows: Rows) -> Self | None:
        """Open the data file of a source, or make it. Returns None if the file is not absent with
        this epoch any more. Raises OSError, NamespaceError."""
        path = files.path(source.ino, source.epoch)
        try:
            fd, was_there = os.open(path, os.O_RDWR | os.O_CLOEXEC), True
        except FileNotFoundError:
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
            fd, was_there = os.open(path, flags, 0o600), False
        try:
            # An eviction that commits after this look deletes the file. One that committed before
            # found no file to delete, so the file would stay if it were not deleted here.
            if not was_there and not rows.is_still(source.ino, source.epoch):
                path.unlink()
                os.close(fd)
                return None
            was_long = was_there and os.fstat(fd).st_size == source.size
            os.ftruncate(fd, source.size)
            if was_there:
                # What is read from it later must be what the disk has: after a failed sync, pages
                # in memory are clean and right, and the disk has other bytes.
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, source, was_there, was_long)

    def close(self) -> None:
        os.close(self._fd)

    def write(self, buffer: bytearray, count: int, at: int) -> None:
        """Write the first bytes of a buffer. Raises OSError.

        Parameters: count, of the bytes; at, the place in the file.
        """
        view = memoryview(buffer)
        start = 0
        while start < count:
            end = start
            while end < count and not self._stays_hole(buffer, end, count, at):
                end += min(len(ZEROS), count - end)
            done = start
            while done < end:
                done += os.pwrite(self._fd, view[done:end], at + done)
            start = end
            while start < count and self._stays_hole(buffer, start, count, at):
                start += len(ZEROS)

    def _stays_hole(self, buffer: bytearray, start: int, count: int, at: int) -> bool:
        end = start + len(ZEROS)
        is_zero = end <= count and buffer.startswith(ZEROS, start, end)
        return is_zero and self._is_hole(at + start, at + end)

    def _is_hole(self, start: int, end: int) -> bool:
        # Bytes that an earlier fetch left may be wrong: they are written over, also by zeros.
        try:
            return os.lseek(self._fd, start, os.SEEK_DATA) >= end
        except OSError as exc:
            if exc.errno == errno.ENXIO:
                return True
            raise

    def is_empty(self, block: int) -> bool:
        """Return whether a block has a hole in its whole length. Raises OSError."""
        start = block * self._source.block_bytes
        return self._is_hole(start, start + self._source.bytes_of(block))

    def is_zero(self, block: int) -> bool:
        """Return whether a block is one of zeros, and needs no fetching. Raises OSError."""
        zeros = of_hole(self._source.bytes_of(block)).bytes
        return self._source.crc(block) == zeros and self.is_empty(block)

    def has(self, block: int, buffer: bytearray) -> bool:
        """Return whether the file has the right bytes of a block already. Raises OSError.

        What the disk cannot read is fetched again, and written over.
        """
        if self.is_empty(block):
            return False
        at = block * self._source.block_bytes
        left, crc = self._source.bytes_of(block), 0
        while left:
            view = memoryview(buffer)[: min(left, len(buffer))]
            try:
                count = os.preadv(self._fd, [view], at)
            except OSError as exc:
                log.error("inode %d: its data file cannot be read: %s", self._source.ino, exc)
                return False
            if count == 0:
                return False
            crc = crc64nvme(view[:count], crc)
            at, left = at + count, left - count
        return crc.to_bytes(CRC_BYTES, "big") == self._source.crc(block)

    def sync(self, files: DataFiles) -> None:
        """Put everything that was written before on stable storage. Raises OSError."""
        os.fdatasync(self._fd)
        if not self._is_named:
            sync_directory(files.path(self._source.ino, self._source.epoch).parent)
            self._is_named = True
