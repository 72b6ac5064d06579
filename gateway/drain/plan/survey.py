"""Keeps the order of the dirty files up to date, and makes upload jobs of the next ones.

Reads the dirty files by age, a page at a time: what is new since the last page, and from time to
time everything again, because a rename or a person makes files eligible without sealing them.
Reading everything takes at most a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway import clock
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.job import Batch, Job, JobId, Lane, Page, Work
from gateway.drain.plan.order import Order
from gateway.drain.plan.sweeps import make_way
from gateway.drain.send import intent, upload

SCAN_PAGE = 2048
JOBS_PAGE = 64
"""With BYTES_PAGE: how far ahead files are chosen. What is sealed later waits for these."""
BYTES_PAGE = 1 << 30
TAKEN_AT_ONCE = 8
REST = 9
"""Times as long as reading everything took."""

_START = (0, 0)
_FOR_EVER_NS = (1 << 63) - 1


class Survey:
    """The dirty files of one drain.

    Parameters: skip, whether a file is not to be had now (it runs, or its next try is not due);
    poll_seconds, the least time between two readings of everything.
    """

    def __init__(self, skip: Callable[[int], bool], poll_seconds: float) -> None:
        self._skip = skip
        self._poll_seconds = poll_seconds
        self._order = Order()
        self._fresh: Order | None = None
        """Of a reading of everything that is not at its end yet."""
        self._at = _START
        self._stranded_at: tuple[int, int] | None = None
        """In a reading of everything, first: among times that are too far ahead to be true."""
        self._full_at = 0.0
        self._spent_seconds = 0.0
        self.oldest_ns: int | None = None
        """When the oldest file that may be drained was sealed, as last read."""
        self._oldest_ns: int | None = None

    def __len__(self) -> int:
        """Files that wait."""
        return max(len(self._order), 0 if self._fresh is None else len(self._fresh))

    def restart(self) -> None:
        """Read everything again, now."""
        self._full_at = 0.0
        self._fresh = None

    def plan(self, context: Context, _after: int | str | None) -> Page:
        """The next uploads, or what stands in their way."""
        started = clock.monotonic_seconds()
        with context.reading() as view:
            self._scan(view, clock.now_ns(), context.settings.drain_ahead_ns)
            jobs = self._jobs(context, view)
        self._spent_seconds += clock.monotonic_seconds() - started
        return Page(jobs, 0 if self._order or self._fresh is not None else None)

    def _scan(self, view: View, now_ns: int, ahead_ns: int) -> None:
        if self._fresh is None and clock.monotonic_seconds() >= self._full_at:
            self._fresh, self._at, self._oldest_ns = Order(self._order), _START, None
            self._spent_seconds = 0.0
            self._stranded_at = (now_ns + ahead_ns, 0)
        order = self._order if self._fresh is None else self._fresh
        is_stranded = self._fresh is not None and self._stranded_at is not None
        after_ns, after_ino = self._stranded_at or self._at if is_stranded else self._at
        rows = view.session.all(
            own.DIRTY,
            after_ns=after_ns,
            after_ino=after_ino,
            until_ns=_FOR_EVER_NS if is_stranded else now_ns,
            most=SCAN_PAGE,
        )
        for ino, sealed_ns, directory, name in rows:
            place = None if directory is None else view.paths.place(directory)
            if place is None:
                continue
            if view.paths.is_held(ino, place, name) and view.paths.key_of(ino) is None:
                continue
            if self._oldest_ns is None:
                self._oldest_ns = min(sealed_ns, now_ns)
            top = place.parts[0] if place.parts else b""
            order.add(ino, top, directory, place.bumped or view.paths.is_bumped(ino))
        if is_stranded:
            self._stranded_at = (rows[-1][1], rows[-1][0]) if len(rows) == SCAN_PAGE else None
            if self._stranded_at is None:
                # Not a page later: what was sealed last goes before what is chosen now.
                self._scan(view, now_ns, ahead_ns)
            return
        if rows:
            self._at = (rows[-1][1], rows[-1][0])
        if len(rows) < SCAN_PAGE and self._fresh is not None:
            self._order, self._fresh, self.oldest_ns = self._fresh, None, self._oldest_ns
            rest_seconds = max(self._poll_seconds, REST * self._spent_seconds)
            self._full_at = clock.monotonic_seconds() + rest_seconds

    def _jobs(self, context: Context, view: View) -> list[Job]:
        jobs: list[Job] = []
        batch = Batch(partial(upload.upload_many, context), upload.BATCH_FILES, upload.BATCH_BYTES)
        total_bytes = 0
        while len(jobs) < JOBS_PAGE and total_bytes < BYTES_PAGE:
            inos = self._order.take(TAKEN_AT_ONCE, self._skip)
            if not inos:
                break
            view.paths.read_names(inos)
            keys = {ino: key for ino in inos if (key := view.paths.key_of(ino)) is not None}
            found = intent.standings(view, keys.items())
            for ino in inos:
                standing = found.get(ino)
                if standing is None or not _is_eligible(context, standing):
                    continue
                jobs.append(_job(context, view, standing, keys[ino], batch))
                total_bytes += standing.file.size
        return jobs


def _is_eligible(context: Context, standing: intent.Standing) -> bool:
    file = standing.file
    return (
        file.is_dirty
        and not file.write_open
        and standing.is_whole
        and not clock.is_ahead(file.drain_after_ns, context.settings.drain_ahead_ns)
    )


def _job(context: Context, view: View, standing: intent.Standing, key: str, batch: Batch) -> Job:
    """The upload of a file, or what must happen before it."""
    file = standing.file
    job = Job(
        JobId(Work.UPLOAD, file.ino, key),
        Lane.UPLOAD,
        frozenset((file.ino, key)),
        partial(upload.upload, context, file, key),
        batch if file.size <= upload.SMALL_BYTES else None,
        (file, key),
        file.size,
    )
    if standing.occupant in (None, file.ino):
        return job
    return make_way(context, view, file.ino, key) or job
