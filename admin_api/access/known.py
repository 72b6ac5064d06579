"""The tokens and sessions that this process has verified. In memory: a restart forgets them.

A token that is known may have ended since. It tells only who has, or had, one.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

KNOWN_MAX = 4096


class Known:
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
