"""Bodies of requests and answers, read piece by piece.

The body of a request is bytes in memory, or a range of a file. A range is read twice, for its
digests and for the wire (the second time from the page cache), so memory does not grow with the
size of a part. The first reading also gives the CRCs of the file's blocks. Holes of sparse files
are not read at all. The file is not mapped: a client may truncate it meanwhile, and reading a
mapping beyond the end kills the process.

The body of an answer is read into buffers of the caller.
"""

from __future__ import annotations

import errno
import hashlib
import os
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import Self

from awscrt.checksums import crc32c
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError, SSLError

from gateway.common.errors import DataFileError
from gateway.objectstore import checksums
from gateway.objectstore.checksums import ZEROS, BodyChecksums, ChecksumKind, CrcRun

BLOCK_BYTES = len(ZEROS)
"""The bytes that are read at a time."""


class FileRange:
    """A range of an open file. Each iteration reads it from its start.

    A block is valid until the next one is asked for. Raises DataFileError when the file ends before
    the range does, or cannot be read.

    Args:
        start, size: those in bytes.
        digest_bytes: the size of the blocks of the file that have a digest.
    """

    def __init__(
        self, fd: int, start: int, size: int, digest_bytes: int = checksums.BLOCK_BYTES
    ) -> None:
        self._fd = fd
        self._start = start
        self._size = size
        self._digest_bytes = digest_bytes

    def __len__(self) -> int:
        return self._size

    def run(self) -> CrcRun:
        """Return an empty run for the CRCs of the range."""
        return CrcRun(self._start, self._digest_bytes)

    def __iter__(self) -> Iterator[memoryview]:
        try:
            yield from self._blocks()
        except OSError as exc:
            # This is an error of the disk. As an OSError it would look like an error of the
            # connection.
            raise DataFileError(f"data file cannot be read: {exc.strerror}") from exc

    def _blocks(self) -> Iterator[memoryview]:
        at, end = self._start, self._start + self._size
        buffer = memoryview(bytearray(min(BLOCK_BYTES, self._size)))
        while at < end:
            data = self._next_data(at, end)
            while at < data:
                zeros = ZEROS[: min(BLOCK_BYTES, data - at)]
                at += len(zeros)
                yield zeros
            hole = min(end, os.lseek(self._fd, at, os.SEEK_HOLE)) if at < end else end
            while at < hole:
                count = os.preadv(self._fd, [buffer[: hole - at]], at)
                if count == 0:
                    raise _ended(end - at)
                at += count
                yield buffer[:count]

    def _next_data(self, at: int, end: int) -> int:
        try:
            return min(end, os.lseek(self._fd, at, os.SEEK_DATA))
        except OSError as exc:
            if exc.errno != errno.ENXIO:
                raise
        # From here to the end of the file there is only a hole. The end may have moved.
        missing = end - os.fstat(self._fd).st_size
        if missing > 0:
            raise _ended(missing)
        return end


Body = bytes | FileRange


def blocks(body: Body) -> Iterable[bytes | memoryview]:
    """Return the blocks of a body, as a request takes them."""
    return body if isinstance(body, FileRange) else (body,)


def digest(
    body: Body,
    kinds: Collection[ChecksumKind] = (ChecksumKind.MD5,),
    with_sha256: bool = False,
) -> BodyChecksums:
    """Read the body once for its digests.

    Args:
        kinds: the checksums that are wanted beside the CRCs of the blocks, which cost next to
            nothing.
    """
    md5 = hashlib.md5(usedforsecurity=False)
    sha256 = hashlib.sha256()
    castagnoli = 0
    run = body.run() if isinstance(body, FileRange) else CrcRun(0, checksums.BLOCK_BYTES)
    for block in blocks(body):
        run.add(block)
        if ChecksumKind.MD5 in kinds:
            md5.update(block)
        if ChecksumKind.CRC32C in kinds:
            castagnoli = crc32c(block, castagnoli)
        if with_sha256:
            sha256.update(block)
    return BodyChecksums(
        md5.digest() if ChecksumKind.MD5 in kinds else b"",
        sha256.hexdigest() if with_sha256 else "",
        tuple(run.crcs),
        castagnoli,
    )


def _ended(missing: int) -> DataFileError:
    return DataFileError(f"data file ended {missing} bytes early")


@contextmanager
def named(address: str) -> Iterator[None]:
    """Raise botocore's errors in place of those of an open connection."""
    try:
        yield
    except TimeoutError as exc:
        raise ReadTimeoutError(endpoint_url=address, error=exc) from exc
    except ssl.SSLError as exc:
        raise SSLError(endpoint_url=address, error=exc) from exc
    except (OSError, HTTPException) as exc:
        raise ConnectionClosedError(endpoint_url=address, error=exc) from exc


class Incoming:
    """An answer whose body is read as it comes. It is a context manager.

    Args:
        found: the answer.
        address: for errors.
        on_end: called once with whether the connection can be used again.
    """

    def __init__(
        self, response: HTTPResponse, address: str, on_end: Callable[[bool], None]
    ) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        """Names in lower case."""
        self._found = response
        self._left = response.length
        self._address = address
        self._on_end = on_end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._on_end(error[0] is None and self._found.isclosed())

    def readinto(self, buffer: memoryview) -> int:
        """Fill a buffer with the next bytes of the body. Returns their number, which is smaller
        than the buffer only at the end of the body.

        Raises botocore's ConnectionError or HTTPClientError, also when the body ends early.
        """
        with named(self._address):
            count = 0
            while count < len(buffer) and (more := self._found.readinto(buffer[count:])):
                count += more
            if self._left is not None:
                self._left -= count
                if count < len(buffer) and self._left:
                    raise HTTPException("the body ended early")
        return count
