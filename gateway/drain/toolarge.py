"""Knows the objects that the store has refused because they are too large.

A store may say so only when all parts were sent, and would say so each time. So such a file is not
sent again for a day, unless it has become smaller. This is kept in memory: a drain that starts
sends it once.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gateway import clock
from gateway.errors import TooLarge

AGAIN_SECONDS = 86_400.0


class _Refusal(NamedTuple):
    at: float
    """Monotonic seconds."""
    size: int
    error: TooLarge


class Oversize:
    """The objects of one drain that are too large. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: dict[Hashable, _Refusal] = {}

    @contextmanager
    def sending(self, what: Hashable, size: int) -> Iterator[None]:
        """Send an object, unless it was refused with so many bytes. Raises TooLarge.

        Parameters: what, its key, or of a copy both keys.
        """
        now = clock.monotonic_seconds()
        with self._lock:
            before = self._refused.get(what)
        if before is not None and size >= before.size and now - before.at < AGAIN_SECONDS:
            raise TooLarge(str(before.error)) from before.error
        try:
            yield
        except TooLarge as exc:
            with self._lock:
                self._refused[what] = _Refusal(clock.monotonic_seconds(), size, exc)
            raise
        with self._lock:
            self._refused.pop(what, None)
