"""Counts what the drain does, for its report (run/drain.json)."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from gateway import clock

RATE_SECONDS = 60.0


@dataclass
class Counters:
    """Counts the jobs of this run of the drain. Safe to use from several threads."""

    uploads: int = 0
    copies: int = 0
    deletes: int = 0
    transitions: int = 0
    checksums: int = 0
    snapshots: int = 0
    snapshots_missed: int = 0
    """Files that were open for long and never still enough for a snapshot."""
    retries: int = 0
    """Jobs that failed and will be tried again."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def count(self, name: str, more: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            setattr(self, name, getattr(self, name) + more)


class Rate:
    """The bytes per second of the last minute."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def of(self, total_bytes: int) -> int:
        """Return the rate by now. Parameters: total_bytes, a count that only grows."""
        now = clock.monotonic_seconds()
        self._points.append((now, total_bytes))
        while now - self._points[0][0] > RATE_SECONDS:
            self._points.popleft()
        since, before = self._points[0]
        return int((total_bytes - before) / (now - since)) if now > since else 0


class SentBytes:
    """The bytes that each running upload has sent. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[str, tuple[int, int]] = {}

    def moved(self, key: str, done_bytes: int, total_bytes: int) -> None:
        with self._lock:
            self._uploads[key] = (done_bytes, total_bytes)

    def ended(self, key: str) -> None:
        with self._lock:
            self._uploads.pop(key, None)

    def shown(self) -> list[dict[str, Any]]:
        with self._lock:
            uploads = sorted(self._uploads.items())
        return [{"key": key, "done_bytes": d, "total_bytes": t} for key, (d, t) in uploads]
