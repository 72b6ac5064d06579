"""Tells whether the store refuses one key or a whole kind of work.

A policy may deny one key. So a kind counts as refused only after the refusals of several keys in a
row, with no job of the kind done between them. Keys that were refused while others worked, or in a
trial, are remembered: another refusal of them says nothing new of the kind.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from gateway.drain.job import Work

IN_A_ROW = 3
KNOWN_MAX = 10_000
"""The number of keys that are remembered."""


class Refusals:
    """The refusals of one drain. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._row: dict[Work, list[int | str]] = {}
        """The refused jobs since the kind last worked, each named by one of its keys."""
        self._known: set[tuple[Work, int | str]] = set()

    def refused(self, kind: Work, claims: Iterable[int | str]) -> bool:
        """Note that a job was refused. Returns True if all of its kind must count as refused."""
        name = _name(claims)
        with self._lock:
            if (kind, name) in self._known:
                return False
            row = self._row.setdefault(kind, [])
            if name not in row:
                row.append(name)
            return len(row) >= IN_A_ROW

    def worked(self, kind: Work, claims: Iterable[int | str]) -> None:
        """Note that a job did its work."""
        with self._lock:
            self._known.discard((kind, _name(claims)))
            self._know(kind)

    def tried(self, kind: Work) -> None:
        """Note that a trial of a refused kind was refused too. The health of the bucket records the
        refusal from now on, and the same keys say nothing more of the kind."""
        with self._lock:
            self._know(kind)

    def _know(self, kind: Work) -> None:
        row = self._row.pop(kind, [])
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        self._known.update((kind, name) for name in row)


def _name(claims: Iterable[int | str]) -> int | str:
    return max((claim for claim in claims if isinstance(claim, str)), default="")
