"""Context of the drain's jobs: transactions under the lease, and what is known of the store.

The drain writes in short transactions: SQLite has one writer, so the commits of the NFS server wait
for the drain's. No request to the store is ever made inside a transaction.

Two facts are kept in memory. A drain that starts does not have them: it sends each such file once,
and looks once at each such key before it sends.

- Files that the store refused as too large (``OversizeObjects``). A store may say so only when all
  parts were sent, and would say so each time. So such a file is not sent again for a day, unless it
  has become smaller.
- Keys at which the store may still be at work on a request that it did not answer in time
  (``AwaitedKeys``): the completion of a large upload, and a copy, take minutes on some stores. Sent
  again meanwhile, such a request makes the store begin again, perhaps without an end. So the drain
  looks whether the object is there, and sends nothing else to the key until no such request can be
  under way any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway.common import clock, failpoints
from gateway.common.errors import LeaseLost, StoreSlow, TooLarge
from gateway.common.failpoints import DRAIN_COMMIT
from gateway.common.patterns import IncompleteNames
from gateway.config.acknowledge import Acknowledge
from gateway.config.settings import Settings
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.drain import statements as own
from gateway.drain.paths import Paths
from gateway.drain.precedence import Precedence
from gateway.drain.rows import File
from gateway.namespace.data_files import DataFiles

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second to import.
    from gateway.drain.messages import Result, SmallObject
    from gateway.objectstore.s3 import S3Store

AGAIN_SECONDS = 86_400.0


class _Refusal(NamedTuple):
    at: float
    """Monotonic seconds."""
    size: int
    error: TooLarge


class OversizeObjects:
    """The objects of one drain that are too large. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: dict[Hashable, _Refusal] = {}

    @contextmanager
    def sending(self, what: Hashable, size: int) -> Iterator[None]:
        """Send an object, unless it was refused with so many bytes. Raises TooLarge.

        Args:
            what: its key, or of a copy both keys.
        """
        now = clock.monotonic_seconds()
        with self._lock:
            before = self._refused.get(what)
        if before is not None and size >= before.size and now - before.at < AGAIN_SECONDS:
            raise TooLarge(str(before.error)) from before.error
        try:
            yield
        except TooLarge as exc:
            with self._lock:
                self._refused[what] = _Refusal(clock.monotonic_seconds(), size, exc)
            raise
        with self._lock:
            self._refused.pop(what, None)


class AwaitedKeys:
    """The keys that one drain waits for. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, tuple[float, StoreSlow]] = {}
        """When each request was given up, in monotonic seconds, and its error."""

    @contextmanager
    def request(self, key: str, late_seconds: float) -> Iterator[None]:
        """Send a request that may take long to a key, unless an earlier one may be under way.

        Raises StoreSlow.

        Args:
            late_seconds: for which it may be.
        """
        with self._lock:
            since, error = self._since.get(key, (0.0, None))
            if error is not None and clock.monotonic_seconds() - since < late_seconds:
                raise StoreSlow(str(error)) from error
            self._since.pop(key, None)
        try:
            yield
        except StoreSlow as exc:
            with self._lock:
                self._since[key] = (clock.monotonic_seconds(), exc)
            raise

    def ended(self, key: str) -> None:
        """Note that what was waited for is there, or is not wanted any more."""
        with self._lock:
            self._since.pop(key, None)


COPIES = 8
"""The number of copies inside the bucket at a time. A copy only waits for the store."""


class Sends(Protocol):
    """A sender of small objects."""

    def send(self, objects: Sequence[SmallObject]) -> list[Result | None]:
        """Send a batch. Returns the result of each object, or None if it was not sent."""


class DrainView(NamedTuple):
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

        Args:
            generation: generation of the inode: 0 if it is not known, None to take it from the
                inode's row, if there is one.
        """
        if generation is None:
            row = self.session.one(own.FILE, ino=ino)
            generation = 0 if row is None else File(*row).generation
        self.add_tombstones([sql.TombstoneRow(key, ino, content_version, etag, generation)])

    def add_tombstones(self, tombstones: Sequence[sql.TombstoneRow]) -> None:
        """Add several tombstones, each for another inode or key. See ``add_tombstone``."""
        if not tombstones:
            return
        now_ns = clock.now_ns()
        wanted = rows_of([(*tombstone, now_ns) for tombstone in tombstones])
        rows = self.session.all(own.TOMBSTONES_BEFORE, tombstones=wanted)
        if rows:
            before = {(row[0], row[1]): sql.TombstoneRow(*row) for row in rows}
            merged = [
                tombstone.with_earlier(before.get(tombstone[:2], tombstone))
                for tombstone in tombstones
            ]
            wanted = rows_of([(*tombstone, now_ns) for tombstone in merged])
            self.session.run(own.TOMBSTONES_DELETE, tombstones=wanted)
        self.session.run(own.TOMBSTONES_INSERT, tombstones=wanted)
        # Without them a restore would take what is deleted here for the objects of files.
        self.note((tombstone.ino for tombstone in tombstones), journal.STORED)

    def drop_tombstones(self, keys: Iterable[str]) -> None:
        """Delete the tombstones of keys at which no garbage is any more."""
        wanted = rows_of([(key,) for key in keys])
        inos = {ino for (ino,) in self.session.all(own.TOMBSTONES_DROP, keys=wanted)}
        if inos:
            # Otherwise the copy of the names would have them until its next base.
            self.note(inos, journal.STORED)

    @property
    def volume(self) -> str:
        """The id of this namespace, in hex. It tells its objects from those of any other
        namespace."""
        row = self.session.one(sql.VOLUME)
        assert row is not None, "the volume row is missing"
        return bytes(row[0]).hex()

    def mark_indeterminate(self, key: str, ino: int) -> None:
        """Record that a request for a key was given up. The store may still carry it out, after
        later requests, so the key is looked at when that can no longer happen.

        Args:
            ino: the inode whose bytes the request sent.
        """
        row = self.session.one(own.INDETERMINATE_WRITE, key=key)
        if row is not None and row[1] == 0:
            # The key is due now, and will be looked at once more after that.
            return
        now_ns = clock.now_ns()
        self.session.run(own.INDETERMINATE_DELETE, the_key=key)
        self.session.run(
            own.INDETERMINATE_INSERT,
            key=key,
            ino=ino,
            noted_ns=now_ns,
            check_after_ns=now_ns + self.late_ns,
        )

    def note(self, inos: Iterable[int], what: int) -> None:
        """Add inodes to the journal.

        Args:
            what: the flags of ``gateway.db.journal``.
        """
        journal.note(self.session, dict.fromkeys(inos, what))

    def note_rekey(self, ino: int) -> None:
        """Record that the object of an inode may have the wrong key."""
        if self.session.one(sql.REKEY, ino=ino) is None:
            self.session.run(sql.REKEY_INSERT, ino=ino, renamed_ns=clock.now_ns())


