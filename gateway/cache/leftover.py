"""Finds blocks on the disk that no durable map names, so that the evictor sees them.

A hydrator that is killed before it has written the first map of a file leaves such blocks. They are
verified when a client reads the file. If none does, only the map makes the file a candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sqlalchemy import exists, insert, select

from gateway.data.layout import DataFiles
from gateway.db.compiled import Session, Statement, given, rows_of
from gateway.db.engine import Database
from gateway.db.statements import IS_ABSENT, block_digest, inode, presence

PAGE = 1024
NO_BLOCKS = b"\0"

_FILES = given("files", ino=int, epoch=int)
_UNNAMED = Statement(
    select(inode.c.ino, inode.c.epoch, block_digest.c.block_bytes)
    .select_from(
        _FILES.join(inode, inode.c.ino == _FILES.c.ino).join(
            block_digest, block_digest.c.ino == inode.c.ino
        )
    )
    .where(
        IS_ABSENT,
        inode.c.epoch == _FILES.c.epoch,
        ~exists().where(presence.c.ino == inode.c.ino),
    )
)
_INSERT = Statement(insert(presence))


def record(database: Database, files: DataFiles) -> int:
    """Give absent files with bytes on the disk and without a durable map a map without blocks.

    No byte is touched: the hydrator may be writing into such a file, and it replaces the map by its
    own. Returns the number of these files. Raises NamespaceError, OSError.
    """
    found = 0
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        for page in _pages(files):
            if not session.all(_UNNAMED, files=page):
                continue
            with database.transaction(connection):
                # A map that was written since is not replaced.
                rows = [
                    {"ino": ino, "epoch": epoch, "block_bytes": length, "blocks": NO_BLOCKS}
                    for ino, epoch, length in session.all(_UNNAMED, files=page)
                ]
                session.run_each(_INSERT, rows)
            found += len(rows)
    return found


def _pages(files: DataFiles) -> Iterator[str]:
    walked = files.walk()
    while page := list(islice(walked, PAGE)):
        yield rows_of(page)
