"""Counts the committed transactions of a writer, in memory that the NFS server's C can read.

The memory is a ``struct spw_commits`` (fsal/native/bridge.h). Only the thread that commits writes
it, one aligned word at a time, so that a reader needs no lock.
"""

from __future__ import annotations

from array import array

SIZES = 8
"""Buckets of the sizes: at most 1, 2, 4, … 64 changes, and more."""
DURATIONS = 26
"""Buckets of the durations: at most 1, 2, 4, … 2^24 µs, and more."""
_CHANGES = SIZES
_FIRST = SIZES + 1
_DURATION = _FIRST + DURATIONS
WORDS = _DURATION + 1


class Tally:
    """The counts, from zero."""

    def __init__(self) -> None:
        self._words = array("Q", bytes(8 * WORDS))
        self.commits = 0
        """The number of committed transactions."""

    @property
    def address(self) -> int:
        """The address of the memory, which stays as long as this object does."""
        return self._words.buffer_info()[0]

    def add(self, changes: int, duration_ns: int) -> None:
        """Count a transaction. Parameters: duration_ns, the time that COMMIT took."""
        words = self._words
        size = max(changes - 1, 0).bit_length()
        duration = (max(duration_ns - 1, 0) // 1000).bit_length()
        words[min(size, SIZES - 1)] += 1
        words[_CHANGES] += changes
        words[_FIRST + min(duration, DURATIONS - 1)] += 1
        words[_DURATION] += duration_ns
        self.commits += 1
