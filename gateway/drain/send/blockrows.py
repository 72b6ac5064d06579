"""Reads and writes the rows of block digests.

Each row belongs to the row of its object: replacing the object deletes the digests of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import insert, select

from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import block_digest
from gateway.objectstore.crc64 import BlockDigests

BLOCKS = Statement(
    select(block_digest.c.block_bytes, block_digest.c.crcs).where(block_digest.c.ino == b("ino"))
)
BLOCKS_INSERT = Statement(insert(block_digest))


def insert_many(session: Session, found: Iterable[tuple[int, BlockDigests]]) -> None:
    """Record digests, each with the inode of an object that has none yet."""
    session.run_each(BLOCKS_INSERT, [{"ino": ino, **blocks._asdict()} for ino, blocks in found])


def of_object(session: Session, ino: int) -> BlockDigests | None:
    """Return the block digests of the object of an inode, or None."""
    row = session.one(BLOCKS, ino=ino)
    return None if row is None else BlockDigests(row[0], bytes(row[1]))
