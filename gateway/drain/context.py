"""Gives the jobs of the drain what they work with, and their two ways into the database.

The drain writes in short transactions: SQLite has one writer, so the commits of the NFS server wait
for the drain's. No request to the store is ever made inside a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway import clock, failpoints
from gateway.acknowledge import Acknowledge
from gateway.data.layout import DataFiles
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.drain import statements as own
from gateway.drain.awaited import Awaited
from gateway.drain.paths import Paths
from gateway.drain.precedence import Precedence
from gateway.drain.rows import File
from gateway.drain.toolarge import Oversize
from gateway.errors import LeaseLost
from gateway.failpoints import DRAIN_COMMIT
from gateway.holds import Holds
from gateway.settings import Settings

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second to import.
    from gateway.drain.messages import Result, Small
    from gateway.objectstore.s3 import S3Store

COPIES = 8
"""The number of copies inside the bucket at a time. A copy only waits for the store."""


class Sends(Protocol):
    """A sender of small objects."""

    def send(self, objects: Sequence[Small]) -> list[Result | None]:
        """Send a batch. Returns the result of each object, or None if it was not sent."""


class View(NamedTuple):
    """A transaction, and what jobs do in it."""

    session: Session
    paths: Paths
    precedence: Precedence
    late_ns: int
    """The time after which a request that was given up can no longer reach the store."""

    def add_tombstone(
        self,
        key: str,
        ino: int,
        content_version: int,
        etag: str | None = None,
        generation: int | None = None,
    ) -> None:
        """Record that what an inode has at a key, up to a version, is garbage, unless an object row
        names the key.

        Parameters: generation, of the inode: 0 if it is not known, None to take it from the inode's
        row, if there is one.
        """
        if generation is None:
            row = self.session.one(own.FILE, ino=ino)
            generation = 0 if row is None else File(*row).generation
        self.add_tombstones([sql.Tombstone(key, ino, content_version, etag, generation)])

    def add_tombstones(self, tombstones: Sequence[sql.Tombstone]) -> None:
        """Add several tombstones, each for another inode or key. See ``add_tombstone``."""
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
        """The id of this namespace, in hex. It tells its objects from those of any other
        namespace."""
        row = self.session.one(sql.VOLUME)
        assert row is not None, "the volume row is missing"
        return bytes(row[0]).hex()

    def doubt_later(self, key: str, ino: int) -> None:
        """Record that a request for a key was given up. The store may still carry it out, after
        later requests, so the key is looked at when that can no longer happen.

        Parameters: ino, the inode whose bytes the request sent.
        """
        row = self.session.one(own.DOUBT, key=key)
        if row is not None and row[1] == 0:
            # The key is due now, and will be looked at once more after that.
            return
        now_ns = clock.now_ns()
        self.session.run(own.DOUBT_DELETE, the_key=key)
        self.session.run(
            own.DOUBT_INSERT, key=key, ino=ino, noted_ns=now_ns, look_ns=now_ns + self.late_ns
        )

    def note(self, inos: Iterable[int], what: int) -> None:
        """Add inodes to the journal. Parameters: what, the flags of ``gateway.db.journal``."""
        journal.note(self.session, dict.fromkeys(inos, what))

    def note_rekey(self, ino: int) -> None:
        """Record that the object of an inode may have the wrong key."""
        if self.session.one(sql.REKEY, ino=ino) is None:
            self.session.run(sql.REKEY_INSERT, ino=ino, renamed_ns=clock.now_ns())


@dataclass(frozen=True)
class Context:
    """The parts of one drain.

    Parameters: settings, database, store; stop, set when the drain must end; on_progress, called
    with a key, the bytes sent and the bytes in all; lease, under which the drain works, or None if
    no lease is needed.
    """

    settings: Settings
    database: Database
    store: S3Store
    stop: threading.Event = field(default_factory=threading.Event)
    on_progress: Callable[[str, int, int], None] = lambda _key, _done, _total: None
    lease: int | None = None
    senders: Sends | None = None
    """The sender of small objects. Only a running drain has one."""
    copiers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(COPIES))
    """The threads for the copies of all moves."""
    is_first: bool = False
    """Whether a person or client waits for what is sent: its parts give way to nothing."""
    awaited: Awaited = field(default_factory=Awaited)
    """The keys at which the store may still be at work."""
    oversize: Oversize = field(default_factory=Oversize)
    """The objects that the store has refused because they are too large."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """The lock of the threads that write: one transaction at a time."""

    @property
    def files(self) -> DataFiles:
        return DataFiles(self.settings.files_dir)

    @property
    def prefix(self) -> str:
        return self.settings.bucket.prefix

    def lasting(self, key: str) -> AbstractContextManager[None]:
        """Send a request that may take long to a key, unless an earlier one may be under way.
        Raises StoreSlow."""
        return self.awaited.request(key, self.settings.bucket.late_seconds)

    @contextmanager
    def reading(self) -> Iterator[View]:
        """Open a read transaction: all its reads see one moment. Raises TryAgain, LeaseLost."""
        with self.database.snapshot() as connection:
            yield self._view(connection)

    @contextmanager
    def writing(self) -> Iterator[View]:
        """Open a write transaction. It is durable on return. Raises TryAgain, NoSpace, LeaseLost.

        The lease is looked for inside the transaction, so a takeover comes before or after it.
        """
        # The turn comes before the connection: waiting threads would use up the readers'
        # connections.
        with self.turn, self.database.reader() as connection:
            with self.database.transaction(connection):
                yield self._view(connection)
                failpoints.hit_counted(DRAIN_COMMIT.format(when="before"))
            failpoints.hit_counted(DRAIN_COMMIT.format(when="after"))

    def note_doubts(self, names: Iterable[int | str]) -> None:
        """Record that it is not known how the work on the keys among these names ended.

        Each of the keys is looked at (tidy/doubt.py). Raises NamespaceError, LeaseLost.
        """
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
        return view_of(self.settings, session, self._patterns)

    @cached_property
    def _patterns(self) -> _Patterns:
        return _patterns_of(self.settings)


class _Patterns(NamedTuple):
    """What the settings say of paths."""

    holds: Holds
    acknowledge: Acknowledge


def _patterns_of(settings: Settings) -> _Patterns:
    patterns = settings.drain.hold_patterns
    return _Patterns(Holds(patterns), Acknowledge(settings.acknowledge.rule, patterns))


def view_of(settings: Settings, session: Session, patterns: _Patterns | None = None) -> View:
    """Return a transaction as jobs use it. Parameters: patterns, those of the settings, if they
    were made."""
    holds, acknowledge = patterns or _patterns_of(settings)
    paths = Paths(session, holds, settings.bucket.prefix)
    precedence = Precedence(session, paths, DataFiles(settings.files_dir), acknowledge)
    return View(session, paths, precedence, int(settings.bucket.late_seconds * clock.NS))
