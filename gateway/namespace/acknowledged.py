"""Says whether a CLOSE must wait until the bucket has the file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from sqlalchemy import and_, select

from gateway.acknowledge import Acknowledge
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import ROOT_INO
from gateway.db.statements import damage, inode, object_
from gateway.namespace.lookup import way_up
from gateway.namespace.residency import HAS_CONTENT, IS_CERTAIN, IS_DRAINED

STORED = Statement(
    select(inode.c.ino)
    .select_from(inode.join(object_, object_.c.ino == inode.c.ino))
    .where(inode.c.ino == b("ino"), and_(*IS_DRAINED, *HAS_CONTENT, *IS_CERTAIN))
)
"""Selects a sealed file if the bucket has its present version, and nothing can change that."""
DAMAGED = Statement(select(damage.c.ino).where(damage.c.ino == b("ino")))


class Answer(IntEnum):
    """The values of ``enum spw_ack``."""

    LOCAL = 0
    """Nothing is asked of the bucket: other path, a name that is not final, or no name."""
    STORED = 1
    """The bucket has the file as it is, at the key of its path."""
    WAITS = 2
    FAILED = 3
    """The file is damaged: it is not uploaded before it is emptied."""


def answer(session: Session, rules: Acknowledge, ino: int) -> Answer:
    """Say what a CLOSE of a file means now. Nothing waits for a file without a name."""
    paths = list(_paths(session, ino))
    if not any(rules.covers(parts) for parts, _inos in paths):
        return Answer.LOCAL
    if session.one(DAMAGED, ino=ino) is not None:
        return Answer.FAILED
    is_stored = session.one(STORED, ino=ino) is not None
    # A rename above has not reached the bucket: the object is at the key of the path before.
    is_moved = any(
        session.one(sql.REKEY, ino=above) is not None for _parts, inos in paths for above in inos
    )
    return Answer.STORED if is_stored and not is_moved else Answer.WAITS


def is_urgent(session: Session, rules: Acknowledge, ino: int) -> bool:
    """Return whether a client may wait for a file: it is drained without time to settle."""
    return any(rules.covers(parts) for parts, _inos in _paths(session, ino))


def _paths(session: Session, ino: int) -> Iterator[tuple[tuple[bytes, ...], tuple[int, ...]]]:
    """Yield the paths of a file, each with the directories that it leads through."""
    for parent, name in session.all(sql.NAMES, ino=ino):
        way = list(way_up(session, parent))
        if (way[-1][1] if way else parent) == ROOT_INO:
            names = (name for _at, _parent, name in reversed(way))
            yield (*names, name), tuple(at for at, _parent, _name in way)
