"""Deletion guard: no checkpoint is deleted without a newer one that the bucket has.

A checkpoint is deleted, and leaves the trash for good, only while a newer one of its run stands for
it: trusted, durable, not much smaller, as its row says it is, and with objects that the bucket has
as they were recorded. Policies, people and the trash ask here, of the namespace and of the bucket.

The bucket has a checkpoint if each member's object answers a HEAD with the size and the ETag that
were recorded when it was stored. What was found so is believed for BELIEVED_SECONDS, while the
members are the same. A bucket that does not answer says nothing: then nothing is deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway.catalogue.store import Catalogue
from gateway.common import clock
from gateway.common.errors import StoreError, StoreUnavailable
from gateway.common.text import printable
from gateway.common.types import Extent, InodeKind
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.retention import store as own
from gateway.lifecycle.retention.facts import PlanCheckpoint

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second.
    from gateway.objectstore.s3 import S3Store
from collections.abc import Sequence

from gateway.catalogue.facts import NOT_MADE, CheckpointState
from gateway.catalogue.store import catalogue_of
from gateway.common.types import FIRST_NS
from gateway.lifecycle.retention import keep_rules
from gateway.lifecycle.retention.planning import checkpoint_of

BELIEVED_SECONDS = 3600.0
AT_ONCE = 8
RATE_SHARE = 0.1
"""The share of ``drain.requests_per_second`` that may be asked, beside what the drain requests."""
PAGE = 512


class Heads(Protocol):
    """Source of what the bucket has of a checkpoint."""

    def differs(self, catalogue: Catalogue, one: PlanCheckpoint) -> str | None:
        """Return what the bucket does not have as recorded, or None. Raises StoreError if it cannot
        be asked, TryAgain.

        Whether its members are still those is for the caller to ask, afterwards.

        Args:
            catalogue: catalogue of the calling thread.
            one: a durable checkpoint.
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

    Args:
        stop: after which nothing more is asked.
    """

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._lock = threading.Lock()
        self._opened: S3Store | None = None
        self._seen: dict[tuple[int, str], float] = {}
        """Monotonic seconds until which a checkpoint is believed to be in the bucket, by inode and
        evidence."""

    def differs(self, catalogue: Catalogue, one: PlanCheckpoint) -> str | None:
        cache_key = one.ino, one.evidence
        with self._lock:
            now = clock.monotonic_seconds()
            self._seen = {key: until for key, until in self._seen.items() if until > now}
            if cache_key in self._seen:
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
                self._seen[cache_key] = now + BELIEVED_SECONDS
        return why

    def _ask(self, store: S3Store, catalogue: Catalogue, checkpoint: PlanCheckpoint) -> str | None:
        """Ask for each object. Returns the first difference, or None. Raises StoreError."""
        objects, count = _objects(catalogue, checkpoint), 0
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="head") as pool:
            while some := list(islice(objects, AT_ONCE)):
                if self._stop.is_set():
                    raise StoreUnavailable("the process ends")
                for why in pool.map(partial(_differs, store), some):
                    if why is not None:
                        return why
                count += len(some)
        # A file that is left of a killed save may have an object too.
        if count < checkpoint.files:
            return f"the bucket has {count} of its {checkpoint.files} files"
        return None

    def _store(self) -> S3Store:
        """Return the store. Raises StoreError."""
        from gateway.objectstore.ownership import guarded
        from gateway.objectstore.pace import Pace, Rates
        from gateway.objectstore.s3 import S3Store

        with self._lock:
            if self._opened is None:
                per_second = self._settings.drain.requests_per_second * RATE_SHARE
                pace = Pace(Rates(0.0, per_second), AT_ONCE, self._stop)
                store = S3Store(self._settings, pace=pace)
                database = Database(self._settings.database_url)
                self._opened = guarded(store, self._settings, database, self._stop)
            return self._opened


def _differs(store: S3Store, object_: _Object) -> str | None:
    """Return how an object differs from what was recorded, or None. Raises StoreError."""
    name = printable(object_.path)
    head = store.head(object_.key)
    if head is None:
        return f"the bucket lost the object of {name}: {object_.key}"
    if head.size != object_.size:
        return f"the object of {name} has {head.size} bytes, and not {object_.size}: {object_.key}"
    if head.etag.lower() != object_.etag.lower():
        return (
            f"the object of {name} is another one (ETag {head.etag}, not {object_.etag}): "
            f"{object_.key}"
        )
    return None


def _objects(catalogue: Catalogue, checkpoint: PlanCheckpoint) -> Iterator[_Object]:
    """Yield the objects of the present versions of a checkpoint's files. Each page is read in a
    transaction of its own, so none is open while the bucket is asked."""
    if checkpoint.extent == Extent.FILE:
        with catalogue.viewing() as view:
            row = view.session.one(own.OBJECT, ino=checkpoint.ino)
        if row is not None:
            yield _Object(checkpoint.path, *row)
        return
    waiting = [(checkpoint.ino, b"")]
    while waiting:
        directory, above = waiting.pop()
        after = b""
        while True:
            with catalogue.viewing() as view:
                rows = view.session.all(own.OBJECTS, parent=directory, after=after, most=PAGE)
            for name, kind, ino, *stored in rows:
                path = above + bytes(name)
                if kind == InodeKind.DIRECTORY and checkpoint.extent == Extent.TREE:
                    waiting.append((ino, path + b"/"))
                elif stored[0] is not None:
                    yield _Object(path, *stored)
            if len(rows) < PAGE:
                break
            after = bytes(rows[-1][0])


NOT_KNOWN = "it is not known of which run it is, or when it was complete"
NONE_LEFT = "no newer checkpoint of its run is durable, known to be whole, and as large"
NEWER_CHANGED = "the newer one is not what it was, or not durable any more"


class Unfit(NamedTuple):
    """Why nothing can be deleted for a checkpoint."""

    why: str
    is_loss: bool = False
    """Whether the bucket does not have what was recorded."""


class DeletionGuard:
    """Deletion guard of one gateway. Each thread that uses it needs one of its own.

    Args:
        heads: which may be shared.
    """

    def __init__(self, settings: Settings, database: Database, heads: Heads) -> None:
        self._catalogue = catalogue_of(settings, database)
        self._min_replacement_share = settings.retention.min_replacement_share
        self._heads = heads

    def reason_against(
        self,
        ino: int,
        path: bytes,
        run: bytes,
        step: int | None,
        complete_ns: int | None,
        size: int,
    ) -> str | None:
        """Return why a checkpoint must not leave the trash for good, or None. Raises TryAgain.

        Its record says which ones are newer, and is there as long as its inode. One that never was
        complete, or that an older release deleted, has none: then newer is what is so by its step
        and by its time.

        Args:
            ino, path, run, step, complete_ns, size: those of the checkpoint before it was deleted.
        """
        if not path:
            return NOT_KNOWN
        with self._catalogue.viewing() as view:
            if view.session.one(own.IS_MADE) is None:
                return NOT_MADE
            rows = [checkpoint_of(row) for row in view.session.all(own.OF_RUN, run=run)]
            others = [row for row in rows if row.ino != ino]
            record = view.session.one(own.RECORD, ino=ino)
        place = _place(step, complete_ns, others) if record is None else record[0]
        if place is None:
            return NOT_KNOWN
        checkpoint = PlanCheckpoint(
            *(
                ino,
                path,
                run,
                step,
                0,
                CheckpointState.COMPLETE,
                None,
                0,
                size,
                complete_ns,
                None,
                "",
            ),
            completion=place,
        )
        newer = keep_rules.successor(checkpoint, others, self._min_replacement_share)
        if newer is None:
            return NONE_LEFT
        try:
            unfit = self.unfit(newer)
        except StoreError as exc:
            return cannot_ask(exc)
        return None if unfit is None else unfit.why

    def unfit(self, newer: PlanCheckpoint) -> Unfit | None:
        """Return why nothing can be deleted for a newer checkpoint now, or None. Raises
        StoreError if the bucket does not say, TryAgain."""
        if not newer.is_trusted:
            return Unfit(NEWER_CHANGED)
        if (why := self._heads.differs(self._catalogue, newer)) is not None:
            name = printable(newer.path)
            return Unfit(f"the bucket does not have the newer one, {name}: {why}", is_loss=True)
        # This is asked last: the requests may take a while.
        is_fit = is_unchanged(self._catalogue, newer, must_be_durable=True)
        return None if is_fit else Unfit(NEWER_CHANGED)


def cannot_ask(exc: StoreError) -> str:
    """Return why nothing is deleted while the bucket does not say what it has."""
    return f"the bucket cannot be asked for the newer one: {exc}"


def _place(
    step: int | None, complete_ns: int | None, others: Sequence[PlanCheckpoint]
) -> int | None:
    """Return a place in its run for a checkpoint in the trash that has no record: right behind the
    last one that may be older. None: nothing tells what is older."""
    if complete_ns is not None and complete_ns < FIRST_NS:
        complete_ns = None
    if step is None and complete_ns is None:
        return None
    places = (
        checkpoint.completion
        for checkpoint in others
        if checkpoint.completion is not None
        and (
            (complete_ns is not None and checkpoint.ready_ns <= complete_ns)
            or (step is not None and (checkpoint.step is None or checkpoint.step <= step))
        )
    )
    return max(places, default=0)


def is_unchanged(catalogue: Catalogue, one: PlanCheckpoint, must_be_durable: bool = False) -> bool:
    """Return whether a checkpoint is in the namespace what its row said. Raises TryAgain."""
    with catalogue.viewing() as view:
        as_is = catalogue.as_is(view, one.ino)
        row = view.session.one(own.OF_INO, ino=one.ino)
    # A look that cannot read a file keeps the evidence of the row.
    if as_is is None or as_is.evidence != one.evidence or row is None:
        return False
    kept = checkpoint_of(row)
    if (kept.grade, kept.completion) != (one.grade, one.completion):
        return False
    now = catalogue.look(one.ino).now
    if now is None or (now.path, now.run, now.step) != (one.path, one.run, one.step):
        return False
    if now.evidence != one.evidence or now.state in (
        CheckpointState.WRITING,
        CheckpointState.BROKEN,
    ):
        return False
    return now.state == CheckpointState.DURABLE or not must_be_durable
