"""Reports to people how many threads and descriptors the NFS server uses of those that it may."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from gateway import atomic
from gateway.proc import start_ticks
from gateway.settings import Settings

log = logging.getLogger("spillway.used")

REPORT = "used.json"


class Used:
    """Keeps ``run/used.json``, which is of one process: another one does not begin with it.

    Args:
        settings: those with which the server started.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = settings.run_dir / REPORT
        self._threads_most = settings.nfs.threads
        self._process = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
        self._written: dict[str, Any] = {}

    def take(self, threads: int, descriptors: int, descriptors_most: int) -> None:
        """Take what C counted (``struct spw_used``). 0 stands for a number that is not known."""
        facts = {
            **self._process,
            "threads": {"open": threads or None, "most": self._threads_most},
            "descriptors": {"open": descriptors or None, "most": descriptors_most or None},
        }
        if facts == self._written:
            return
        try:
            self._path.parent.mkdir(exist_ok=True)
            atomic.replace(self._path, json.dumps(facts) + "\n", 0o644, durable=False)
            self._written = facts
        except OSError as exc:
            # A full disk must not keep C from its answer.
            log.warning("cannot write %s: %s", self._path, exc)
