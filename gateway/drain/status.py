"""Writes the report of the drain for ``spillway status``: a small JSON file, replaced as a whole.

The drain never reads the file back. The file holds no secret.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway import atomic, clock
from gateway.proc import start_ticks

INTERVAL_SECONDS = 1.0


@dataclass
class Counters:
    """Counts the jobs of this run of the drain. Safe to use from several threads."""

    uploads: int = 0
    copies: int = 0
    deletes: int = 0
    checksums: int = 0
    block_digests: int = 0
    """Batches of files that got block digests after their upload."""
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


class StatusFile:
    """Writes the report once a second while it changes.

    Parameters: path; report, which returns everything but pid and time.
    """

    def __init__(self, path: Path, report: Callable[[], dict[str, Any]]) -> None:
        self._path = path
        self._report = report
        self._written: dict[str, Any] | None = None
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="drain-status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and write the report a last time."""
        self._end.set()
        self._thread.join()
        self.write()

    def write(self) -> None:
        """Write the report if it changed."""
        with self._lock:
            report = self._report()
            if report == self._written:
                return
            who = {
                "pid": os.getpid(),
                "start_ticks": start_ticks(os.getpid()),
                "time_ns": clock.now_ns(),
            }
            text = json.dumps({**who, **report}, indent=1)
            atomic.replace(self._path, text + "\n", 0o644, durable=False)
            self._written = report

    def _loop(self) -> None:
        while not self._end.wait(INTERVAL_SECONDS):
            self.write()
