"""Reading of the scrub: at a bounded rate, from the disk itself, and past the page cache.

What clients read stays in memory, and what memory has is not taken for what the disk has. Where a
file system knows no direct reads, the pages are dropped before and after each read instead.

A reading is a generator that may be left alone after each ``yield``, so that its owner keeps the
rate.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from awscrt.checksums import crc32c

from gateway.common import clock
from gateway.drain.send.checksum import ChecksumForm, form_of
from gateway.objectstore.checksums import (
    CRC_BYTES,
    ZEROS,
    BlockDigests,
    ChecksumKind,
    Crc,
    CrcRun,
)
from gateway.objectstore.objects import MIB

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work in steps, and its result."""

SLICE_BYTES = MIB
"""So much is read at a time: more may be read in a moment than the rate says."""
WORK_SECONDS = 1.0
_LOST = frozenset(
    (errno.EIO, errno.EBADMSG, errno.EILSEQ, errno.ENODATA, errno.EREMOTEIO, errno.EUCLEAN)
)
"""The errors that say that a disk does not have the bytes, as for the server (lost.c)."""


class ReadRate:
    """The rate of reads. It is not safe for several threads.

    Args:
        bytes_per_second: 0 for no limit.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._not_before = 0.0
        self.read_bytes = 0
        """All bytes so far."""

    def wait_seconds(self) -> float:
        """Return the seconds until more may be read."""
        return max(0.0, self._not_before - clock.monotonic_seconds())

    def run(self, steps: Iterator[None]) -> bool:
        """Do steps for a second, or until the bytes of one second are read. Returns whether there
        are more steps. What they raise is raised."""
        started, before = clock.monotonic_seconds(), self.read_bytes
        try:
            for _step in steps:
                passed = clock.monotonic_seconds() - started
                read_bytes = self.read_bytes - before
                if passed >= WORK_SECONDS or (self._rate and read_bytes >= self._rate):
                    return True
            return False
        finally:
            ended = clock.monotonic_seconds()
            for_bytes = (self.read_bytes - before) / self._rate if self._rate else 0.0
            self._not_before = ended + max(ended - started, for_bytes - (ended - started))


class Mismatch(NamedTuple):
    """Bytes that are not what they should be."""

    start: int
    """The first of them, of a file with block digests."""
    reason: str


class ScrubbedFile:
    """A data file that is open for the scrub: a context manager.

    Raises OSError.

    Args:
        path: path of the file.
        rate: counts the bytes.
    """

    def __init__(self, path: Path, rate: ReadRate) -> None:
        self._rate = rate
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            self._fd, self._is_direct = os.open(path, flags | os.O_DIRECT), True
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            self._fd, self._is_direct = os.open(path, flags), False
        # Direct reads need memory at the boundary of a page.
        self._memory = mmap.mmap(-1, SLICE_BYTES)
        self._buffered: int | None = None
        """For what a direct read cannot begin at."""
        stat = os.fstat(self._fd)
        self.size, self.mtime_ns = stat.st_size, stat.st_mtime_ns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        if self._buffered is not None:
            os.close(self._buffered)

    def read(self, start: int, size: int) -> Iterator[memoryview]:
        """Yield the bytes of a range, a slice at a time; less at the end of the file. Each is valid
        until the next one. Raises OSError.

        Args:
            start: at a boundary of SLICE_BYTES.
        """
        at, end = start, start + size
        while at < end:
            data = self._next_data(at, end)
            while at < data:
                zeros = ZEROS[: min(len(ZEROS), data - at)]
                at += len(zeros)
                yield zeros
            if at >= end:
                return
            # The next slice begins at a boundary again, whatever a hole was.
            wanted = min(SLICE_BYTES - at % SLICE_BYTES, end - at)
            piece = self._read(at, wanted)
            if not piece:
                return
            at += len(piece)
            yield piece

    def _next_data(self, at: int, end: int) -> int:
        """Return where the next bytes are that are no hole, at a boundary of a slice or at once."""
        try:
            data = os.lseek(self._fd, at, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno != errno.ENXIO:
                raise
            return min(end, max(at, self.size))
        return min(end, max(at, data - data % SLICE_BYTES))

    def _plain(self) -> int:
        """Return a descriptor for reads that are not direct: where a file system knows no others,
        and after a read that met a bad sector, which ends anywhere."""
        if not self._is_direct:
            return self._fd
        if self._buffered is None:
            path = f"/proc/self/fd/{self._fd}"
            self._buffered = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._buffered

    def _read(self, at: int, wanted: int) -> memoryview:
        buffer = memoryview(self._memory)
        if self._is_direct and at % mmap.PAGESIZE == 0:
            # Beyond the end of the file nothing is read.
            pages = -(-wanted // mmap.PAGESIZE) * mmap.PAGESIZE
            count = min(wanted, os.preadv(self._fd, [buffer[:pages]], at))
        else:
            fd = self._plain()
            os.posix_fadvise(fd, at, wanted, os.POSIX_FADV_DONTNEED)
            count = os.preadv(fd, [buffer[:wanted]], at)
            os.posix_fadvise(fd, at, wanted, os.POSIX_FADV_DONTNEED)
        self._rate.read_bytes += count
        return buffer[:count]


def missing_bytes(path: Path, size: int, exc: OSError) -> Mismatch:
    """Return what an error says of a data file. Raises the error if it says nothing of the bytes.

    Args:
        size: the size that it should have.
    """
    if isinstance(exc, FileNotFoundError):
        return Mismatch(0, f"data file {path.name} is missing, {size} bytes expected")
    if exc.errno in _LOST:
        return Mismatch(0, f"data file {path.name} cannot be read: {exc.strerror}")
    raise exc


def wrong_size(path: Path, found: int, size: int) -> Mismatch:
    """Return that a data file has another size than it should."""
    return Mismatch(0, f"data file {path.name} has {found} bytes, {size} expected")


def block_of(data: ScrubbedFile, number: int, size: int, block_bytes: int) -> Steps[bytes]:
    """Read a block of a file. Returns its CRC.

    Args:
        size: that of the file.
    """
    start = number * block_bytes
    run = CrcRun(start, block_bytes)
    left = min(block_bytes, size - start)
    # A rest comes before the bytes, so that a block that was read is judged at once.
    yield
    for piece in data.read(start, left):
        run.add(piece)
        left -= len(piece)
        if left:
            yield
    return run.crcs[0].bytes if run.crcs else b""


def differing_block(blocks: BlockDigests, number: int, size: int, name: str) -> Mismatch:
    """Return that a block has other bytes than its digest says."""
    start = number * blocks.block_bytes
    end = min(start + blocks.block_bytes, size) - 1
    return Mismatch(start, f"bytes {start} to {end} of {name} are not what was uploaded")


def expected_block(blocks: BlockDigests, number: int) -> bytes:
    """Return the CRC that a block should have."""
    return blocks.crcs[number * CRC_BYTES : (number + 1) * CRC_BYTES]


def checksum_of(data: ScrubbedFile, expected: str) -> Steps[str]:
    """Read a file. Returns its checksum, in the form of another one."""
    sums = _Sums(form_of(expected))
    for piece in data.read(0, data.size):
        sums.add(piece)
        yield
    return sums.checksum()


class _Sums:
    """The checksum of a file whose bytes come one after the other."""

    def __init__(self, form: ChecksumForm) -> None:
        self._form = form
        self._crc = Crc()
        self._castagnoli = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._parts = b""
        """The MD5s of the parts that are whole."""
        self._part_bytes = 0
        """Bytes of the part that is not."""

    def add(self, data: memoryview) -> None:
        """Add the next bytes."""
        if self._form.kind is ChecksumKind.CRC64NVME:
            run = CrcRun(0, len(data))
            run.add(data)
            self._crc = self._crc.then(run.crcs[0])
        elif self._form.kind is ChecksumKind.CRC32C:
            self._castagnoli = crc32c(data, self._castagnoli)
        else:
            self._add_md5(data)

    def _add_md5(self, data: memoryview) -> None:
        part_bytes = self._form.part_bytes
        while part_bytes is not None and self._part_bytes + len(data) >= part_bytes:
            piece = data[: part_bytes - self._part_bytes]
            self._md5.update(piece)
            self._end_part()
            data = data[len(piece) :]
        self._md5.update(data)
        self._part_bytes += len(data)

    def _end_part(self) -> None:
        self._parts += self._md5.digest()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._part_bytes = 0

    def checksum(self) -> str:
        """Return it, as it is recorded."""
        kind, part_bytes = self._form
        if kind is ChecksumKind.CRC64NVME:
            return f"{kind}:{self._crc.bytes.hex()}"
        if kind is ChecksumKind.CRC32C:
            return f"{kind}:{self._castagnoli.to_bytes(4, 'big').hex()}"
        if part_bytes is None:
            return f"md5:{self._md5.hexdigest()}"
        if self._part_bytes:
            self._end_part()
        whole = hashlib.md5(self._parts, usedforsecurity=False).hexdigest()
        return f"md5-parts:{part_bytes}:{whole}"
