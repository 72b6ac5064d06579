"""Makes files absent: looks at each object, asks at the door, and tidies up afterwards.

Missing evidence evicts nothing. The object must be there with the recorded size and ETag right
before the request, and the server decides by the rows as they are then (``namespace.residency``).
Two processes may evict the same files at once: the second one gets EBUSY.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from gateway.cache.candidates import Candidate
from gateway.data.layout import DataFiles
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.door.frames import Answer, Op, Request
from gateway.errors import ObjectRefused
from gateway.namespace import residency
from gateway.settings import Settings

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second to import.
    from gateway.objectstore.s3 import S3Store

log = logging.getLogger("cache")

TOGETHER = 64
"""The requests at the door at a time: as many as the server takes from one peer."""
HEADS = 8
"""The objects that are looked at at a time."""
LEFT_MAX = 1024

Ask = Callable[[Sequence[Request]], list[Answer]]
"""Has requests answered at the door, as ``Door.run`` does."""


class Verdict(StrEnum):
    """What became of a candidate, as people see it."""

    EVICTED = "evicted"
    BUSY = "open, or changed a moment ago"
    DIFFERS = "the bucket does not have the object that was recorded"
    REFUSED = "the bucket does not let us look at the object"
    LATER = "the NFS server has no time now"
    PINNED = "pinned a moment ago"
    GONE = "deleted meanwhile"


_VERDICTS = {
    0: Verdict.EVICTED,
    errno.EBUSY: Verdict.BUSY,
    errno.EPERM: Verdict.PINNED,
    errno.ESTALE: Verdict.GONE,
}


@contextmanager
def eviction_of(settings: Settings, database: Database) -> Iterator[Eviction]:
    """Open the bucket and what evicts files. Raises StoreError."""
    # The import is here because boto3 takes half a second to import.
    from gateway.objectstore.s3 import S3Store
    from gateway.ownership.keeper import guarded

    store = guarded(S3Store(settings), settings, database)
    with Eviction(settings, database, store) as eviction:
        yield eviction


class Eviction:
    """Evicts files. A context manager that ends its threads.

    Parameters: settings; database; store, which answers HEAD.
    """

    def __init__(self, settings: Settings, database: Database, store: S3Store) -> None:
        self._files = DataFiles(settings.files_dir)
        self._database = database
        self._store = store
        self._pool = ThreadPoolExecutor(HEADS, "cache-head")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def run(self, ask: Ask, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Evict up to TOGETHER files. Returns what became of each, in order.

        Raises DoorClosed; StoreUnavailable, StoreRefused before anything was requested; OSError,
        NamespaceError after the evictions, whose rows are left then.
        """
        # What another gateway may replace is no copy of what is on the disk.
        self._store.require_permit()
        seen = list(self._pool.map(self._look, candidates))
        if seen and not any(verdict is None for verdict, _what in seen):
            # Answers to HEAD have no reason. With a wrong key, or without the bucket, all objects
            # seem to be at fault.
            self._store.check()
        verdicts: dict[int, Verdict] = {}
        wanted = []
        refused = []
        for one, (verdict, what) in zip(candidates, seen, strict=True):
            if verdict is None:
                wanted.append(one)
                continue
            verdicts[one.ino] = verdict
            if verdict is Verdict.REFUSED:
                refused.append(what)
            else:
                log.warning("inode %d stays on the disk: %s", one.ino, what)
        if refused:
            log.warning("%d files stay on the disk: %s", len(refused), refused[0])
        answers = ask([Request(Op.EVICT, one.ino, change=one.content_version) for one in wanted])
        evicted = []
        for one, answer in zip(wanted, answers, strict=True):
            verdicts[one.ino] = _VERDICTS.get(answer.errno, Verdict.LATER)
            if answer.errno == 0 and answer.attr is not None:
                evicted.append((one.ino, answer.attr.epoch - 1))
            elif verdicts[one.ino] is Verdict.LATER:
                log.info("inode %d: not evicted now: errno %d", one.ino, answer.errno)
        self._forget(evicted)
        return [verdicts[one.ino] for one in candidates]

    def forget_left(self) -> None:
        """Delete the rows that an evictor left which was killed, or whose answers were lost."""
        with self._database.reader() as connection:
            rows = residency.evictions(Session(connection, self._database.dialect), LEFT_MAX)
        self._forget((ino, epoch) for ino, epoch in rows)

    def _look(self, one: Candidate) -> tuple[Verdict | None, str]:
        """Return why a candidate stays, and the same for people. None: the bucket has the object as
        it was recorded."""
        try:
            head = self._store.head(one.key)
        except ObjectRefused as exc:
            return Verdict.REFUSED, str(exc)
        if head is None:
            return Verdict.DIFFERS, f"the object {one.key} is missing"
        if (head.size, head.etag) != (one.size, one.etag):
            return Verdict.DIFFERS, f"the object {one.key} is not what was recorded"
        return None, ""

    def _forget(self, evicted: Iterable[tuple[int, int]]) -> None:
        """Delete the rows of evictions whose data files are gone, for good.

        Without the fsync a power cut could bring a data file back that no row names any more.
        """
        gone = [(ino, epoch) for ino, epoch in evicted if not self._files.path(ino, epoch).exists()]
        if not gone:
            return
        self._files.sync_shards(ino for ino, _epoch in gone)
        with self._database.writing() as session:
            residency.forget_evictions(session, gone)
