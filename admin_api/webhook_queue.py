"""Queue of webhooks: events that receivers have not taken yet, and what was seen of the gateway.

Both are in ``webhooks.db`` of the data directory, a small database of SQLite. Events and what they
were found by are written in one transaction, so a process that is killed neither loses an event nor
finds it once more. No other part of the gateway needs the file.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gateway.common import clock
from gateway.common.errors import UserError

log = logging.getLogger("admin.webhooks")

EVENTS_MAX = 10_000
"""The events that wait for one receiver, half a kilobyte each. The oldest are dropped then."""
BUSY_SECONDS = 10.0
VERSION = 1
_SCHEMA = """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    receiver TEXT NOT NULL,
    id TEXT NOT NULL,
    at_ns INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX ix_event_receiver ON event (receiver, seq);
CREATE TABLE dropped (receiver TEXT PRIMARY KEY, events INTEGER NOT NULL, last_ns INTEGER NOT NULL);
CREATE TABLE seen (kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (kind, name)) WITHOUT ROWID;
"""


class QueuedEvent(NamedTuple):
    """An event that waits for a receiver."""

    seq: int
    id: str
    at_ns: int
    body: bytes
    """What is sent."""


class QueueStanding(NamedTuple):
    """How far the delivery to one receiver is."""

    waiting: int = 0
    oldest_ns: int | None = None
    """When the first event that waits happened."""
    dropped: int = 0
    """The events that were dropped, since the queue was made."""
    dropped_ns: int | None = None
    """When the last was dropped."""


class QueueChange:
    """A write transaction of the queue."""

    def __init__(self, connection: sqlite3.Connection, events_max: int) -> None:
        self._connection = connection
        self._events_max = events_max

    def put(self, receiver: str, id: str, body: bytes) -> None:
        """Add an event for a receiver, and drop the oldest if there are too many."""
        run = self._connection.execute
        now_ns = clock.now_ns()
        run(
            "INSERT INTO event (receiver, id, at_ns, body) VALUES (?, ?, ?, ?)",
            (receiver, id, now_ns, body),
        )
        [[count]] = run("SELECT count(*) FROM event WHERE receiver = ?", (receiver,))
        over = count - self._events_max
        if over > 0:
            run(
                "DELETE FROM event WHERE seq IN "
                "(SELECT seq FROM event WHERE receiver = ? ORDER BY seq LIMIT ?)",
                (receiver, over),
            )
            run(
                "INSERT INTO dropped VALUES (?, ?, ?) ON CONFLICT (receiver) DO UPDATE "
                "SET events = events + excluded.events, last_ns = excluded.last_ns",
                (receiver, over, now_ns),
            )

    def see(self, kind: str, name: str, value: str) -> None:
        """Remember what was seen."""
        self._connection.execute(
            "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (kind, name, value)
        )

    def forget(self, kind: str, name: str) -> None:
        """Forget what is not there any more."""
        self._connection.execute("DELETE FROM seen WHERE kind = ? AND name = ?", (kind, name))


class WebhookQueue:
    """The queue of one gateway. Safe to use from several threads.

    Args:
        path: of its file, which is made if it is missing.
        events_max: the events that may wait for a receiver.

    Raises:
        UserError: the file cannot be used.
    """

    def __init__(self, path: Path, events_max: int = EVENTS_MAX) -> None:
        self._events_max = events_max
        self._lock = threading.Lock()
        try:
            self._connection = self._opened(path)
        except sqlite3.Error as exc:
            raise UserError(
                f"cannot use {path}, which has the events for webhooks: {exc}: mend its disk, or "
                "move it away: the events in it are then lost, and nothing else depends on it"
            ) from None

    def _opened(self, path: Path) -> sqlite3.Connection:
        path.touch(0o600)
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            [[version]] = connection.execute("PRAGMA user_version")
            if version == 0:
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            elif version != VERSION:
                raise sqlite3.DatabaseError("another release of Spillway wrote it")
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def changing(self) -> Iterator[QueueChange]:
        """Open a write transaction. It is durable on return. Raises sqlite3.Error."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield QueueChange(self._connection, self._events_max)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def seen(self, kind: str) -> dict[str, str]:
        """Return what was remembered. Raises sqlite3.Error."""
        with self._lock:
            rows = self._connection.execute("SELECT name, value FROM seen WHERE kind = ?", (kind,))
            return dict(rows.fetchall())

    def first(self, receiver: str) -> QueuedEvent | None:
        """Return the event that is next for a receiver. Raises sqlite3.Error."""
        with self._lock:
            row = self._connection.execute(
                "SELECT seq, id, at_ns, body FROM event WHERE receiver = ? ORDER BY seq LIMIT 1",
                (receiver,),
            ).fetchone()
        return None if row is None else QueuedEvent(*row)

    def done(self, event: QueuedEvent) -> None:
        """Remove an event that its receiver has. Raises sqlite3.Error."""
        with self._lock:
            self._connection.execute("DELETE FROM event WHERE seq = ?", (event.seq,))

    def standing(self, receiver: str) -> QueueStanding:
        """Return how far a receiver is. Raises sqlite3.Error."""
        with self._lock:
            run = self._connection.execute
            waiting, oldest_ns = run(
                "SELECT count(*), min(at_ns) FROM event WHERE receiver = ?", (receiver,)
            ).fetchone()
            row = run(
                "SELECT events, last_ns FROM dropped WHERE receiver = ?", (receiver,)
            ).fetchone()
        return QueueStanding(waiting, oldest_ns, *(row or (0, None)))

    def keep_only(self, receivers: Sequence[str]) -> None:
        """Drop what waits for receivers that the configuration does not have any more. Raises
        sqlite3.Error."""
        marks = ", ".join("?" * len(receivers))
        with self._lock:
            for table in ("event", "dropped"):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE receiver NOT IN ({marks})", tuple(receivers)
                )
