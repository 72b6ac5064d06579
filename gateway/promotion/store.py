"""The rows of promotions, and what promotions and pins protect."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import and_, exists, or_, select

from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement
from gateway.db.models import ROOT_INO
from gateway.db.statements import IS_REGULAR, checkpoint, inode, pin, promotion, promotion_member
from gateway.namespace.lookup import way_up


class State(StrEnum):
    """How far a promotion is."""

    COPYING = "copying"
    DONE = "done"
    FAILED = "failed"
    DEMOTING = "demoting"


_PRESENT = exists().where(
    inode.c.ino == promotion_member.c.ino,
    inode.c.nlink > 0,
    or_(~IS_REGULAR, inode.c.content_version == promotion_member.c.content_version),
)
PROMOTED = Statement(
    select(promotion.c.ino)
    .select_from(promotion.join(checkpoint, checkpoint.c.ino == promotion.c.ino))
    .where(
        or_(promotion.c.state == State.COPYING.value, promotion.c.state == State.DONE.value),
        promotion.c.files == checkpoint.c.files,
        ~exists().where(and_(promotion_member.c.name == promotion.c.name, ~_PRESENT)),
    )
    .distinct()
)
"""Selects checkpoints that have the members that were promoted, in the same versions."""
COPIED = Statement(select(promotion.c.ino).where(promotion.c.state == State.COPYING.value))
PINNED = Statement(select(pin.c.ino))


class Protected(NamedTuple):
    """What policies leave alone."""

    inos: frozenset[int]
    """Checkpoints that were promoted, and did not change since."""
    paths: frozenset[bytes]
    """Paths below the export's root that are pinned, or are being copied."""

    def covers(self, ino: int, path: bytes) -> bool:
        """Return whether a checkpoint is protected: it was promoted, or it is at, below or above
        one of the paths."""
        if ino in self.inos:
            return True
        return any(
            path == one or path.startswith(one + b"/") or one.startswith(path + b"/")
            for one in self.paths
        )


def protected(session: Session) -> Protected:
    """Return what policies leave alone. The session should be in one transaction."""
    inos = {ino for statement in (PINNED, COPIED) for (ino,) in session.all(statement)}
    return Protected(
        frozenset(ino for (ino,) in session.all(PROMOTED)),
        frozenset(path for ino in inos for path in paths_of(session, ino)),
    )


def paths_of(session: Session, ino: int) -> list[bytes]:
    """Return the paths of an inode below the export's root, by all of its names."""
    found = []
    for parent, name in session.all(sql.NAMES, ino=ino):
        steps = list(way_up(session, parent))
        if parent == ROOT_INO or (steps and steps[-1][1] == ROOT_INO):
            above = [bytes(one) for _ino, _parent, one in reversed(steps)]
            found.append(b"/".join([*above, bytes(name)]))
    return found