@dataclass(frozen=True)
class Context:
    """The parts of one drain.

    Args:
        stop: set when the drain must end.
        on_progress: called with a key, the bytes sent and the bytes in all.
        lease: under which the drain works, or None if no lease is needed.
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
    awaited: AwaitedKeys = field(default_factory=AwaitedKeys)
    """The keys at which the store may still be at work."""
    oversize: OversizeObjects = field(default_factory=OversizeObjects)
    """The objects that the store has refused because they are too large."""
    reading_lock: threading.Lock = field(default_factory=threading.Lock)
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
    def reading(self) -> Iterator[DrainView]:
        """Open a read transaction: all its reads see one moment. Raises TryAgain, LeaseLost."""
        with self.database.snapshot() as connection:
            yield self._view(connection)

    @contextmanager
    def writing(self) -> Iterator[DrainView]:
        """Open a write transaction. It is durable on return. Raises TryAgain, NoSpace, LeaseLost.

        The lease is looked for inside the transaction, so a takeover comes before or after it.
        """
        # The lock comes before the connection: waiting threads would use up the readers'
        # connections.
        with self.reading_lock, self.database.reader() as connection:
            with self.database.transaction(connection):
                yield self._view(connection)
                failpoints.hit_counted(DRAIN_COMMIT.format(when="before"))
            failpoints.hit_counted(DRAIN_COMMIT.format(when="after"))

    def mark_all_indeterminate(self, names: Iterable[int | str]) -> None:
        """Record that it is not known how the work on the keys among these names ended.

        Each of the keys is looked at (tidy/indeterminate.py). Raises NamespaceError, LeaseLost.
        """
        inos = [name for name in names if isinstance(name, int)]
        with self.writing() as view:
            for key in (name for name in names if isinstance(name, str)):
                view.session.run(own.INDETERMINATE_DELETE, the_key=key)
                view.session.run(
                    own.INDETERMINATE_INSERT,
                    key=key,
                    ino=inos[0] if inos else 0,
                    noted_ns=clock.now_ns(),
                    check_after_ns=0,
                )

    def _view(self, connection: object) -> DrainView:
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

    holds: IncompleteNames
    acknowledge: Acknowledge


def _patterns_of(settings: Settings) -> _Patterns:
    patterns = settings.drain.incomplete_patterns
    return _Patterns(IncompleteNames(patterns), Acknowledge(settings.acknowledge.rule, patterns))


def view_of(settings: Settings, session: Session, patterns: _Patterns | None = None) -> DrainView:
    """Return a transaction as jobs use it.

    Args:
        patterns: those of the settings, if they were made.
    """
    holds, acknowledge = patterns or _patterns_of(settings)
    paths = Paths(session, holds, settings.bucket.prefix)
    precedence = Precedence(session, paths, DataFiles(settings.files_dir), acknowledge)
    return DrainView(session, paths, precedence, int(settings.bucket.late_seconds * clock.NS))
