"""Reports of the NFS server to people: space, shared names, disk errors, threads and descriptors.

- ``Space``: C decides at each write (fsal/native/space.c); here are the answers to its questions,
  and the report.
- ``SharedNames``: clients that share a name, so that the NFS server takes each for the other. The
  server finds them (fsal/native/shared.c). The report outlives a restart of it.
- ``DiskTrouble``: what the server met on the disk of the data files. The last report has the
  counts, so a restart of the server does not begin them at 0.
- ``UsageReport``: how many threads and descriptors the server uses of those that it may.
"""

from __future__ import annotations

import json
import logging
import os
from enum import IntEnum
from typing import Any

from gateway.common import clock, files
from gateway.common.errors import NamespaceError
from gateway.common.process import start_ticks
from gateway.common.text import text_of
from gateway.config import checks
from gateway.config.settings import Settings
from gateway.db.models import ROOT_INO
from gateway.namespace.facade import Namespace

space_log = logging.getLogger("spillway.space")

SPACE_REPORT = "space.json"
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
    """Answers C's questions about space."""

    def __init__(self, settings: Settings, namespace: Namespace) -> None:
        self._namespace = namespace
        self._limit_bytes = settings.space.dirty_limit_bytes
        self._clients = checks.weights(settings.space.client_weights)
        self._directories = checks.weights(settings.space.directory_weights)
        self._path = settings.run_dir / SPACE_REPORT
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
                space_log.warning("%s (%d bytes left)", _SAID[level], headroom_bytes)
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
            files.replace(self._path, json.dumps(facts) + "\n", 0o644, durable=False)
        except OSError as exc:
            # A full disk must not keep C from its answer.
            space_log.warning("cannot write %s: %s", self._path, exc)


clients_log = logging.getLogger("spillway.clients")

CLIENTS_REPORT = "clients.json"
KEPT = 20
"""The names in the report, those that were seen last."""
TOLD_NS = 60 * clock.NS


class SharedNames:
    """Writer of ``run/clients.json``."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.run_dir / CLIENTS_REPORT
        self._shared = self._before()
        self._told_ns: dict[str, int] = {}

    def found(self, name: bytes, addresses: str) -> None:
        """Take in that two addresses have a name by turns.

        Args:
            name: which the clients give themselves.
            addresses: two, with a space between.
        """
        now_ns = clock.now_ns()
        text, both = text_of(name), sorted(addresses.split())
        if now_ns - self._told_ns.get(text, 0) > TOLD_NS:
            clients_log.warning(
                "%s share the name %s, and end each other's lease: give each host its own name",
                " and ".join(both),
                text,
            )
            self._told_ns = {text: now_ns}
        others = [former_entry for former_entry in self._shared if former_entry.get("name") != text]
        entry = {"name": text, "addresses": both, "at_ns": now_ns}
        self._shared = [entry, *others][:KEPT]
        try:
            self._path.parent.mkdir(exist_ok=True)
            report = json.dumps({"shared": self._shared}) + "\n"
            files.replace(self._path, report, 0o644, durable=False)
        except OSError as exc:
            clients_log.warning("cannot write %s: %s", self._path, exc)

    def _before(self) -> list[dict[str, Any]]:
        try:
            shared = json.loads(self._path.read_text(encoding="utf-8"))["shared"]
        except (OSError, ValueError, LookupError, TypeError):
            return []
        return shared if isinstance(shared, list) else []


disk_log = logging.getLogger("spillway.disk")

DISK_REPORT = "disk.json"
TOLD_SECONDS = 60.0


class DiskTrouble:
    """Writer of ``run/disk.json``."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.run_dir / DISK_REPORT
        self._facts = self._before()
        self._refused = 0
        self._told_seconds = float("-inf")

    def lost(self, ino: int, reason: str) -> None:
        """Count a local copy that was given up, because the bucket has the file.

        Args:
            reason: one line.
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
        disk_log.error("no descriptor was left for data files: raise LimitNOFILE of the NFS server")
        self._facts["refused_ns"] = clock.now_ns()
        self._write()

    def _before(self) -> dict[str, Any]:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _write(self) -> None:
        try:
            self._path.parent.mkdir(exist_ok=True)
            files.replace(self._path, json.dumps(self._facts) + "\n", 0o644, durable=False)
        except OSError as exc:
            # The disk has trouble. The server says the same in its log.
            disk_log.warning("cannot write %s: %s", self._path, exc)


used_log = logging.getLogger("spillway.used")

USED_REPORT = "used.json"


class UsageReport:
    """Writer of ``run/used.json``, which is of one process: another one does not begin with it.

    Args:
        settings: those with which the server started.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = settings.run_dir / USED_REPORT
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
            files.replace(self._path, json.dumps(facts) + "\n", 0o644, durable=False)
            self._written = facts
        except OSError as exc:
            # A full disk must not keep C from its answer.
            used_log.warning("cannot write %s: %s", self._path, exc)
