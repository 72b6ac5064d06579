"""Usage: how many files and bytes directories and owners have.

Triggers of the database keep the sums (migration 0037) in the transaction of each change, whatever
statement makes it. A file is charged to one directory that has a name of it, and to its owner. The
usage of a directory with all below it is the sum over its directories: no file is read for it.

The size of a file that is open for writing is that of its last close.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import and_, case, delete, exists, func, insert, literal_column, select

from gateway.common.types import InodeKind
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import directory_usage, dirent, inode, owner_usage, trash

_REGULAR: Any = literal_column(f"{InodeKind.REGULAR:d}")
_ZERO: Any = literal_column("0")
_UNSAVED = case(
    (
        and_(inode.c.kind == _REGULAR, inode.c.content_version > inode.c.drained_version),
        inode.c.size,
    ),
    else_=_ZERO,
)
SUMS = ("files", "size", "used", "unsaved")
_COUNTED = (func.count(), *(func.sum(one) for one in (inode.c.size, inode.c.used, _UNSAVED)))
_TREE = sql.LISTED_DIRECTORY_TREE
_OF_TREE = Statement(
    select(
        func.count(),
        *(func.coalesce(func.sum(directory_usage.c[name]), _ZERO) for name in SUMS),
    ).select_from(_TREE.outerjoin(directory_usage, directory_usage.c.directory == _TREE.c.ino))
)
_BELOW = Statement(
    select(dirent.c.name, inode.c.ino)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino))
    .where(dirent.c.parent == b("directory"), sql.IS_DIRECTORY, sql.IS_LISTED)
    .order_by(dirent.c.name)
)
_OWNERS = Statement(
    select(owner_usage.c.uid, owner_usage.c.reserved, *(owner_usage.c[name] for name in SUMS))
    .where(owner_usage.c.files > _ZERO)
    .order_by(owner_usage.c.size.desc(), owner_usage.c.uid)
)
_TRASHED = Statement(select(trash.c.path, trash.c.files, trash.c.size))
_FORGET = (Statement(delete(directory_usage)), Statement(delete(owner_usage)))
_COUNT = tuple(
    Statement(
        insert(table).from_select(
            [*keys, *SUMS],
            select(*of, *_COUNTED).where(inode.c.charged_to.is_not(None)).group_by(*of),
        )
    )
    for table, keys, of in (
        (directory_usage, ("directory",), (inode.c.charged_to,)),
        (owner_usage, ("uid", "reserved"), (inode.c.uid, inode.c.reserved)),
    )
)
_ROWS = Statement(
    insert(directory_usage).from_select(
        ["directory", *SUMS],
        select(inode.c.ino, *[_ZERO] * len(SUMS)).where(
            sql.IS_DIRECTORY, ~exists().where(directory_usage.c.directory == inode.c.ino)
        ),
    )
)
"""Each directory has a row: the triggers only change it."""


class Usage(NamedTuple):
    """What a directory has with all below it."""

    directories: int
    """Below it."""
    files: int
    """All but directories."""
    size: int
    """Bytes of the files."""
    used: int
    """Bytes on the local disk."""
    unsaved: int
    """Bytes of files whose version the bucket does not have."""


class OwnerUsage(NamedTuple):
    """What an owner has."""

    uid: int
    reserved: int
    """1: what the gateway keeps of it: in the trash, and copies of promotions."""
    files: int
    size: int
    used: int
    unsaved: int


class TrashedSums(NamedTuple):
    """A checkpoint in the trash."""

    path: bytes
    """That it had."""
    files: int
    size: int


def of_tree(session: Session, directory: int) -> Usage:
    """Return the usage of a directory with all below it."""
    row = session.one(_OF_TREE, top=directory)
    assert row is not None, "a query that counts has one row"
    directories, *sums = map(int, row)
    return Usage(directories - 1, *sums)


def below(session: Session, directory: int) -> Iterator[tuple[bytes, Usage]]:
    """Yield the usage of each subdirectory, by name."""
    for name, ino in session.all(_BELOW, directory=directory):
        yield bytes(name), of_tree(session, ino)


def owners(session: Session) -> list[OwnerUsage]:
    """Return the usage of all owners, the largest first."""
    return [OwnerUsage(*row) for row in session.all(_OWNERS)]


def trashed(session: Session) -> list[TrashedSums]:
    """Return what is in the trash."""
    return [TrashedSums(bytes(path), files, size) for path, files, size in session.all(_TRASHED)]


def count_again(session: Session) -> None:
    """Count everything again, inside a write transaction: rows were loaded past the triggers."""
    for statement in (*_FORGET, *_COUNT, _ROWS):
        session.run(statement)
