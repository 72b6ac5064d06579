"""Remembers how much the largest save of the last day wrote within ten minutes.

A save must not wait for evictions, so the evictor keeps that much room. The peaks of each hour are
in a small file. If it is missing, nothing is known, and the watermarks alone count.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from pathlib import Path

from gateway import atomic, clock

log = logging.getLogger("cache")

REPORT = "cache-evictor.json"
"""The file, in ``run`` of the data directory."""
WINDOW_SECONDS = 600.0
HOUR_NS = 3600 * clock.NS
KEPT_NS = 24 * HOUR_NS


class Growth:
    """The growth of what was written to the disk. Parameters: path of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._samples: deque[tuple[float, int]] = deque()
        self._peaks = _read(path)
        """The largest growth of each hour (since 1970), in bytes."""

    @property
    def largest_bytes(self) -> int:
        """The largest growth within ten minutes in the last day. 0: not known."""
        return max(self._peaks.values(), default=0)

    def saw(self, written_bytes: int) -> None:
        """Note how much was written to the disk since any moment, without what was evicted."""
        now = clock.monotonic_seconds()
        self._samples.append((now, written_bytes))
        while self._samples[0][0] < now - WINDOW_SECONDS:
            self._samples.popleft()
        hour = clock.now_ns() // HOUR_NS
        grown_bytes = written_bytes - min(written for _at, written in self._samples)
        # An hour that is further away than a day is over, or the clock went back.
        peaks = {
            at: peak for at, peak in self._peaks.items() if abs(hour - at) * HOUR_NS <= KEPT_NS
        }
        if grown_bytes > 0:
            peaks[hour] = max(peaks.get(hour, 0), grown_bytes)
        if peaks == self._peaks:
            return
        self._peaks = peaks
        text = json.dumps({"largest_growth_bytes": peaks})
        try:
            atomic.replace(self._path, text + "\n", 0o644, durable=False)
        except OSError as exc:
            log.warning("cannot write %s: %s", self._path, exc)


def _read(path: Path) -> dict[int, int]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["largest_growth_bytes"]
        return {int(hour): int(peak) for hour, peak in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
