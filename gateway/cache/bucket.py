"""Keeps whether the bucket answers, and when it is asked again. The hydrator's lock guards it."""

from __future__ import annotations

import logging
from typing import Any

from gateway import clock
from gateway.errors import StoreError, StoreRefused
from gateway.objectstore.breaker import CircuitBreaker

log = logging.getLogger("cache")

PAUSE_MAX_SECONDS = 5.0
"""Clients wait, so the pauses are shorter than the drain's."""


class Bucket:
    """While the bucket is away, one request at a time tries it, after pauses that double."""

    def __init__(self) -> None:
        self.worked_at = 0.0
        """The time of the last answer (monotonic seconds)."""
        self._breaker = CircuitBreaker(PAUSE_MAX_SECONDS)
        self._is_trying = False
        self._state = "reachable"
        self._error: str | None = None
        self._since_ns = clock.now_ns()

    def admits(self) -> bool:
        """Return whether a request may be sent now."""
        if not self._breaker.failures:
            return True
        return not self._is_trying and self._breaker.pause_seconds() == 0

    def begun(self) -> None:
        """Note that a request that was admitted begins."""
        self._is_trying = self._breaker.failures > 0

    def ended(self) -> None:
        """Note that a request has ended, in whatever way."""
        self._is_trying = False

    def worked(self) -> None:
        """Note that the bucket answered."""
        self.worked_at = clock.monotonic_seconds()
        self._breaker.worked()
        self._enter("reachable", None)

    def failed(self, exc: StoreError) -> None:
        """Note that the bucket did not answer, or refused what it would refuse for any object."""
        refused = isinstance(exc, StoreRefused)
        self._breaker.failed(is_slow=refused)
        self._enter("refused" if refused else "unreachable", str(exc))

    def shown(self) -> dict[str, Any]:
        """Return the state, for people."""
        return {"state": self._state, "error": self._error, "since_ns": self._since_ns}

    def _enter(self, state: str, error: str | None) -> None:
        self._error = error
        if state == self._state:
            return
        self._state, self._since_ns = state, clock.now_ns()
        if error is None:
            log.info("the bucket is reachable again")
        else:
            log.error("the bucket is %s: %s", state, error)
