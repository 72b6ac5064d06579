"""The room on the local disk, and the marks at which files are evicted and writers are slowed."""

from __future__ import annotations

import os
from typing import NamedTuple

from gateway.settings import Settings

BEFORE_SLOW = 0.95
"""The watermark is at most this share of the mark at which writers are slowed."""
MARGIN = 0.02
"""The share of the disk that is evicted at least, so that not every second evicts a little."""
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


class Marks(NamedTuple):
    """The uses of the disk between which files are evicted, in bytes."""

    target: int
    """The use down to which files are evicted."""
    start: int
    """The use above which files are evicted."""


def marks(settings: Settings, room: Room, saved_bytes: int) -> Marks:
    """Return the marks that are in force. Parameters: saved_bytes, the largest save of the last
    day: the next one is as large.

    Room for a save never takes more than half of what the watermark leaves to files. A save as
    large as the disk would otherwise have everything evicted for a day, and still not fit.
    """
    if room.high >= room.total:
        return Marks(room.total, room.total)
    margin = int(MARGIN * room.total)
    low = min(int(settings.cache.evict_to * room.total), room.high - margin)
    saved = max(room.slow - saved_bytes, room.high // 2)
    start = min(room.high, saved)
    is_early = start < room.high and room.used <= room.high
    target = saved - margin if is_early else min(low, saved - margin)
    return Marks(max(0, target), max(0, start))


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
