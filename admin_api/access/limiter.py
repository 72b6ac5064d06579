"""Counts failures by key, and says when a key must wait. In memory: a restart forgets them."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from ipaddress import ip_address, ip_network

from gateway import clock

KEYS_MAX = 4096
"""The most keys whose failures are known. The key that failed first is forgotten first."""


class Limiter:
    """Lets a key fail ``burst`` times at once, and then ``per_second`` times a second.

    Parameters: burst; per_second.
    """

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Failures that count, and when that was, by key."""
        self._lock = threading.Lock()

    def wait_seconds(self, key: str) -> int:
        """Return for how long a key must wait, or 0."""
        with self._lock:
            over = self._level(key) + 1 - self._burst
        return math.ceil(over / self._per_second) if over > 0 else 0

    def failed(self, key: str) -> bool:
        """Count a failure. Returns whether the key was allowed to fail."""
        with self._lock:
            level = self._level(key)
            allowed = level + 1 <= self._burst
            if allowed:
                level += 1
            self._levels[key] = (level, clock.monotonic_seconds())
            self._levels.move_to_end(key)
            if len(self._levels) > KEYS_MAX:
                self._levels.popitem(last=False)
        return allowed

    def _level(self, key: str) -> float:
        level, at = self._levels.get(key, (0.0, 0.0))
        return max(0.0, level - (clock.monotonic_seconds() - at) * self._per_second)


def origin_of(address: str) -> str:
    """Return the name of the host of an address: with IPv6 it has a whole network."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ip_network((found.packed, 64), strict=False))
