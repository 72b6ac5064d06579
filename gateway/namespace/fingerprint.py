"""Fingerprints of trees: any change in an inode or below it gives another one.

Each inode adds two terms, which are cubes in two prime fields of its number and ``change``. Unlike
terms that are linear in them, the terms of one change never make up for those of another. The
database computes them: a function of Python in a query would wait for the interpreter's lock at
each inode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, case, func, literal_column, or_, select

from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import HERE, IS_DIRECTORY, IS_DIRTY, TREE, inode
from gateway.namespace.lookup import is_below


class Field(NamedTuple):
    """How an inode becomes a term: the cube, in a prime field, of a number that depends on it."""

    prime: int
    """Less than 2^31, so that a product fits into 64 bits, and the sum of a tree. It is 2 more than
    a multiple of 3, so that each number of the field is the cube of one number only."""
    by_ino: int
    by_change: int
    plus: int


FIELDS = (
    Field(2_147_483_579, 1_103_527_591, 1_299_709_433, 433_494_437),
    Field(2_147_483_549, 1_566_083_941, 1_181_783_497, 715_827_883),
)


def term(ino: Any, change: Any, prime: Any, by_ino: Any, by_change: Any, plus: Any) -> Any:
    """Return the term of an inode, of integers or of columns.

    Args:
        prime, by_ino, by_change, plus: those of a Field.
    """
    base = (ino % prime * by_ino + change % prime * by_change + plus) % prime
    return base * base % prime * base % prime


_IS_LINKED = and_(~IS_DIRECTORY, inode.c.nlink > 1)


def _terms(field: Field) -> Any:
    # Literals: a statement has no limit for them, and both engines take them for 64 bits.
    numbers: list[Any] = [literal_column(str(number)) for number in field]
    return func.coalesce(func.sum(term(inode.c.ino, inode.c.change, *numbers)), 0)


def _sums(inos: Any) -> Any:
    return select(
        *map(_terms, FIELDS),
        func.count(),
        func.coalesce(func.sum(inode.c.write_open), 0),
        func.coalesce(func.sum(case((and_(*IS_DIRTY), inode.c.used), else_=0)), 0),
        func.coalesce(func.sum(inode.c.reserved), 0),
        func.coalesce(func.sum(case((_IS_LINKED, 1), else_=0)), 0),
    ).select_from(inos.join(inode, inode.c.ino == inos.c.ino))


FINGERPRINT = Statement(_sums(TREE))
FLAT_FINGERPRINT = Statement(_sums(HERE).where(or_(inode.c.ino == b("top"), ~IS_DIRECTORY)))
LINKED = Statement(
    select(inode.c.ino).select_from(TREE.join(inode, inode.c.ino == TREE.c.ino)).where(_IS_LINKED)
)


class TreeFingerprint(NamedTuple):
    """A tree as one transaction sees it."""

    number: int
    """Never 0. Any change of a name, an attribute or a content in the tree gives another number:
    each moves ``change`` of an inode, an open for writing too. An eviction moves none."""
    open_files: int
    """Files that are open for writing."""
    dirty_used: int
    """Bytes on the disk of files that the bucket does not have."""
    is_reserved: bool
    """Whether only the gateway changes it."""
    linked_files: int
    """Files that have more than one name."""


class Shared(NamedTuple):
    """A file of a tree that has another name outside of it. A name is a directory and a name."""

    inside: tuple[int, bytes]
    outside: tuple[int, bytes]


def of(session: Session, ino: int) -> TreeFingerprint:
    """Return the fingerprint of an inode with everything below it."""
    return _fingerprint(session.one(FINGERPRINT, top=ino))


def flat(session: Session, ino: int) -> TreeFingerprint:
    """Return the fingerprint of an inode with what is directly in it, but without the directories
    there."""
    return _fingerprint(session.one(FLAT_FINGERPRINT, top=ino))


def _fingerprint(row: Sequence[Any] | None) -> TreeFingerprint:
    assert row is not None, "an aggregate has one row"
    # PostgreSQL adds up to a Decimal.
    *sums, inodes, open_files, dirty_used, reserved, linked_files = map(int, row)
    digest = hashlib.blake2b(repr((sums, inodes)).encode(), digest_size=8).digest()
    # The control socket has room for 63 bits.
    number = int.from_bytes(digest, "big") >> 2
    return TreeFingerprint(1 + number, open_files, dirty_used, reserved == inodes, linked_files)


def shared(session: Session, top: int, own: tuple[int, bytes]) -> Shared | None:
    """Return a file of a tree that has another name outside of it, or None.

    Args:
        own: the name of the tree itself.
    """
    for (ino,) in session.all(LINKED, top=top):
        names = [(parent, bytes(name)) for parent, name in session.all(sql.NAMES, ino=ino)]
        inside = [name for name in names if name == own or is_below(session, name[0], top)]
        for outside in names:
            if outside not in inside:
                return Shared(inside[0], outside)
    return None
