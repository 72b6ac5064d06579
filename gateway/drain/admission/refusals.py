"""Tells a key that the store refuses from a kind of work that it refuses.

A policy may deny one key. So a refusal is of a kind only after those of several keys in a row, with
no job of the kind done between them. Keys that were refused while others worked, or in a trial, are
known from then on: what the store says to them again is no news of the kind.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from gateway.drain.job import Work

IN_A_ROW = 3
KNOWN_MAX = 10_000
"""Keys that are remembered."""


class Refusals:
    """The refusals of one drain. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._row: dict[Work, list[int | str]] = {}
        """Names of refused jobs since the kind last worked; of each job the keys."""
        self._known: set[tuple[Work, int | str]] = set()

    def refused(self, kind: Work, claims: Iterable[int | str]) -> bool:
        """A job was refused. True: take all of its kind as refused."""
        name = _name(claims)
        with self._lock:
            if (kind, name) in self._known:
                return False
            row = self._row.setdefault(kind, [])
            if name not in row:
                row.append(name)
            return len(row) >= IN_A_ROW

    def worked(self, kind: Work, claims: Iterable[int | str]) -> None:
        """A job did its work."""
        with self._lock:
            self._known.discard((kind, _name(claims)))
            self._know(kind)

    def tried(self, kind: Work) -> None:
        """A trial of a refused kind was refused too: the health of the bucket has it from now on,
        and the same keys tell nothing more of the kind."""
        with self._lock:
            self._know(kind)

    def _know(self, kind: Work) -> None:
        row = self._row.pop(kind, [])
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        self._known.update((kind, name) for name in row)


def _name(claims: Iterable[int | str]) -> int | str:
    return max((claim for claim in claims if isinstance(claim, str)), default="")
