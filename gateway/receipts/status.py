"""Keeps ``/.spillway/status.json``: what would be lost with the gateway now.

It is written when a fact changed, every 5 s at most. Time passes without being a fact: a reader
adds the time since ``time`` to ``seconds_at_risk``.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import exists, func, select

from gateway import clock, state
from gateway.data.layout import DataFiles
from gateway.db.compiled import Statement
from gateway.db.engine import Database
from gateway.db.statements import IS_DIRTY, TRASH_TREE, dirent, inode
from gateway.door.remote import Remote
from gateway.errors import DoorClosed
from gateway.receipts.tree import Refused, Tree
from gateway.receipts.wanted import Document
from gateway.settings import Settings

log = logging.getLogger("checkpoints")

SECONDS = 5.0
NAME = b"status.json"
PASSING = ("time", "seconds_at_risk")

_WAITS = (
    *IS_DIRTY,
    inode.c.nlink > 0,
    # What is only in the trash is not sent.
    exists().where(dirent.c.ino == inode.c.ino, dirent.c.parent.not_in(select(TRASH_TREE.c.ino))),
)
SEALED = Statement(
    select(
        func.count(),
        func.coalesce(func.sum(inode.c.size), 0),
        func.min(func.coalesce(func.nullif(inode.c.drain_after_ns, 0), inode.c.mtime_ns)),
    ).where(*_WAITS, inode.c.write_open == 0)
)
WRITTEN = Statement(
    select(inode.c.ino, inode.c.epoch, inode.c.drained_version, inode.c.btime_ns).where(
        *_WAITS, inode.c.write_open == 1
    )
)


class Status:
    """A duty (gateway.checkpoints.duties).

    Parameters: settings; stop, after which it changes nothing.
    """

    name = "status"

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._database = Database(settings.database_url)
        self._files = DataFiles(settings.files_dir)
        self._tree = Tree(self._database, self._files)
        self._told: dict[str, Any] | None = None
        """The facts that clients see. None: they are not known."""
        self._at = -SECONDS

    def turn(self) -> float:
        """Write the facts if they changed. Raises TryAgain."""
        left = self._at + SECONDS - clock.monotonic_seconds()
        if left > 0 or self._stop.is_set():
            return max(left, 0.0)  # the catalogue changed: this is not asked at each of its rounds
        self._at = clock.monotonic_seconds()
        facts = self._facts()
        if self._told is None:
            self._told = _of(self._tree.text(NAME))
        if _lasting(facts) == _lasting(self._told):
            return SECONDS
        self._told = None
        try:
            with closing(Remote(self._settings)) as door:
                if self._tree.is_ours():
                    text = json.dumps(facts, indent=1).encode() + b"\n"
                    for refused in self._tree.put(door, [((NAME,), Document(text))]):
                        raise refused
        except (FileNotFoundError, ConnectionRefusedError):
            pass  # no server runs, so no client reads
        except (Refused, DoorClosed, OSError) as exc:
            log.warning("%s was not written: %s", NAME.decode(), exc)
        return SECONDS

    def _facts(self) -> dict[str, Any]:
        now_ns = clock.now_ns()
        with self._database.reading() as session:
            sealed = session.one(SEALED)
            written = session.all(WRITTEN)
        assert sealed is not None, "a query without groups has one row"
        files, size, oldest_ns = sealed
        settle_ns = int(self._settings.drain.settle_seconds * clock.NS)
        since = [] if oldest_ns is None else [oldest_ns - settle_ns]
        size = int(size)  # on PostgreSQL it is a Decimal
        for ino, epoch, drained_version, btime_ns in written:
            length, mtime_ns = self._on_disk(ino, epoch)
            size += length
            # Of a file that was there before, it is not known when its first byte was rewritten.
            since.append(mtime_ns if drained_version and mtime_ns else btime_ns)
        since_ns = max(0, min((now_ns, *since)))
        is_waiting = bool(files or written)
        return {
            "format": 1,
            "time": _time(now_ns),
            "files_at_risk": files + len(written),
            "bytes_at_risk": size,
            "oldest_unsaved": _time(since_ns) if is_waiting else None,
            "seconds_at_risk": round((now_ns - since_ns) / clock.NS, 1) if is_waiting else 0.0,
            "drain": self._drain(),
        }

    def _on_disk(self, ino: int, epoch: int) -> tuple[int, int]:
        try:
            found = self._files.path(ino, epoch).stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_size, found.st_mtime_ns

    def _drain(self) -> str:
        """Return ``stopped``, ``starting``, or the drain's state of the bucket (BucketState)."""
        report = state.read(self._settings, state.DRAIN)
        if report is None or not state.alive(report):
            return "stopped"
        bucket = report.get("bucket")
        return str(bucket["state"]) if isinstance(bucket, dict) else "starting"


def _of(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _lasting(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in PASSING}


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / clock.NS, UTC).isoformat(timespec="milliseconds")
