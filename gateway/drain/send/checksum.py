"""Reads of the local bytes of closed files, and the recorded checksums of objects and sealed files.

A read gives as many bytes as the inode says, or raises an error.

The form of a checksum is ``md5:<hex>`` for what is sent in one request. It is ``md5-parts:<part
bytes>:<hex>``, the MD5 of the parts' MD5s, for what is sent in parts. It is ``crc64nvme:<hex>`` or
``crc32c:<hex>`` of the whole, however it is sent, where the store verifies that checksum.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, NamedTuple

from gateway.common.errors import DataFileError
from gateway.config.settings import DrainSettings
from gateway.drain import statements as own
from gateway.drain.context import Context
from gateway.drain.rows import File
from gateway.namespace.data_files import DataFiles
from gateway.objectstore import checksums
from gateway.objectstore.bodies import FileRange, digest
from gateway.objectstore.checksums import BlockDigests, BodyChecksums, ChecksumKind, value_of
from gateway.objectstore.objects import MIB, part_bytes_of


def open_data(files: DataFiles, file: File) -> BinaryIO:
    """Open a data file. A file that was never written is empty. Raises DataFileError."""
    path = files.path(file.ino, file.epoch)
    try:
        data = path.open("rb", buffering=0)
    except FileNotFoundError:
        if file.size == 0:
            return io.BytesIO()
        raise DataFileError(f"data file {path} is missing, {file.size} bytes expected") from None
    except OSError as exc:
        raise DataFileError(f"data file {path} cannot be opened: {exc.strerror}") from exc
    size = os.fstat(data.fileno()).st_size
    if size != file.size:
        data.close()
        raise DataFileError(f"data file {path} has {size} bytes, {file.size} expected")
    return data


def read(data: BinaryIO, size: int) -> bytes:
    """Read all bytes. Raises DataFileError."""
    pieces, left = [], size
    try:
        # A read that meets a bad sector answers the bytes before it. The next one tells the error.
        while left and (piece := data.read(left)):
            pieces.append(piece)
            left -= len(piece)
    except OSError as exc:
        raise DataFileError(f"data file cannot be read: {exc.strerror}") from exc
    if left:
        raise DataFileError(f"data file ended {left} bytes early")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


WHOLE_BYTES = 16 * MIB
"""Files up to this size, or the size of a part if that is less, are sent in one request, from
memory."""


def is_whole(drain: DrainSettings, size: int) -> bool:
    """Return whether a file is sent in one request."""
    return size <= min(WHOLE_BYTES, drain.part_bytes)


class ChecksumForm(NamedTuple):
    """How a recorded checksum is made of a file's bytes."""

    kind: ChecksumKind
    part_bytes: int | None
    """The size of the parts whose MD5s it is made of, or None for the whole file. A CRC does not
    depend on it."""

    def of(self, parts: Sequence[BodyChecksums]) -> str:
        """Return the checksum of a file from its parts. For the whole file there is one part."""
        value = value_of(parts, self.kind).hex()
        if self.kind is not ChecksumKind.MD5:
            return f"{self.kind}:{value}"
        return (
            f"md5:{parts[0].md5.hex()}"
            if self.part_bytes is None
            else (f"md5-parts:{self.part_bytes}:{value}")
        )


def form_of(checksum: str) -> ChecksumForm:
    """Return how a recorded checksum was made."""
    kind, _, rest = checksum.partition(":")
    if kind == "md5-parts":
        return ChecksumForm(ChecksumKind.MD5, int(rest.partition(":")[0]))
    return ChecksumForm(ChecksumKind(kind), None)


def form_for(kind: ChecksumKind, drain: DrainSettings, size: int) -> ChecksumForm:
    """How the checksum of a file that will be sent is made. Raises ObjectRefused, when no object
    can be so large."""
    return ChecksumForm(
        kind, None if is_whole(drain, size) else part_bytes_of(size, drain.part_bytes)
    )


class Read(NamedTuple):
    """The checksums from one reading of a file."""

    checksum: str
    blocks: BlockDigests


def of_file(
    data: BinaryIO,
    size: int,
    form: ChecksumForm,
    is_stopped: Callable[[], bool],
) -> Read | None:
    """Read a file for its checksum and its block digests. Returns None if told to stop. Raises
    DataFileError."""
    kinds = {form.kind}
    if form.kind is ChecksumKind.MD5 and form.part_bytes is None:
        parts = [digest(read(data, size), kinds)]
        return Read(form.of(parts), blocks_of(size, parts))
    parts = []
    step_bytes = form.part_bytes or WHOLE_BYTES
    for start in range(0, size, step_bytes):
        if is_stopped():
            return None
        section = section_of(data, start, min(step_bytes, size - start), size)
        parts.append(digest(section, kinds))
    return Read(form.of(parts), blocks_of(size, parts))


def section_of(data: BinaryIO, start: int, length: int, size: int) -> FileRange:
    """Return a range of a file.

    Args:
        start, length: those and the size of the file, in bytes.
    """
    return FileRange(data.fileno(), start, length, checksums.block_bytes_of(size))


def blocks_of(size: int, parts: Sequence[BodyChecksums]) -> BlockDigests:
    """Return the block digests of a file from its parts.

    Args:
        size: size of the file in bytes.
    """
    return checksums.joined((part.crcs for part in parts), checksums.block_bytes_of(size))


def blocks_of_file(data: BinaryIO, size: int, block_bytes: int) -> BlockDigests:
    """Read a file for its block digests only. Raises DataFileError."""
    run = checksums.CrcRun(0, block_bytes)
    for piece in section_of(data, 0, size, size) if size else ():
        run.add(piece)
    return checksums.joined([run.crcs], block_bytes)


def of_seal(context: Context, files: Iterable[File]) -> dict[int, str]:
    """Return the checksums of files when they were sealed, by inode, as far as they were
    computed."""
    if not context.settings.drain.checksum_at_seal:
        return {}
    with context.reading() as view:
        rows = {
            file.ino: view.session.one(own.DIGEST, ino=file.ino, version=file.content_version)
            for file in files
        }
    return {ino: row[0] for ino, row in rows.items() if row is not None}


def kinds_for(kind: ChecksumKind, expected: str | None) -> set[ChecksumKind]:
    """The checksums that an upload needs of what it reads.

    Args:
        kind: kind of the store.
        expected: what the file was when it was sealed: that may be older than the choice of the
            kind.
    """
    return {kind} if expected is None else {kind, form_of(expected).kind}


def require_parts(
    expected: str | None, part_bytes: int, parts: Sequence[BodyChecksums], name: str
) -> None:
    """``require`` of a file that was read in parts."""
    if expected is not None:
        require(expected, form_of(expected)._replace(part_bytes=part_bytes).of(parts), name)


def require(expected: str | None, found: str, name: str) -> None:
    """Raise DataFileError when bytes have changed. Only checksums of one form are compared."""
    if expected is None or expected.rpartition(":")[0] != found.rpartition(":")[0]:
        return
    if expected != found:
        raise DataFileError(
            f"the bytes of {name} changed on the disk since they were sealed: check the disk, then "
            "write the file again or delete it"
        )
