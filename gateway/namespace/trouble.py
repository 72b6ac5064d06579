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


class DiskTrouble:
    """Keeps ``run/disk.json``. Parameters: settings."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.run_dir / REPORT
        self._lost_copies = self._before()

    def lost(self, ino: int, reason: str) -> None:
        """Count a local copy that was given up, because the bucket has the file.

        Parameters: reason, one line.
        """
        self._lost_copies += 1
        self._write(
            {
                "lost_copies": self._lost_copies,
                "last_lost": {"ino": ino, "reason": reason, "at_ns": clock.now_ns()},
            }
        )

    def _before(self) -> int:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))["lost_copies"]
        except (OSError, ValueError, LookupError, TypeError):
            return 0
        return found if isinstance(found, int) else 0

    def _write(self, facts: dict[str, Any]) -> None:
        try:
            self._path.parent.mkdir(exist_ok=True)
            atomic.replace(self._path, json.dumps(facts) + "\n", 0o644, durable=False)
        except OSError as exc:
            # The disk has trouble. The server says the same in its log.
            log.warning("cannot write %s: %s", self._path, exc)
