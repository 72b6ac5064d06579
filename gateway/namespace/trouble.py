"""Reports to people what the NFS server met on the disk of the data files.

The last report has the counts, so a restart of the server does not begin them at 0.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from gateway import atomic, clock
from gateway.settings import Settings

log = logging.getLogger("spillway.disk")

REPORT = "disk.json"
TOLD_SECONDS = 60.0


class DiskTrouble:
    """Keeps ``run/disk.json``. Parameters: settings."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.run_dir / REPORT
        self._facts = self._before()
        self._refused = 0
        self._told_seconds = float("-inf")

    def lost(self, ino: int, reason: str) -> None:
        """Count a local copy that was given up, because the bucket has the file.

        Parameters: reason, one line.
        """
        self._facts["lost_copies"] = self._facts.get("lost_copies", 0) + 1
        self._facts["last_lost"] = {"ino": ino, "reason": reason, "at_ns": clock.now_ns()}
        self._write()

    def refused(self, opens: int) -> None:
        """Take the number of opens of data files that found no descriptor, since the start."""
        if opens == self._refused:
            return
        self._refused = opens
        now_seconds = clock.monotonic_seconds()
        if now_seconds - self._told_seconds < TOLD_SECONDS:
            return
        self._told_seconds = now_seconds
        log.error("no descriptor was left for data files: raise LimitNOFILE of the NFS server")
        self._facts["refused_ns"] = clock.now_ns()
        self._write()

    def _before(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self) -> None:
        try:
            self._path.parent.mkdir(exist_ok=True)
            atomic.replace(self._path, json.dumps(self._facts) + "\n", 0o644, durable=False)
        except OSError as exc:
            # The disk has trouble. The server says the same in its log.
            log.warning("cannot write %s: %s", self._path, exc)
