"""Sums up an inode and everything below it, so that a change anywhere in it is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, case, func, or_, select, union

from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import IS_DIRECTORY, IS_DIRTY, TREE, dirent, inode

_CHANGE_MODULUS = 67_108_859
_WEIGHT_MODULUS = 8191
"""Primes, so that the sum of ten million inodes fits into 64 bits."""
_NUMBER_MODULUS = 1 << 62

_change = inode.c.change % _CHANGE_MODULUS * (inode.c.ino % _WEIGHT_MODULUS + 1)


def _sums(inos: Any) -> Any:
    return select(
        func.coalesce(func.sum(_change), 0),
        func.count(),
        func.coalesce(func.sum(inode.c.write_open), 0),
        func.coalesce(func.sum(case((and_(*IS_DIRTY), inode.c.used), else_=0)), 0),
    ).select_from(inos.join(inode, inode.c.ino == inos.c.ino))


_HERE = union(
    select(inode.c.ino).where(inode.c.ino == b("top")),
    select(dirent.c.ino).where(dirent.c.parent == b("top")),
).subquery("here")
IMPRINT = Statement(_sums(TREE))
FLAT_IMPRINT = Statement(_sums(_HERE).where(or_(inode.c.ino == b("top"), ~IS_DIRECTORY)))


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
    return _imprint(session.one(IMPRINT, top=ino))


def flat(session: Session, ino: int) -> Imprint:
    """Return the imprint of an inode with what is directly in it, but without the directories
    there."""
    return _imprint(session.one(FLAT_IMPRINT, top=ino))


def _imprint(row: Sequence[Any] | None) -> Imprint:
    assert row is not None, "an aggregate has one row"
    # PostgreSQL adds up to a Decimal.
    total, inodes, open_files, dirty_used = map(int, row)
    return Imprint(1 + (total * 1_000_003 + inodes) % _NUMBER_MODULUS, open_files, dirty_used)
