"""Facts that take long to get: they are kept for a while, and one thread at a time gets them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from gateway import clock
from gateway.errors import SpillwayError

log = logging.getLogger("admin")

T = TypeVar("T")
SHARE = 0.1
"""The most of the time that is spent on getting facts."""
AFTER_SECONDS = 0.2
"""The answer of the request that found facts old comes before a thread gets new ones. Both at once
would share the interpreter, and the answer would take as long as the facts."""


class Recent(Generic[T]):
    """Some facts. Safe to use from several threads.

    Parameters: get, which gets them; keep_seconds, for how long they are kept at least; share, the
    most of the time that is spent on getting them: what takes long is kept for longer;
    late_seconds, for which they are still given after that, while a thread gets new ones. Facts
    that may be late are not kept for longer than that.
    """

    def __init__(
        self,
        get: Callable[[], T],
        keep_seconds: float,
        share: float = SHARE,
        late_seconds: float = 0.0,
    ) -> None:
        self._get = get
        self._keep_seconds = keep_seconds
        self._late_seconds = late_seconds
        self._rest = 1 / share - 1
        self._lock = threading.Lock()
        self._found: T | None = None
        self._until = float("-inf")

    def value(self) -> T:
        """Return the facts. A caller that comes while they are got waits, unless there are some
        that may be late. Raises what ``get`` raises."""
        late = self._late()
        if late < self._late_seconds:
            found = self._given(late)
            assert found is not None, "only facts have a time until which they are kept"
            return found
        with self._lock:
            if self._found is not None and self._late() < 0:
                return self._found
            return self._renew()

    def ready(self) -> T | None:
        """Return the facts without a wait, or None if there are none yet. If they are old, a thread
        gets new ones."""
        return self._given(self._late())

    def _given(self, late: float) -> T | None:
        if late >= 0 and self._lock.acquire(blocking=False):
            thread = threading.Timer(AFTER_SECONDS, self._in_background)
            thread.daemon = True
            thread.start()
        return self._found

    def _in_background(self) -> None:
        try:
            self._renew()
        except SpillwayError as exc:
            log.warning("what is shown is %.0f s late: %s", max(0.0, self._late()), exc)
        finally:
            self._lock.release()

    def _late(self) -> float:
        """Return the seconds since the end of the time for which the facts are kept."""
        return clock.monotonic_seconds() - self._until

    def _renew(self) -> T:
        began = clock.monotonic_seconds()
        found = self._get()
        now = clock.monotonic_seconds()
        kept = max(self._keep_seconds, self._rest * (now - began))
        if self._late_seconds:
            kept = min(kept, self._late_seconds)
        self._found, self._until = found, now + kept
        return found
