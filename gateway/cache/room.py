"""The room on the local disk, and the marks at which files are evicted and writers are slowed."""

from __future__ import annotations

import os
from typing import NamedTuple

from gateway.settings import Settings

BEFORE_SLOW = 0.95
"""The watermark is at most this share of the mark at which writers are slowed."""
NEVER = 1.0
"""The value of cache.evict_from with which a full disk evicts nothing."""


class Room(NamedTuple):
    """The disk of the data files. All values are bytes."""

    total: int
    used: int
    """All that writers cannot have, as the NFS server counts it."""
    high: int
    """The use from which on files are evicted."""
    slow: int
    """The use from which on writers are slowed."""

    @property
    def is_short(self) -> bool:
        """Whether bytes that no client waits for should stay in the bucket."""
        return self.used > min(self.high, int(BEFORE_SLOW * self.slow))

    @property
    def is_nearly_slow(self) -> bool:
        """Whether also bytes that clients wait for should wait for an eviction. They would take the
        room from writers, who must not wait for evictions."""
        return self.high < self.slow and self.used > (self.high + self.slow) // 2


def look(settings: Settings) -> Room:
    """Return the room that there is. Raises OSError."""
    found = os.statvfs(settings.files_dir)
    total, used = found.f_blocks, found.f_blocks - found.f_bavail
    total, used = total * found.f_frsize, used * found.f_frsize
    slow = max(0, int(settings.space.slow_from * total) - settings.space.reserve_bytes)
    high = int(min(settings.cache.evict_from * total, BEFORE_SLOW * slow))
    if settings.cache.evict_from >= NEVER:
        high = total
    return Room(total, used, high, slow)
