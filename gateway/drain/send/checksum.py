"""The checksum of a file's bytes as it is recorded: of an object, and of a file that was sealed.

``md5:<hex>`` of what is sent in one request; ``md5-parts:<part bytes>:<hex>``, the MD5 of the
parts' MD5s, of what is sent in parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

from gateway.drain import statements as own
from gateway.drain.context import Context
from gateway.drain.rows import File
from gateway.drain.send import source
from gateway.errors import DataFileError
from gateway.objectstore.body import Section, digest
from gateway.objectstore.objects import MIB, multipart_etag, part_bytes_of
from gateway.settings import DrainSettings

WHOLE_BYTES = 16 * MIB
"""Files up to this size, or one part, are sent in one request, from memory."""


def is_whole(drain: DrainSettings, size: int) -> bool:
    """Whether a file is sent in one request."""
    return size <= min(WHOLE_BYTES, drain.part_bytes)


def of_whole(md5: bytes) -> str:
    """Of an object that was sent in one request."""
    return f"md5:{md5.hex()}"


def of_parts(part_bytes: int, md5s: Sequence[bytes]) -> str:
    """Of an object that was sent in parts."""
    return f"md5-parts:{part_bytes}:{multipart_etag(md5s).partition('-')[0]}"


def part_bytes_for(drain: DrainSettings, size: int) -> int | None:
    """Size of the parts in which a file will be sent; None: in one request. Raises ObjectRefused,
    when no object can be so large."""
    return None if is_whole(drain, size) else part_bytes_of(size, drain.part_bytes)


def part_bytes_in(checksum: str) -> int | None:
    """Size of the parts that a checksum was made of; None: of the whole."""
    kind, _, rest = checksum.partition(":")
    return int(rest.partition(":")[0]) if kind == "md5-parts" else None


def of_file(
    data: BinaryIO, size: int, part_bytes: int | None, is_stopped: Callable[[], bool]
) -> str | None:
    """Read a file for its checksum. None: told to stop. Raises DataFileError."""
    if part_bytes is None:
        return of_whole(hashlib.md5(source.read(data, size), usedforsecurity=False).digest())
    md5s = []
    for start in range(0, size, part_bytes):
        if is_stopped():
            return None
        md5s.append(digest(Section(data.fileno(), start, min(part_bytes, size - start))).md5)
    return of_parts(part_bytes, md5s)


def of_seal(context: Context, files: Iterable[File]) -> dict[int, str]:
    """By inode, what files were when they were sealed, where it was found out."""
    if not context.settings.drain.checksum_at_seal:
        return {}
    with context.reading() as view:
        rows = {
            file.ino: view.session.one(own.DIGEST, ino=file.ino, version=file.content_version)
            for file in files
        }
    return {ino: row[0] for ino, row in rows.items() if row is not None}


def require(expected: str | None, found: str, name: str) -> None:
    """Raises DataFileError when bytes are not what they were. Compares only what is of one form."""
    if expected is None or expected.rpartition(":")[0] != found.rpartition(":")[0]:
        return
    if expected != found:
        raise DataFileError(
            f"the bytes of {name} changed on the disk since they were sealed: check the disk, then "
            "write the file again or delete it"
        )
