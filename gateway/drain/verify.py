"""Comparison of data files with their block digests, or with the checksum of the whole file.

``spillway fsck`` and ``spillway adopt files`` use this module while the namespace is at rest. It
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import and_, func, select

from gateway.common.errors import DataFileError
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.statements import IS_REGULAR, IS_RESIDENT, block_digest, digest, inode, object_
from gateway.drain.rows import File
from gateway.drain.send import checksum, intent
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.checksums import BlockDigests

PAGE = 2048
RANGES_SHOWN = 5

_EXPECTED = func.coalesce(digest.c.checksum, object_.c.checksum)
CHECKSUMS = Statement(
    select(*[inode.c[name] for name in File._fields], _EXPECTED, block_digest.c.ino)
    .select_from(
        inode.outerjoin(
            digest,
            and_(digest.c.ino == inode.c.ino, digest.c.content_version == inode.c.content_version),
        )
        .outerjoin(
            object_,
            and_(
                object_.c.ino == inode.c.ino,
                object_.c.content_version == inode.c.content_version,
                inode.c.drained_version == inode.c.content_version,
            ),
        )
        .outerjoin(block_digest, block_digest.c.ino == object_.c.ino)
    )
    .where(
        IS_REGULAR,
        inode.c.write_open == 0,
        inode.c.nlink > 0,
        IS_RESIDENT,
        inode.c.ino > b("after_ino"),
        _EXPECTED.is_not(None),
    )
    .order_by(inode.c.ino)
    .limit(b("most"))
)
"""Selects files whose bytes are here and were read once. Each has the checksum of that reading, and
its inode if its object has block digests. The object of a snapshot says nothing of the local
bytes."""


def changed(database: Database, files: DataFiles) -> Iterator[tuple[File, str]]:
    """Read every data file with a known checksum. Yields those that differ or are missing, and why.

    Raises TryAgain.
    """
    after = 0
    while True:
        rows = _rows(database, after, PAGE)
        for *cells, expected, with_blocks in rows:
            file = File(*cells)
            try:
                _require(database, files, file, None if with_blocks else expected)
            except DataFileError as exc:
                yield file, str(exc)
            after = file.ino
        if len(rows) < PAGE:
            return


def is_unchanged(database: Database, files: DataFiles, ino: int) -> bool:
    """Return whether the bytes of a data file are those of which a checksum is known. Raises
    TryAgain."""
    for *cells, expected, with_blocks in _rows(database, ino - 1, 1):
        file = File(*cells)
        if file.ino == ino:
            try:
                return _require(database, files, file, None if with_blocks else expected)
            except (DataFileError, ValueError):
                return False  # it differs, or its checksum is of a kind that is not known here
    return False


def _rows(database: Database, after_ino: int, most: int) -> list[Any]:
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        return session.all(CHECKSUMS, after_ino=after_ino, most=most)


def _require(database: Database, files: DataFiles, file: File, expected: str | None) -> bool:
    """Compare a data file.

    Returns whether it could be compared. Raises DataFileError if it differs or is missing.

    Args:
        expected: its checksum, or None if it has block digests.
    """
    if expected is not None:
        return _require_checksum(files, file, expected)
    with database.reader() as connection:
        blocks = intent.of_object(Session(connection, database.dialect), file.ino)
    if blocks is not None:
        _require_blocks(files, file, blocks)
    return blocks is not None


def _require_checksum(files: DataFiles, file: File, expected: str) -> bool:
    form = checksum.form_of(expected)
    with checksum.open_data(files, file) as data:
        checksums = checksum.of_file(data, file.size, form, lambda: False)
    if checksums is not None:
        checksum.require(expected, checksums.checksum, str(files.path(file.ino, file.epoch)))
    return checksums is not None


def _require_blocks(files: DataFiles, file: File, expected: BlockDigests) -> None:
    with checksum.open_data(files, file) as data:
        digests = checksum.blocks_of_file(data, file.size, expected.block_bytes)
    path = files.path(file.ino, file.epoch)
    if len(digests.crcs) != len(expected.crcs):
        raise DataFileError(f"{path}: its block digests are not those of {file.size} bytes")
    if differing := digests.differing(expected):
        shown = ", ".join(
            f"{block.start} to {min(block.stop, file.size) - 1}"
            for block in differing[:RANGES_SHOWN]
        )
        more = len(differing) - RANGES_SHOWN
        raise DataFileError(
            f"bytes {shown}{f' and {more} more ranges' if more > 0 else ''} of {path} are not what "
            "was uploaded: check the disk, then write the file again or delete it"
        )
