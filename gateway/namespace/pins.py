"""Pins: what a person keeps on the local disk and from all policies.

A pin is of an inode, so it follows a rename, and ends with the last name. A pin of a directory is
of everything below it, whatever is written there later.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import bindparam, delete, exists, insert, select

from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import ROOT_INO
from gateway.db.statements import inode, pin
from gateway.namespace.lookup import way_up

_COLUMNS = ("ino", "note", "pinned_by", "pinned_ns")
ANY = Statement(select(pin.c.ino).limit(1))
PIN = Statement(select(pin.c.ino).where(pin.c.ino == b("ino")))
PINS = Statement(select(*(pin.c[name] for name in _COLUMNS)).order_by(pin.c.pinned_ns))
INSERT = Statement(
    insert(pin).from_select(
        _COLUMNS,
        select(*(bindparam(name, type_=pin.c[name].type) for name in _COLUMNS)).where(
            exists().where(inode.c.ino == b("the_ino"), inode.c.nlink > 0)
        ),
    )
)
"""Adds a pin, unless the inode was removed meanwhile."""
DELETE = Statement(delete(pin).where(pin.c.ino == b("the_ino")))


class Pin(NamedTuple):
    """A row of ``pin``."""

    ino: int
    note: str
    pinned_by: str
    """Name of the user."""
    pinned_ns: int


class Pins:
    """Says what is pinned. It remembers directories, so it serves one look at the tables.

    Parameters: session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_any = session.one(ANY) is not None
        self._directories = {ROOT_INO: False}

    def cover(self, ino: int) -> bool:
        """Return whether an inode, or a directory above one of its names, is pinned."""
        if not self._is_any:
            return False
        if self._session.one(PIN, ino=ino) is not None:
            return True
        names = self._session.all(sql.NAMES, ino=ino)
        return any(self._covers_in(parent) for parent, _name in names)

    def _covers_in(self, directory: int) -> bool:
        passed: list[int] = []
        found = False
        at = directory
        while at not in self._directories and not found:
            passed.append(at)
            found = self._session.one(PIN, ino=at) is not None
            step = next(way_up(self._session, at), None)
            if step is None:
                break  # it was removed meanwhile
            at = step[1]
        found = found or self._directories.get(at, False)
        self._directories.update(dict.fromkeys(passed, found))
        return found


def add(session: Session, new: Pin) -> bool:
    """Pin an inode, or replace its pin, in a write transaction. Returns False if it is gone."""
    session.run(DELETE, the_ino=new.ino)
    return session.run(INSERT, the_ino=new.ino, **new._asdict()) > 0


def drop(session: Session, ino: int) -> bool:
    """End a pin, in a write transaction. Returns False if there is none."""
    return session.run(DELETE, the_ino=ino) > 0


def every(session: Session) -> list[Pin]:
    """Return all pins, the oldest first."""
    return [Pin(*row) for row in session.all(PINS)]
