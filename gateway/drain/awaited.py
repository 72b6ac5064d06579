"""Knows the keys at which the store may still be at work on a request that it did not answer in
time.

The completion of a large upload, and a copy, take minutes on some stores. Sent again meanwhile,
such a request makes the store begin again, perhaps without an end. So the drain looks whether the
object is there, and sends nothing else to the key until no such request can be under way any more.
This is kept in memory: a drain that starts looks once, and sends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gateway import clock
from gateway.errors import StoreSlow


class Awaited:
    """The keys that one drain waits for. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, tuple[float, StoreSlow]] = {}
        """When each request was given up, in monotonic seconds, and its error."""

    @contextmanager
    def request(self, key: str, late_seconds: float) -> Iterator[None]:
        """Send a request that may take long to a key, unless an earlier one may be under way.

        Parameters: late_seconds, for which it may be. Raises StoreSlow.
        """
        with self._lock:
            since, error = self._since.get(key, (0.0, None))
            if error is not None and clock.monotonic_seconds() - since < late_seconds:
                raise StoreSlow(str(error)) from error
            self._since.pop(key, None)
        try:
            yield
        except StoreSlow as exc:
            with self._lock:
                self._since[key] = (clock.monotonic_seconds(), exc)
            raise

    def ended(self, key: str) -> None:
        """Note that what was waited for is there, or is not wanted any more."""
        with self._lock:
            self._since.pop(key, None)
