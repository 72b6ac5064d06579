"""Computes the recorded checksums of objects and of sealed files.

The form is ``md5:<hex>`` for what is sent in one request. It is ``md5-parts:<part bytes>:<hex>``,
the MD5 of the parts' MD5s, for what is sent in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, NamedTuple

from gateway.drain import statements as own
from gateway.drain.context import Context
from gateway.drain.rows import File
from gateway.drain.send import source
from gateway.errors import DataFileError
from gateway.objectstore import crc64
from gateway.objectstore.body import Section, digest
from gateway.objectstore.crc64 import BlockDigests
from gateway.objectstore.objects import MIB, Digests, multipart_etag, part_bytes_of
from gateway.settings import DrainSettings

WHOLE_BYTES = 16 * MIB
"""Files up to this size, or the size of a part if that is less, are sent in one request, from
memory."""


def is_whole(drain: DrainSettings, size: int) -> bool:
    """Return whether a file is sent in one request."""
    return size <= min(WHOLE_BYTES, drain.part_bytes)


def of_whole(md5: bytes) -> str:
    """Return the checksum of an object that was sent in one request."""
    return f"md5:{md5.hex()}"


def of_parts(part_bytes: int, md5s: Sequence[bytes]) -> str:
    """Return the checksum of an object that was sent in parts."""
    return f"md5-parts:{part_bytes}:{multipart_etag(md5s).partition('-')[0]}"


def part_bytes_for(drain: DrainSettings, size: int) -> int | None:
    """Return the size of the parts in which a file will be sent, or None for one request. Raises
    ObjectRefused when no object can be so large."""
    return None if is_whole(drain, size) else part_bytes_of(size, drain.part_bytes)


def part_bytes_in(checksum: str) -> int | None:
    """Return the size of the parts that a checksum was made of, or None for the whole file."""
    kind, _, rest = checksum.partition(":")
    return int(rest.partition(":")[0]) if kind == "md5-parts" else None


class Read(NamedTuple):
    """The checksums from one reading of a file."""

    checksum: str
    blocks: BlockDigests


def of_file(
    data: BinaryIO,
    size: int,
    part_bytes: int | None,
    is_stopped: Callable[[], bool],
    on_read: Callable[[int], object] = lambda _bytes: None,
) -> Read | None:
    """Read a file for its checksum and its block digests. Returns None if told to stop.

    Parameters: part_bytes, the size of the parts that the checksum is made of, or None for the
    whole file; on_read, called with the bytes of each piece that was read. Raises DataFileError.
    """
    if part_bytes is None:
        found = digest(source.read(data, size), on_read=on_read)
        return Read(of_whole(found.md5), blocks_of(size, [found]))
    parts = []
    for start in range(0, size, part_bytes):
        if is_stopped():
            return None
        section = section_of(data, start, min(part_bytes, size - start), size)
        parts.append(digest(section, on_read=on_read))
    return Read(of_parts(part_bytes, [part.md5 for part in parts]), blocks_of(size, parts))


def section_of(data: BinaryIO, start: int, length: int, size: int) -> Section:
    """Return a range of a file. Parameters: start, length and the size of the file, in bytes."""
    return Section(data.fileno(), start, length, crc64.block_bytes_of(size))


def blocks_of(size: int, parts: Sequence[Digests]) -> BlockDigests:
    """Return the block digests of a file from its parts. Parameters: size, of the file in bytes."""
    return crc64.joined((part.crcs for part in parts), crc64.block_bytes_of(size))


def blocks_of_file(data: BinaryIO, size: int, block_bytes: int) -> BlockDigests:
    """Read a file for its block digests only. Raises DataFileError."""
    run = crc64.Run(0, block_bytes)
    for piece in section_of(data, 0, size, size) if size else ():
        run.add(piece)
    return crc64.joined([run.crcs], block_bytes)


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


def require(expected: str | None, found: str, name: str) -> None:
    """Raise DataFileError when bytes have changed. Only checksums of one form are compared."""
    if expected is None or expected.rpartition(":")[0] != found.rpartition(":")[0]:
        return
    if expected != found:
        raise DataFileError(
            f"the bytes of {name} changed on the disk since they were sealed: check the disk, then "
            "write the file again or delete it"
        )
