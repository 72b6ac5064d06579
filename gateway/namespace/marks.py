"""Reserves a tree for the gateway, and gives it back to clients, a few inodes in a transaction.

So no other change waits for a large tree. A tree is reserved from the top down: clients change no
name in a reserved directory, and move nothing that is reserved, so what is done stays below the
top. When it is done, only the gateway changes anything in the tree. It is given back from the
bottom up: nothing that is still reserved can leave the tree meanwhile. What a kill cuts off is done
by another call, of either function.

Neither moves ``change``: whether an inode is reserved is no attribute that clients see.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select, update

from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.engine import Database
from gateway.db.statements import dirent, inode
from gateway.types import Kind

AT_ONCE = 256
"""The inodes of a transaction: 1 ms of a processor, and a wait for the disk."""
LOOK_COST = 4
"""A look into a directory takes as long as so many inodes."""

_PAGE = Statement(
    select(dirent.c.cookie, inode.c.ino, inode.c.kind)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino))
    .where(dirent.c.parent == b("parent"), dirent.c.cookie > b("after"))
    .order_by(dirent.c.cookie)
    .limit(b("most"))
)
_inos = given_numbers("inos")
_MARK = Statement(
    update(inode)
    .where(inode.c.ino.in_(select(_inos.c.value)), inode.c.reserved != b("wanted"))
    .values(reserved=b("wanted"))
)


def reserve(database: Database, top: int, on_page: Callable[[], None] = lambda: None) -> None:
    """Have only the gateway change an inode and what is below it. A file that has another name
    elsewhere is reserved there too.

    Parameters: on_page, called after each transaction. Raises TryAgain.
    """
    _sweep(database, top, True, on_page)


def give_back(database: Database, top: int, on_page: Callable[[], None] = lambda: None) -> None:
    """Let clients change an inode and what is below it. Parameters and errors as ``reserve``."""
    directories = _sweep(database, top, False, on_page)
    # Those further down were found later.
    directories.reverse()
    for at in range(0, len(directories), AT_ONCE):
        with database.writing() as session:
            _mark(session, directories[at : at + AT_ONCE], False)
        on_page()


def _sweep(database: Database, top: int, wanted: bool, on_page: Callable[[], None]) -> list[int]:
    """Mark what is below an inode: all of it and the inode itself to reserve it, or else all but
    the directories. Returns the inode and the directories below it."""
    directories = [top]
    at = after = 0
    inos = [top] if wanted else []
    while at < len(directories):
        room = AT_ONCE
        with database.writing() as session:
            while at < len(directories) and room > 0:
                rows = session.all(_PAGE, parent=directories[at], after=after, most=room)
                directories += (ino for _cookie, ino, kind in rows if kind == Kind.DIRECTORY)
                inos += (ino for _cookie, ino, kind in rows if wanted or kind != Kind.DIRECTORY)
                if len(rows) < room:
                    at, after = at + 1, 0
                else:
                    after = rows[-1][0]
                room -= len(rows) + LOOK_COST
            _mark(session, inos, wanted)
        inos = []
        on_page()
    return directories


def _mark(session: Session, inos: list[int], wanted: bool) -> None:
    session.run(_MARK, inos=numbers_of(inos), wanted=int(wanted))
