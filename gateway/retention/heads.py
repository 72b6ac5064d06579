"""Asks the bucket whether it has the objects of a checkpoint for which another one is deleted.

Each member's object must answer a HEAD with the size and the ETag that were recorded when it was
stored. What was found so is believed for BELIEVED_SECONDS, while the members are the same. A bucket
that does not answer says nothing: then nothing is deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway import clock
from gateway.checkpoints.catalogue import Catalogue
from gateway.db.engine import Database
from gateway.errors import StoreError, StoreUnavailable
from gateway.retention import statements as own
from gateway.retention.facts import Checkpoint
from gateway.settings import Settings
from gateway.text import printable
from gateway.types import Extent, Kind

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second.
    from gateway.objectstore.s3 import S3Store

BELIEVED_SECONDS = 3600.0
AT_ONCE = 8
RATE_SHARE = 0.1
"""The share of ``drain.requests_per_second`` that may be asked, beside what the drain requests."""
PAGE = 512


class Heads(Protocol):
    """Knows whether the bucket has a checkpoint."""

    def differs(self, catalogue: Catalogue, one: Checkpoint) -> str | None:
        """Return what the bucket does not have as recorded, or None. Raises StoreError if it
        cannot be asked, TryAgain.

        Parameters: catalogue of the calling thread; one, a durable checkpoint. Whether its members
        are still those is for the caller to ask, afterwards.
        """


class _Object(NamedTuple):
    """The object that was recorded of a file."""

    path: bytes
    key: str
    size: int
    etag: str


class BucketHeads:
    """Asks the bucket of a gateway. It is safe to use from several threads, which share what it
    remembers.

    Parameters: settings; stop, after which nothing more is asked.
    """

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._lock = threading.Lock()
        self._opened: S3Store | None = None
        self._seen: dict[tuple[int, str], float] = {}
        """Monotonic seconds until which a checkpoint is believed to be in the bucket, by inode and
        evidence."""

    def differs(self, catalogue: Catalogue, one: Checkpoint) -> str | None:
        what = one.ino, one.evidence
        with self._lock:
            now = clock.monotonic_seconds()
            self._seen = {key: until for key, until in self._seen.items() if until > now}
            if what in self._seen:
                return None
        store = self._store()
        try:
            # Another gateway on the prefix may replace what is found.
            store.require_permit()
            why = self._ask(store, catalogue, one)
        except StoreError:
            store.reload()  # a person may have corrected the credentials
            raise
        if why is None:
            with self._lock:
                self._seen[what] = now + BELIEVED_SECONDS
        return why

    def _ask(self, store: S3Store, catalogue: Catalogue, one: Checkpoint) -> str | None:
        """Ask for each object. Returns the first difference, or None. Raises StoreError."""
        objects, count = _objects(catalogue, one), 0
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="head") as pool:
            while some := list(islice(objects, AT_ONCE)):
                if self._stop.is_set():
                    raise StoreUnavailable("the process ends")
                for why in pool.map(partial(_differs, store), some):
                    if why is not None:
                        return why
                count += len(some)
        # A file that is left of a killed save may have an object too.
        if count < one.files:
            return f"the bucket has {count} of its {one.files} files"
        return None

    def _store(self) -> S3Store:
        """Return the store. Raises StoreError."""
        from gateway.objectstore.pace import Pace, Rates
        from gateway.objectstore.s3 import S3Store
        from gateway.ownership.keeper import guarded

        with self._lock:
            if self._opened is None:
                per_second = self._settings.drain.requests_per_second * RATE_SHARE
                pace = Pace(Rates(0.0, per_second), AT_ONCE, self._stop)
                store = S3Store(self._settings, pace=pace)
                database = Database(self._settings.database_url)
                self._opened = guarded(store, self._settings, database, self._stop)
            return self._opened


def _differs(store: S3Store, one: _Object) -> str | None:
    """Return how an object differs from what was recorded, or None. Raises StoreError."""
    name = printable(one.path)
    head = store.head(one.key)
    if head is None:
        return f"the bucket lost the object of {name}: {one.key}"
    if head.size != one.size:
        return f"the object of {name} has {head.size} bytes, and not {one.size}: {one.key}"
    if head.etag.lower() != one.etag.lower():
        return f"the object of {name} is another one (ETag {head.etag}, not {one.etag}): {one.key}"
    return None


def _objects(catalogue: Catalogue, one: Checkpoint) -> Iterator[_Object]:
    """Yield the objects of the present versions of a checkpoint's files. Each page is read in a
    transaction of its own, so none is open while the bucket is asked."""
    if one.extent == Extent.FILE:
        with catalogue.viewing() as view:
            row = view.session.one(own.OBJECT, ino=one.ino)
        if row is not None:
            yield _Object(one.path, *row)
        return
    waiting = [(one.ino, b"")]
    while waiting:
        directory, above = waiting.pop()
        after = b""
        while True:
            with catalogue.viewing() as view:
                rows = view.session.all(own.OBJECTS, parent=directory, after=after, most=PAGE)
            for name, kind, ino, *stored in rows:
                path = above + bytes(name)
                if kind == Kind.DIRECTORY and one.extent == Extent.TREE:
                    waiting.append((ino, path + b"/"))
                elif stored[0] is not None:
                    yield _Object(path, *stored)
            if len(rows) < PAGE:
                break
            after = bytes(rows[-1][0])
