"""Keeps the order of the dirty files up to date, and makes upload jobs of the next ones.

The survey reads everything that is dirty when it starts, by age, a page at a time. From then on it
looks at what is new, which is all that can have become eligible:

- files whose time to settle is over, by age;
- files that the journal names: renamed, released by a person, dirty again;
- files that it handed out, until they are in the bucket: their job may have failed, or waited;
- files that wait for others (``behind.py``), when those have changed.

Everything is read again when the journal names a directory whose files have other paths now, which
takes at most a tenth of the time. It is also read again when the journal was not kept for this
drain, and now and then as a safety net, for what none of this finds.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from gateway import clock
from gateway.acknowledge import Acknowledge
from gateway.db.compiled import numbers_of
from gateway.db.journal import BELOW, CHANGED, STORED, Lost, Reader
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.job import UPLOADS, Batch, Job, JobId, Lane, Page
from gateway.drain.paths import objects_above
from gateway.drain.plan import uploads
from gateway.drain.plan.behind import Behind
from gateway.drain.plan.complete import Complete
from gateway.drain.plan.held import Held
from gateway.drain.plan.orders import Orders
from gateway.drain.plan.rest import rest_seconds, spent_seconds
from gateway.drain.send import intent

log = logging.getLogger("drain")

SCAN_PAGE = 2048
JOBS_PAGE = 64
"""How far ahead files are chosen, with BYTES_PAGE. What is sealed later waits for these files."""
BYTES_PAGE = 1 << 30
TAKEN_AT_ONCE = 8
PICKED_AT_ONCE = 4096
"""The files that one plan looks at. Those that need no upload any more give no job."""
READ_SECONDS = 0.05
"""The time for which one plan reads on. Plans are rare while large files are sent."""
OLDEST_PAGE = 512
EVERYTHING_SECONDS = 600.0
"""The time between two readings of everything as a safety net."""
SAVE_SECONDS = 10.0
SAVE_ROWS = 256
"""The position in the journal is saved after so many seconds or rows, in a transaction that other
writers wait for. It prunes more rows than that."""

_START = (0, 0)
_FOR_EVER_NS = (1 << 63) - 1
_END = (_FOR_EVER_NS, 0)


class Survey:
    """The dirty files of one drain.

    Parameters: skip, which returns whether a file cannot be sent now (a job runs, or its next try
    is not due); poll_seconds, the least time between two readings of everything, and between two
    looks at what was handed out; acknowledge, the rules about files that clients wait for;
    request_of, which returns the request of the admin API by which a person has a job tried again.
    """

    def __init__(
        self,
        skip: Callable[[int], bool],
        poll_seconds: float,
        acknowledge: Acknowledge | None = None,
        request_of: Callable[[JobId], str | None] = lambda _job: None,
    ) -> None:
        self._skip = skip
        self._request_of = request_of
        self._acknowledge = acknowledge
        self._poll_seconds = poll_seconds
        self._order = Orders()
        self._complete = Complete()
        self._behind = Behind()
        self.held = Held()
        self._fresh: Orders | None = None
        """The order that an unfinished reading of everything fills, or None."""
        self._at = _START
        self._stranded_at: tuple[int, int] | None = None
        """The position among times that are too far ahead to be true. A reading of everything
        begins there."""
        self._full_at = 0.0
        """Monotonic seconds of the next reading of everything."""
        self._rest_until = 0.0
        """Monotonic seconds before which that reading does not begin, whatever the journal says."""
        self._spent_seconds = 0.0
        self._now_ns = 0
        self._reader: Reader | None = None
        """The reader of the journal, or None if this drain has no position, or has lost it."""
        self._save_at = 0.0
        self._follow_at = 0.0
        self._out: dict[int, None] = {}
        """Files that were handed out or skipped, and are not known to be in the bucket. They are
        looked at in turn."""
        self._look_at = 0.0
        self.oldest_ns: int | None = None
        """The time when the oldest file that may be drained was sealed, as last read."""
        self._oldest_at = _END
        """No file before this position may be drained, as far as everything was read."""

    def __len__(self) -> int:
        """Return the number of files that wait."""
        return max(len(self._order), 0 if self._fresh is None else len(self._fresh))

    def restart(self) -> None:
        """Read everything again, now, and follow the journal from now on."""
        self._full_at = self._rest_until = 0.0
        self._fresh = self._reader = None
        self._behind.clear()

    def plan(
        self, context: Context, _after: int | str | None, lanes: Sequence[Lane] = UPLOADS
    ) -> Page:
        """Plan the next uploads of some lanes, or what stands in their way."""
        now_ns = clock.now_ns()
        if now_ns < self._now_ns:
            # The clock went back: what was sealed before has times that only a reading of
            # everything finds.
            self._full_at = 0.0
        self._now_ns = now_ns
        try:
            with self._restarting():
                jobs, is_last = self._plan(context, now_ns, lanes)
        except Lost:
            return Page([], 0)
        # A drain that plans in each poll interval follows the journal by that.
        self._follow_at = clock.monotonic_seconds() + 2 * self._poll_seconds
        has_more = self._order.waits_for(lanes) or self._fresh is not None or not is_last
        return Page(jobs, 0 if has_more else None)

    def _plan(self, context: Context, now_ns: int, lanes: Sequence[Lane]) -> tuple[list[Job], bool]:
        """Return the next jobs, and whether the journal was read to its end. Raises Lost."""
        ahead_ns = context.settings.drain_ahead_ns
        if self._reader is None:
            # The position is set before the reading of everything, so that no change is missed
            # between them.
            self._reader = Reader(f"drain {context.lease or 0:x}")
            with context.writing() as view:
                self._reader.begin(view.session, context.lease)
        with context.reading() as view:
            is_last = self._read(view, self._reader, now_ns, ahead_ns)
            self._look_again(view, now_ns, ahead_ns)
            jobs = [job for lane in lanes for job in self._jobs(context, view, lane)]
        self._save(context, self._reader)
        return jobs, is_last

    def follow(self, context: Context) -> None:
        """Follow the journal also while nothing is planned, because the threads are busy or the
        bucket is away. Otherwise a rename or a word of a person would wait behind the rows of
        hours."""
        if self._reader is None or clock.monotonic_seconds() < self._follow_at:
            return
        try:
            with self._restarting():
                with context.reading() as view:
                    ahead_ns = context.settings.drain_ahead_ns
                    is_last = self._read(view, self._reader, clock.now_ns(), ahead_ns)
                self._save(context, self._reader)
        except Lost:
            return
        self._follow_at = clock.monotonic_seconds() + (self._poll_seconds if is_last else 0.0)

    @contextmanager
    def _restarting(self) -> Iterator[None]:
        """Count the time of a reading, and restart after an error: rows that were read and not
        looked at would not be read again."""
        started = clock.monotonic_seconds()
        try:
            yield
        except BaseException as exc:
            if isinstance(exc, Lost):
                log.warning("%s: everything that is dirty is read again", exc)
            self.restart()
            raise
        self._spent_seconds += spent_seconds(started)

    def _read(self, view: View, reader: Reader, now_ns: int, ahead_ns: int) -> bool:
        """Read on by age and in the journal, for a bounded time. Returns False if the journal has
        more. Raises Lost."""
        until = clock.monotonic_seconds() + READ_SECONDS
        while True:
            self._scan(view, now_ns, ahead_ns)
            is_last = self._follow(view, reader, ahead_ns)
            is_done = is_last and self._fresh is None
            if is_done or clock.monotonic_seconds() >= until:
                return is_last

    def _scan(self, view: View, now_ns: int, ahead_ns: int) -> None:
        """Read the next page by age: of everything, or of what is due since the last page."""
        if self._fresh is None and clock.monotonic_seconds() >= self._full_at:
            self._fresh, self._at, self._oldest_at = Orders(self._order), _START, _END
            self._full_at = clock.monotonic_seconds() + EVERYTHING_SECONDS
            self._spent_seconds = 0.0
            self._stranded_at = (now_ns + ahead_ns, 0)
            self.held.begin()
        is_stranded = self._fresh is not None and self._stranded_at is not None
        after_ns, after_ino = self._stranded_at or self._at if is_stranded else self._at
        rows = view.session.all(
            own.DIRTY,
            after_ns=after_ns,
            after_ino=after_ino,
            until_ns=_FOR_EVER_NS if is_stranded else now_ns,
            most=SCAN_PAGE,
        )
        self._add(view, rows, [self._order if self._fresh is None else self._fresh])
        if is_stranded:
            self._stranded_at = (rows[-1][1], rows[-1][0]) if len(rows) == SCAN_PAGE else None
            if self._stranded_at is None:
                # The next page is read now: what was sealed last goes before what is chosen now.
                self._scan(view, now_ns, ahead_ns)
            return
        if rows:
            self._at = (rows[-1][1], rows[-1][0])
        if len(rows) < SCAN_PAGE and self._fresh is not None:
            self._order, self._fresh = self._fresh, None
            self._order.put_first(self._complete.places(view))
            self.held.end()
            rest = rest_seconds(self._spent_seconds, self._poll_seconds)
            self._rest_until = clock.monotonic_seconds() + rest
            self._full_at = max(self._full_at, self._rest_until)

    def _follow(self, view: View, reader: Reader, ahead_ns: int) -> bool:
        """Look at what the journal names next. Returns False if there is more of it. Raises
        Lost."""
        touched = reader.read(view.session, SCAN_PAGE)
        inos = {one.ino for one in touched if one.what & (CHANGED | STORED)}
        self._look(view, inos | self._behind.of(inos), ahead_ns)
        if any(one.what & BELOW for one in touched):
            # This also holds during such a reading: it may have passed files that are eligible only
            # now.
            self._full_at = self._rest_until
        return reader.is_at_end

    def _look_again(self, view: View, now_ns: int, ahead_ns: int) -> None:
        """Look again at what was handed out, and for the oldest file, once in a poll interval."""
        if clock.monotonic_seconds() < self._look_at:
            return
        self._look_at = clock.monotonic_seconds() + self._poll_seconds
        inos = list(islice(self._out, SCAN_PAGE))
        for ino in inos:
            del self._out[ino]
        busy = set(filter(self._skip, inos))
        self._out.update(dict.fromkeys(busy))
        due = self._behind.due(view.session)
        self._look(view, {*inos, *due} - busy, ahead_ns, is_again=True)
        if self.held.is_released(view):
            self._full_at = self._rest_until
        self._look_for_oldest(view, now_ns)
        if self._order:
            self._order.put_first(self._complete.places(view))

    def _look(self, view: View, inos: set[int], ahead_ns: int, is_again: bool = False) -> None:
        """Look at inodes. Files that are to be drained join the order. All others leave it: they
        are deleted, open, or in the bucket, and the journal names them when that changes."""
        if not inos:
            return
        self._behind.discard(inos)
        self.held.discard(inos)
        rows = view.session.all(own.DIRTY_OF, inos=numbers_of(inos))
        orders = [self._order] if self._fresh is None else [self._order, self._fresh]
        for ino in inos.difference(row[0] for row in rows):
            self._out.pop(ino, None)
            for order in orders:
                order.discard(ino)
        # Files that settle are found by age when their time is over.
        due = [row for row in rows if not clock.is_ahead(row[1], ahead_ns)]
        self._add(view, due, orders, is_again=is_again)

    def _add(
        self,
        view: View,
        rows: Sequence[Sequence[Any]],
        orders: Sequence[Orders],
        is_again: bool = False,
    ) -> None:
        """Add what may be drained to orders. What waits there keeps its place.

        Parameters: rows, of DIRTY; is_again, whether they were taken before.
        """
        for ino, sealed_ns, directory, name, size in rows:
            place = None if directory is None else view.paths.place(directory)
            if place is None or ino in self._behind:
                continue
            if view.paths.is_held(ino, place, name) and view.paths.key_of(ino) is None:
                self.held.add(view, ino, sealed_ns, size)
                continue
            self._oldest_at = min(self._oldest_at, (sealed_ns, ino - 1))
            top = place.parts[0] if place.parts else b""
            bumped = place.bumped or view.paths.is_bumped(ino)
            if not bumped and self._acknowledge:
                bumped = self._acknowledge.covers((*place.parts, name))
            for order in orders:
                order.add(ino, top, directory, size, bumped, is_again)

    def _look_for_oldest(self, view: View, now_ns: int) -> None:
        after_ns, after_ino = self._oldest_at
        rows = view.session.all(
            own.DIRTY, after_ns=after_ns, after_ino=after_ino, until_ns=now_ns, most=OLDEST_PAGE
        )
        for ino, sealed_ns, *_name in rows:
            if view.paths.key_of(ino) is not None:
                self.oldest_ns = sealed_ns
                return
            self._oldest_at = (sealed_ns, ino)
        if len(rows) < OLDEST_PAGE:
            self.oldest_ns = None

    def _save(self, context: Context, reader: Reader) -> None:
        """Save the position in the journal when it is due. Raises Lost."""
        now = clock.monotonic_seconds()
        if reader.unsaved >= SAVE_ROWS or (reader.unsaved and now >= self._save_at):
            self._save_at = now + SAVE_SECONDS
            with context.writing() as view:
                reader.save(view.session)

    def _jobs(self, context: Context, view: View, lane: Lane) -> list[Job]:
        jobs: list[Job] = []
        batches = defaultdict[str | None, Batch](partial(uploads.batch_of, context))
        total_bytes, picked = 0, 0
        while len(jobs) < JOBS_PAGE and total_bytes < BYTES_PAGE and picked < PICKED_AT_ONCE:
            inos = self._order.take(lane, TAKEN_AT_ONCE, self._is_skipped)
            if not inos:
                break
            picked += len(inos)
            self._out.update(dict.fromkeys(inos))
            view.paths.read_names(inos)
            keys = {ino: key for ino in inos if (key := view.paths.key_of(ino)) is not None}
            found = intent.standings(view, keys.items())
            crossed = objects_above(view.session, context.prefix, keys.values())
            for ino in inos:
                standing = found.get(ino)
                if standing is None or not uploads.is_eligible(context, standing):
                    continue
                if (wait := view.precedence.wait_of(standing.file)) is not None:
                    self._behind.add(view.session, ino, wait.on)
                    del self._out[ino]
                    continue
                request = view.paths.request_of(ino) or self._request_of(
                    uploads.id_of(ino, keys[ino])
                )
                key, batch = keys[ino], batches[request]
                way = uploads.Way(key, lane, key in crossed)
                jobs.append(uploads.job_of(context, view, standing, way, batch, request))
                total_bytes += standing.file.size
        return jobs

    def _is_skipped(self, ino: int) -> bool:
        is_skipped = self._skip(ino)
        if is_skipped:
            self._out[ino] = None
        return is_skipped
