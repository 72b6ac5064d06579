"""Remembers the files that wait for others, and which of them to look at again.

A wait ends when something changes that it is for: a file, whose change the journal names, or a
checkpoint, whose row is compared with what it was. So a file that waits costs nothing but a part of
one query in a poll interval. Each is also looked at now and then whatever happened, because a wait
may end with the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

from sqlalchemy import select

from gateway.db.compiled import Session, Statement, given_numbers, numbers_of
from gateway.db.statements import checkpoint, inode, object_

COMPARED = 2048
"""The things that are waited for of which one look compares the rows."""
LOOKED_AT = 64
"""The files that one look returns although nothing is known to have changed."""

_INOS = given_numbers("inos")
SIGNS = Statement(
    select(
        inode.c.ino,
        inode.c.change,
        inode.c.drained_version,
        inode.c.write_open,
        object_.c.key,
        checkpoint.c.state,
        checkpoint.c.evidence,
    ).select_from(
        _INOS.join(inode, inode.c.ino == _INOS.c.value)
        .outerjoin(object_, object_.c.ino == inode.c.ino)
        .outerjoin(checkpoint, checkpoint.c.ino == inode.c.ino)
    )
)
"""Selects what changes with the end of a wait for an inode."""


class Behind:
    """The files of one drain that wait for others."""

    def __init__(self) -> None:
        self._on: dict[int, int] = {}
        """The inode that each file waits for. What was not looked at for the longest time is
        first."""
        self._files: defaultdict[int, set[int]] = defaultdict(set)
        """The files that wait for each inode."""
        self._signs: dict[int, Any] = {}
        """What was last seen of each inode that is waited for. What was not compared for the
        longest time is first."""

    def __len__(self) -> int:
        return len(self._on)

    def __contains__(self, ino: int) -> bool:
        return ino in self._on

    def clear(self) -> None:
        """Forget all files."""
        self._on.clear()
        self._files.clear()
        self._signs.clear()

    def add(self, session: Session, ino: int, on: int) -> None:
        """Add a file that waits for an inode."""
        self.discard((ino,))
        self._on[ino] = on
        self._files[on].add(ino)
        if on not in self._signs:
            self._signs[on] = _signs(session, [on]).get(on)

    def discard(self, inos: Iterable[int]) -> None:
        """Forget files that wait."""
        for ino in inos:
            on = self._on.pop(ino, None)
            if on is None:
                continue
            self._files[on].discard(ino)
            if not self._files[on]:
                del self._files[on], self._signs[on]

    def of(self, touched: Iterable[int]) -> set[int]:
        """Return the files that wait for inodes that changed."""
        return {ino for on in touched if on in self._files for ino in self._files[on]}

    def due(self, session: Session) -> Collection[int]:
        """Return the files to look at now."""
        compared = list(islice(self._signs, COMPARED))
        found = _signs(session, compared) if compared else {}
        due = set(islice(self._on, LOOKED_AT))
        for on in compared:
            sign = found.get(on)
            if sign != self._signs.pop(on):
                due |= self._files[on]
            self._signs[on] = sign
        return due


def _signs(session: Session, inos: Collection[int]) -> dict[int, Any]:
    return {row[0]: tuple(row) for row in session.all(SIGNS, inos=numbers_of(inos))}
