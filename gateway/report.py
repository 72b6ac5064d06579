"""Writes the report of a process for ``spillway status``: a small JSON file, replaced as a whole.

The process never reads the file back. The file holds no secret.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway import atomic, clock
from gateway.proc import start_ticks

log = logging.getLogger("report")

INTERVAL_SECONDS = 1.0


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
        self._thread = threading.Thread(target=self._loop, name="report", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and write the report a last time."""
        self._end.set()
        self._thread.join()
        with suppress(OSError):
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
            try:
                self.write()
            except OSError as exc:
                # A full disk must not end the reports for good.
                log.warning("cannot write %s: %s", self._path, exc.strerror)
