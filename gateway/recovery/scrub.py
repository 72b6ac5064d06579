"""The scrub: a walk in the background that finds damage on either side, and heals it.

There are three kinds of passes (``ScrubKind``): over the files on the disk, over what the store
tells of objects, and over the bytes of objects. Each begins again some days after it began last.
Passes that are due take turns. A pass over files or bytes continues after a restart where it was;
one over what the store tells begins again. What a person asks for is the same work on some files.

A pass ends when it has looked at everything, whatever it found. Only an outage stops it at a place:
of the disk, the bucket, the database or the NFS server.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

from gateway.common import clock, failpoints
from gateway.common.errors import NamespaceError, StoreError, StoreRefused, UserError
from gateway.common.failpoints import SCRUB
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.objectstore.s3 import S3Store
from gateway.recovery import scrub_rows
from gateway.recovery.scrub_local import (
    LocalScrub,
    LookAgain,
    OpenControl,
    ScrubContext,
    ScrubFinding,
    ScrubPlace,
    ScrubVerdict,
)
from gateway.recovery.scrub_objects import HeadScan, ListScan, ObjectScan, ObjectScrub
from gateway.recovery.scrub_reading import ReadRate
from gateway.recovery.scrub_rows import ScrubFile, ScrubKind, ScrubObject, ScrubPass
from gateway.rpc import control

log = logging.getLogger("scrub")

PAGE = 256
IDLE_SECONDS = 60.0
RETRY_SECONDS = 10.0
"""The pause after an error that may last."""
SAVE_SECONDS = 10.0

T = TypeVar("T", ScrubFile, ScrubObject)
MakeScan = Callable[[ScrubContext], ObjectScan]


class ScrubWork:
    """The work of one pass, over all files or some.

    Args:
        kind: kind of the pass.
        present: how far it is.
        on_found: hears of each file that was found.
        inos: files, in ascending order. None: all.
        make_scan: makes the comparison of the bucket with the rows.
        stop: ends the work early.
    """

    def __init__(
        self,
        context: ScrubContext,
        kind: ScrubKind,
        present: ScrubPass,
        on_found: Callable[[ScrubFinding], None] = lambda _finding: None,
        inos: Sequence[int] | None = None,
        make_scan: MakeScan = ListScan,
        stop: threading.Event | None = None,
    ) -> None:
        self._context = context
        self._kind = kind
        self._present = present
        self._on_found = on_found
        self._inos = inos
        self._make_scan = make_scan
        self._local = LocalScrub(context)
        self._remote = ObjectScrub(context)
        self._stop = stop or threading.Event()
        self._steps: Iterator[None] | None = None
        self.has_news = False
        """Whether something was found since the position was taken last."""

    def present(self) -> ScrubPass:
        """Return how far the pass is."""
        place = self._remote.place if self._kind is ScrubKind.DEEP else self._local.place
        self._present = self._present._replace(
            content_version=place.content_version,
            done_bytes=place.done_bytes,
        )
        self.has_news = False
        return self._present

    def run(self) -> bool:
        """Work for about a second, from where it is. Returns whether there is more to do.

        Raises UserError, StoreUnavailable, StoreRefused, ControlSocketClosed, LookAgain,
        NamespaceError, OSError: the next call tries again, from the same place.
        """
        rate = self._context.rate
        if self._steps is None:
            self._steps = self._all()
        before = rate.read_bytes
        try:
            return rate.run(_until(self._steps, self._stop))
        except BaseException:
            self._steps = None
            raise
        finally:
            read_bytes = self._present.bytes + rate.read_bytes - before
            self._present = self._present._replace(bytes=read_bytes)

    def _all(self) -> Iterator[None]:
        if self._kind is ScrubKind.LOCAL:
            return self._files()
        if self._kind is ScrubKind.DEEP:
            return self._bytes()
        # What the store tells is listed from the start again.
        first = ScrubPass(self._kind)
        self._present = first._replace(number=self._present.number, began_ns=self._present.began_ns)
        return self._differences()

    def _files(self) -> Iterator[None]:
        rows = self._context.rows
        first = self._present.ino
        pages = _pages(rows.files, first) if self._inos is None else self._given(rows.files_of)
        for page in pages:
            for file in page:
                place = self._begin(file.ino)
                # The rest of a page may have waited for long.
                if rows.file(file.ino) == file:
                    self._note((yield from self._local.check(file, place)))
                self._end(file.ino)
                yield

    def _differences(self) -> Iterator[None]:
        context = self._context
        scan = (
            self._make_scan(context)
            if self._inos is None
            else HeadScan(context, self._given(context.rows.objects_of))
        )
        for difference in scan.differences():
            if difference is not None:
                # What cannot be decided now is left to the next pass.
                with suppress(LookAgain):
                    found = yield from self._remote.check(difference.ino, difference.key)
                    self._note(found)
            self._present = self._present._replace(files=scan.looked)
            yield
        self._present = self._present._replace(files=scan.looked)
        wanted = None if self._inos is None else set(self._inos)
        for ino, key in context.rows.damaged_objects():
            if wanted is None or ino in wanted:
                with suppress(LookAgain):
                    self._note(self._remote.back(ino, key))
            yield

    def _bytes(self) -> Iterator[None]:
        rows = self._context.rows
        first = self._present.ino
        pages = _pages(rows.objects, first) if self._inos is None else self._given(rows.objects_of)
        for page in pages:
            for stored in page:
                place = self._begin(stored.ino)
                if rows.object(stored.ino) == stored:
                    self._note((yield from self._remote.read(stored, place)))
                self._end(stored.ino)
                yield

    def _given(self, rows_of: Callable[[Sequence[int]], list[T]]) -> Iterator[list[T]]:
        """Yield pages of the files that a person named and that are not done."""
        left = iter([ino for ino in self._inos or () if ino >= self._present.ino])
        while inos := list(islice(left, PAGE)):
            yield rows_of(inos)

    def _begin(self, ino: int) -> ScrubPlace:
        """Begin with a file. Returns how far it was compared before."""
        before = self._present
        place = (
            ScrubPlace(before.content_version, before.done_bytes)
            if before.ino == ino
            else ScrubPlace()
        )
        self._local.place = self._remote.place = place
        self._present = before._replace(ino=ino)
        return place

    def _end(self, ino: int) -> None:
        self._local.place = self._remote.place = ScrubPlace()
        self._present = self._present._replace(ino=ino + 1, files=self._present.files + 1)

    def _note(self, finding: ScrubFinding | None) -> None:
        if finding is None:
            return
        log.warning("inode %d: %s", finding.ino, finding.text)
        is_healed = finding.verdict is ScrubVerdict.HEALED
        self._present = self._present._replace(
            found=self._present.found + 1,
            healed=self._present.healed + is_healed,
            damaged=self._present.damaged + (not is_healed),
        )
        self.has_news = True
        self._on_found(finding)


def _pages(rows_from: Callable[[int, int], list[T]], first: int) -> Iterator[list[T]]:
    while page := rows_from(first, PAGE):
        yield page
        first = page[-1].ino + 1


class Scrub:
    """The scrub of one gateway. Not safe to use from several threads.

    Args:
        store: of the gateway; it changes nothing unless the bucket is this gateway's.
        stop: ends a step early.
        open_control: connects to the control socket.
        make_scan: makes the comparison of the bucket with the rows.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        store: S3Store,
        stop: threading.Event | None = None,
        open_control: OpenControl | None = None,
        make_scan: MakeScan = ListScan,
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._stop = stop or threading.Event()
        self._make_scan = make_scan
        self._rate = ReadRate(settings.scrub.bytes_per_second)
        self._context = ScrubContext(
            settings,
            database,
            store,
            open_control or partial(control.opened, settings, control.BACKGROUND_SECONDS),
            self._rate,
        )
        self._turns = deque(ScrubKind)
        self._works: dict[ScrubKind, ScrubWork] = {}
        """The passes that are under way in this process."""
        self._saved_at = clock.monotonic_seconds()
        self._retry_at = 0.0
        self._warned = ""
        self._counts: Counter[str] = Counter()

    def counts(self) -> Counter[str]:
        """Return what was done since the start: files, bytes, found, healed, damaged and passes."""
        return Counter({**self._counts, "bytes": self._rate.read_bytes})

    def step(self) -> float:
        """Work for about a second. Returns the seconds until the next step."""
        wait = max(self._rate.wait_seconds(), self._retry_at - clock.monotonic_seconds())
        if wait > 0:
            return wait
        try:
            kind = self._next()
            if kind is None:
                return IDLE_SECONDS
            self._work(kind)
            self._warned = ""
        except LookAgain as exc:
            return self._failed(exc, is_told=False)
        except (UserError, StoreError, NamespaceError, OSError) as exc:
            if isinstance(exc, StoreRefused):
                self._store.reload()
            return self._failed(exc, is_told=True)
        return self._rate.wait_seconds()

    def _failed(self, exc: Exception, is_told: bool) -> float:
        message = f"the scrub waits: {exc}"
        if is_told and message != self._warned:
            log.warning("%s", message)
        self._warned = message
        self._retry_at = clock.monotonic_seconds() + RETRY_SECONDS
        return RETRY_SECONDS

    def _next(self) -> ScrubKind | None:
        """Return the kind whose turn it is, or None if none is due."""
        with self._database.reader() as connection:
            passes = scrub_rows.passes(Session(connection, self._database.dialect))
        for _turn in ScrubKind:
            kind = self._turns[0]
            self._turns.rotate(-1)
            last, present = passes.get((kind, True)), passes.get((kind, False))
            if not scrub_rows.days_of(self._settings.scrub, kind):
                self._works.pop(kind, None)
                continue
            if kind in self._works:
                return kind
            if present is not None or scrub_rows.is_due(self._settings.scrub, kind, last):
                self._begin(kind, present, last)
                return kind
        return None

    def _begin(self, kind: ScrubKind, present: ScrubPass | None, last: ScrubPass | None) -> None:
        """Begin a pass, or continue it."""
        if present is None:
            number = 1 if last is None else last.number + 1
            present = ScrubPass(kind, number=number, began_ns=clock.now_ns())
            scrub_rows.save(self._database, present)
        self._works[kind] = ScrubWork(
            self._context,
            kind,
            present,
            self._count,
            make_scan=self._make_scan,
            stop=self._stop,
        )

    def _count(self, finding: ScrubFinding) -> None:
        self._counts["found"] += 1
        self._counts[str(finding.verdict)] += 1

    def _work(self, kind: ScrubKind) -> None:
        work = self._works[kind]
        has_more = work.run()
        if self._stop.is_set():
            self._save(work)
        elif not has_more:
            self._end(work)
            del self._works[kind]
        elif work.has_news or clock.monotonic_seconds() - self._saved_at >= SAVE_SECONDS:
            self._save(work)

    def _save(self, work: ScrubWork) -> None:
        scrub_rows.save(self._database, work.present())
        self._saved_at = clock.monotonic_seconds()
        failpoints.hit_counted(SCRUB.format(when="saved"))

    def _end(self, work: ScrubWork) -> None:
        present = work.present()
        scrub_rows.save(self._database, scrub_rows.ended(present), present)
        self._counts["passes"] += 1
        self._counts["files"] += present.files
        log.info(
            "scrub of %s: pass %d: %d files, %d bytes; %d found, %d healed, %d damaged",
            *(present.kind, present.number, present.files, present.bytes),
            *(present.found, present.healed, present.damaged),
        )


def _until(steps: Iterator[None], stop: threading.Event) -> Iterator[None]:
    """Yield steps until stop is set."""
    for step in steps:
        yield step
        if stop.is_set():
            return
