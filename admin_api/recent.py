"""Facts that take long to get: they are kept for a while, and one thread at a time gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from gateway import clock

T = TypeVar("T")
REST = 9
"""Facts are kept for nine times as long as they took: they take a tenth of the time at most."""


class Recent(Generic[T]):
    """Some facts. Safe to use from several threads.

    Parameters: get, which gets them; keep_seconds, for how long they are kept at least.
    """

    def __init__(self, get: Callable[[], T], keep_seconds: float) -> None:
        self._get = get
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._found: T | None = None
        self._until = float("-inf")

    def value(self) -> T:
        """Return the facts. A caller that comes while they are got waits. Raises what ``get``
        raises."""
        with self._lock:
            if self._found is not None and clock.monotonic_seconds() < self._until:
                return self._found
            return self._renew()

    def ready(self) -> T | None:
        """Return the facts without a wait, or None if there are none yet. If they are old, a thread
        gets new ones."""
        is_old = clock.monotonic_seconds() >= self._until
        if is_old and self._lock.acquire(blocking=False):
            threading.Thread(target=self._in_background, name="recent", daemon=True).start()
        return self._found

    def _in_background(self) -> None:
        try:
            self._renew()
        finally:
            self._lock.release()

    def _renew(self) -> T:
        began = clock.monotonic_seconds()
        found = self._get()
        now = clock.monotonic_seconds()
        self._found, self._until = found, now + max(self._keep_seconds, REST * (now - began))
        return found
