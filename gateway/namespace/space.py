"""Answers the questions of C about space, and reports the state of space to people.

C decides at each write (fsal/native/space.c).
"""

from __future__ import annotations

import json
import logging
from enum import IntEnum

from gateway import atomic, checks, clock
from gateway.db.models import ROOT_INO
from gateway.errors import NamespaceError
from gateway.namespace.facade import Namespace
from gateway.settings import Settings

log = logging.getLogger("spillway.space")

REPORT = "space.json"
REPORT_SECONDS = 5.0


class Level(IntEnum):
    """The values of ``enum spw_level``."""

    ROOM = 0
    SLOW = 1
    FULL = 2


_SAID = {
    Level.ROOM: "there is room again: writers continue at full speed",
    Level.SLOW: "room gets short: writers are slowed to what the drain makes free",
    Level.FULL: "no room is left: writers wait and are then told ENOSPC",
}


class Space:
    """Answers C's questions about space.

    Parameters: settings; namespace.
    """

    def __init__(self, settings: Settings, namespace: Namespace) -> None:
        self._namespace = namespace
        self._limit_bytes = settings.space.dirty_limit_bytes
        self._clients = checks.weights(settings.space.client_weights)
        self._directories = checks.weights(settings.space.directory_weights)
        self._path = settings.run_dir / REPORT
        self._level: Level | None = None
        self._since_ns = 0
        self._written_seconds = float("-inf")

    def report(self, headroom_bytes: int, unsealed_bytes: int, level: Level, flows: int) -> int:
        """Take the report that C gives once a second, and write it for people.

        Returns the bytes of sealed files that are not in the bucket. C makes the first call before
        it looks at the disk, because it needs the answer for that. In the first call headroom is 0
        and the level has no meaning.
        """
        dirty_bytes = self._namespace.dirty_bytes() if self._limit_bytes else 0
        if self._level is None:
            self._level, self._since_ns = Level.ROOM, clock.now_ns()
            self._write("unknown", None, dirty_bytes + unsealed_bytes, flows)
            return dirty_bytes
        now_seconds = clock.monotonic_seconds()
        if level != self._level or now_seconds - self._written_seconds >= REPORT_SECONDS:
            if level != self._level:
                log.warning("%s (%d bytes left)", _SAID[level], headroom_bytes)
                self._level, self._since_ns = level, clock.now_ns()
            self._written_seconds = now_seconds
            self._write(level.name.lower(), headroom_bytes, dirty_bytes + unsealed_bytes, flows)
        return dirty_bytes

    def flow(self, ino: int, client: str) -> tuple[int, int]:
        """Return the top directory of a file, and the weight of that directory and the client."""
        weight = self._clients.get(client, 1)
        try:
            top, name = self._namespace.top_of(ino)
        except NamespaceError:
            return ROOT_INO, weight
        return top, weight * self._directories.get(name.decode("utf-8", "surrogateescape"), 1)

    def _write(self, level: str, headroom_bytes: int | None, dirty_bytes: int, flows: int) -> None:
        facts = {
            "level": level,
            "since_ns": self._since_ns,
            "headroom_bytes": headroom_bytes,
            "dirty_limit_bytes": self._limit_bytes,
            "dirty_bytes": dirty_bytes if self._limit_bytes else None,
            "writers": flows,
        }
        try:
            self._path.parent.mkdir(exist_ok=True)
            atomic.replace(self._path, json.dumps(facts) + "\n", 0o644, durable=False)
        except OSError as exc:
            # A full disk must not keep C from its answer.
            log.warning("cannot write %s: %s", self._path, exc)
