"""What every job of the drain works with, and its two ways into the database.

The drain writes in short transactions: SQLite has one writer, and the NFS server's commits wait
for ours. No request to the store is ever made inside a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway import clock, failpoints
from gateway.data.layout import DataFiles
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.drain import statements as own
from gateway.drain.paths import Holds, Paths
from gateway.drain.rows import File
from gateway.errors import LeaseLost
from gateway.failpoints import DRAIN_COMMIT
from gateway.settings import Settings

if TYPE_CHECKING:
    # boto3 takes half a second to import.
    from gateway.drain.messages import Result, Small
    from gateway.objectstore.s3 import S3Store

COPIES = 8
"""Inside the bucket at a time: a copy is all waiting for the store."""
LATE_FACTOR = 3
"""Times the time-out of an answer: how long a request that we gave up may still be under way."""
_BEGIN = {"sqlite": "BEGIN", "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"}


class Sends(Protocol):
    """What sends small objects."""

    def send(self, objects: Sequence[Small]) -> list[Result | None]:
        """Send a batch; what became of each object, None: it was not sent."""


class View(NamedTuple):
    """One transaction."""

    session: Session
    paths: Paths
    late_ns: int
    """A request that was given up does not arrive any more after so long."""

    def add_tombstone(
        self,
        key: str,
        ino: int,
        content_version: int,
        etag: str | None = None,
        generation: int | None = None,
    ) -> None:
        """Record that what an inode has at a key, up to a version, is garbage, unless an object
        row names the key.

        Parameters: generation, of the inode, 0: not known; None: that of its row, if there is one.
        """
        if generation is None:
            row = self.session.one(own.FILE, ino=ino)
            generation = 0 if row is None else File(*row).generation
        self.add_tombstones([sql.Tombstone(key, ino, content_version, etag, generation)])

    def add_tombstones(self, tombstones: Sequence[sql.Tombstone]) -> None:
        """``add_tombstone`` of many, each for another inode or key."""
        if not tombstones:
            return
        now_ns = clock.now_ns()
        wanted = rows_of([(*tombstone, now_ns) for tombstone in tombstones])
        rows = self.session.all(own.TOMBSTONES_BEFORE, tombstones=wanted)
        if rows:
            before = {(row[0], row[1]): sql.Tombstone(*row) for row in rows}
            merged = [one.with_earlier(before.get(one[:2], one)) for one in tombstones]
            wanted = rows_of([(*tombstone, now_ns) for tombstone in merged])
            self.session.run(own.TOMBSTONES_DELETE, tombstones=wanted)
        self.session.run(own.TOMBSTONES_INSERT, tombstones=wanted)

    @property
    def volume(self) -> str:
        """What tells the objects of this namespace from those of any other: its id, in hex."""
        row = self.session.one(sql.VOLUME)
        assert row is not None, "the volume row is missing"
        return bytes(row[0]).hex()

    def doubt_later(self, key: str, ino: int) -> None:
        """Record that a request for a key was given up: the store may still carry it out, after
        later ones, so the key is looked at when that is over. Parameters: ino, of its bytes."""
        row = self.session.one(own.DOUBT, key=key)
        if row is not None and row[1] == 0:
            # It is looked at now, and then once more.
            return
        now_ns = clock.now_ns()
        self.session.run(own.DOUBT_DELETE, the_key=key)
        self.session.run(
            own.DOUBT_INSERT, key=key, ino=ino, noted_ns=now_ns, look_ns=now_ns + self.late_ns
        )

    def note(self, inos: Iterable[int], what: int) -> None:
        """Add inodes to the journal. Parameters: what, flags of ``gateway.db.journal``."""
        journal.note(self.session, dict.fromkeys(inos, what))

    def note_rekey(self, ino: int) -> None:
        """Record that the object of an inode may have the wrong key."""
        if self.session.one(sql.REKEY, ino=ino) is None:
            self.session.run(sql.REKEY_INSERT, ino=ino, renamed_ns=clock.now_ns())


@dataclass(frozen=True)
class Context:
    """The parts of one drain.

    Parameters: settings, database, store; stop, set when the drain must end; on_progress, called
    with a key, bytes sent and bytes in all; lease, under which all of this
    happens (None: none is needed).
    """

    settings: Settings
    database: Database
    store: S3Store
    stop: threading.Event = field(default_factory=threading.Event)
    on_progress: Callable[[str, int, int], None] = lambda _key, _done, _total: None
    lease: int | None = None
    senders: Sends | None = None
    """What sends small objects, in a drain."""
    copiers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(COPIES))
    """Of the copies of all moves."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Of the threads that write, one after the other."""

    @property
    def files(self) -> DataFiles:
        return DataFiles(self.settings.files_dir)

    @property
    def prefix(self) -> str:
        return self.settings.bucket.prefix

    @contextmanager
    def reading(self) -> Iterator[View]:
        """A snapshot: all reads inside see one moment. Raises TryAgain, LeaseLost."""
        with self.database.reader() as connection:
            connection.execute(_BEGIN[self.database.dialect.name])
            try:
                yield self._view(connection)
            finally:
                if self.database.backend.usable(connection):
                    connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[View]:
        """A write transaction, durable when this returns. Raises TryAgain, NoSpace, LeaseLost.

        The lease is looked for inside: a takeover comes before or after the transaction.
        """
        # Before a connection is taken: threads that wait would use up the connections of readers.
        with self.turn, self.database.reader() as connection:
            with self.database.transaction(connection):
                yield self._view(connection)
                failpoints.hit_counted(DRAIN_COMMIT.format(when="before"))
            failpoints.hit_counted(DRAIN_COMMIT.format(when="after"))

    def note_doubts(self, names: Iterable[int | str]) -> None:
        """Record that it is not known how the work on the keys among these names ended. Each is
        looked at (tidy/doubt.py). Raises NamespaceError, LeaseLost."""
        inos = [name for name in names if isinstance(name, int)]
        with self.writing() as view:
            for key in (name for name in names if isinstance(name, str)):
                view.session.run(own.DOUBT_DELETE, the_key=key)
                view.session.run(
                    own.DOUBT_INSERT,
                    key=key,
                    ino=inos[0] if inos else 0,
                    noted_ns=clock.now_ns(),
                    look_ns=0,
                )

    def _view(self, connection: object) -> View:
        session = Session(connection, self.database.dialect)
        lease = self.lease
        if lease is not None and session.one(own.LEASE, lease=lease) is None:
            raise LeaseLost("another drain has taken this one's work over")
        late_ns = int(LATE_FACTOR * self.settings.bucket.read_timeout_seconds * clock.NS)
        return View(session, Paths(session, self._holds, self.prefix), late_ns)

    @cached_property
    def _holds(self) -> Holds:
        return Holds(self.settings.drain.hold_patterns)
