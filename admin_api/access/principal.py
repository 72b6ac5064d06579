"""Principals: tokens and sessions with their roles, those verified before, and failed tries.

Verified ones and failures are in memory: a restart forgets them. A token that was verified may have
ended since, so the memory tells only who has, or had, one.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
from collections import OrderedDict
from enum import IntEnum
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from gateway.common import clock


class Role(IntEnum):
    """What a caller may do. Each role may do everything that the one before it may."""

    VIEWER = 1
    """Reads everything but secrets."""
    OPERATOR = 2
    """Orders work that loses nothing: promote, pin, warm, evict, hold, undelete."""
    ADMIN = 3
    """Deletes, changes policies, exports and tokens."""

    @property
    def word(self) -> str:
        """The role as people write it."""
        return self.name.lower()


class Principal(NamedTuple):
    """A caller whose token or session was verified."""

    name: str
    role: Role
    token_id: str
    """The token, also of a session: it ends when its token is revoked."""


KNOWN_MAX = 4096


class VerifiedSecrets:
    """Secrets that were verified, as digests. Safe to use from several threads."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def has(self, secret: str) -> bool:
        """Return whether a secret was verified."""
        return self._digest(secret) in self._digests

    def add(self, secret: str) -> None:
        """Note that a secret was verified."""
        self._digests[self._digest(secret)] = None
        if len(self._digests) > KNOWN_MAX:
            self._digests.popitem(last=False)

    def _digest(self, secret: str) -> bytes:
        return hashlib.blake2b(secret.encode(errors="replace"), key=self._key).digest()


KEYS_MAX = 4096
"""The most keys whose failures are known. The key that failed first is forgotten first."""


class Limiter:
    """Lets a key fail ``burst`` times at once, and then ``per_second`` times a second."""

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
        parsed_address = ip_address(address)
    except ValueError:
        return address
    return (
        address
        if parsed_address.version == 4
        else str(ip_network((parsed_address.packed, 64), strict=False))
    )
