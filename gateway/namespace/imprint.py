"""Sums up an inode and everything below it, so that a change anywhere in it is seen."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import and_, case, func, select

from gateway.db.compiled import Session, Statement
from gateway.db.statements import IS_DIRTY, TREE, inode

_CHANGE_MODULUS = 67_108_859
_WEIGHT_MODULUS = 8191
"""Primes, so that the sum of ten million inodes fits into 64 bits."""
_NUMBER_MODULUS = 1 << 62

_change = inode.c.change % _CHANGE_MODULUS * (inode.c.ino % _WEIGHT_MODULUS + 1)
IMPRINT = Statement(
    select(
        func.coalesce(func.sum(_change), 0),
        func.count(),
        func.coalesce(func.sum(inode.c.write_open), 0),
        func.coalesce(func.sum(case((and_(*IS_DIRTY), inode.c.used), else_=0)), 0),
    ).select_from(TREE.join(inode, inode.c.ino == TREE.c.ino))
)


class Imprint(NamedTuple):
    """A tree as one transaction sees it."""

    number: int
    """Never 0. Any change of a name, an attribute or a content in the tree gives another number:
    each moves ``change`` of an inode, an open for writing too. An eviction moves none."""
    open_files: int
    """Files that are open for writing."""
    dirty_used: int
    """Bytes on the disk of files that the bucket does not have."""


def of(session: Session, ino: int) -> Imprint:
    """Return the imprint of an inode with everything below it."""
    row = session.one(IMPRINT, top=ino)
    assert row is not None, "an aggregate has one row"
    # PostgreSQL adds up to a Decimal.
    total, inodes, open_files, dirty_used = map(int, row)
    return Imprint(1 + (total * 1_000_003 + inodes) % _NUMBER_MODULUS, open_files, dirty_used)
