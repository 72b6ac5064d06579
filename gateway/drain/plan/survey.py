"""Survey of dirty files: keeps the order of uploads up to date, and makes the next upload jobs.

The survey reads everything that is dirty when it starts, by age, a page at a time. From then on it
looks at what is new, which is all that can have become eligible:

- files whose time to settle is over, by age;
- files that the journal names: renamed, released by a person, dirty again;
- files that it handed out, until they are in the bucket: their job may have failed, or waited;
- files that wait for others (``DependentFiles``), when those have changed.

Everything is read again when the journal names a directory whose files have other paths now, which
takes at most a tenth of the time (``pacing_seconds``). It is also read again when the journal was
not kept for this drain, and now and then as a safety net, for what none of this finds.

A wait of ``DependentFiles`` ends when something changes that it is for: a file, whose change the
journal names, or a checkpoint, whose row is compared with what it was. So a file that waits costs
nothing but a part of one query in a poll interval. Each is also looked at now and then whatever
happened, because a wait may end with the time.

``HeldCounter`` counts the files that hold patterns keep from the bucket for long. A save renames
its temporary names within minutes. What is held for longer is what a killed save has left, or a
directory of a run whose name a pattern matches by chance: then nothing of the run reaches the
bucket, and its bytes fill the disk.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import select

from gateway.common import clock
from gateway.config.acknowledge import Acknowledge
from gateway.db.compiled import Session, Statement, given_numbers, numbers_of
from gateway.db.journal import BELOW, CHANGED, STORED, Lost, Reader
from gateway.db.statements import checkpoint, inode, object_
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import UPLOADS, Batch, DrainJob, JobId, JobPage, Lane
from gateway.drain.paths import objects_above
from gateway.drain.plan import uploads
from gateway.drain.plan.order import Orders
from gateway.drain.plan.uploads import Complete
from gateway.drain.send import intent

HELD_SECONDS = 3600.0
KEPT = 4096
"""The files that are known one by one, the oldest. Of others there is a count, which is right when
everything was read."""
SHOWN = 5
"""The files that the report names."""
DIRECTORIES_AT_ONCE = 64
DIRECTORIES_KEPT = 4096


class HeldCounter:
    """The files of one drain that patterns hold."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        """Time of the seal and size by inode."""
        self._more = (0, 0)
        """The files that are not known one by one, and their bytes."""
        self._fresh: dict[int, tuple[int, int]] | None = None
        """What an unfinished reading of everything has found, or None."""
        self._fresh_more = (0, 0)
        self._directories: dict[int, None] = {}
        """The directories that patterns hold. They are looked at in turn."""

    def begin(self) -> None:
        """Begin a reading of everything."""
        self._fresh, self._fresh_more = {}, (0, 0)

    def end(self) -> None:
        """End a reading of everything."""
        if self._fresh is not None:
            self._known, self._more, self._fresh = self._fresh, self._fresh_more, None

    def add(self, view: DrainView, ino: int, sealed_ns: int, size: int) -> None:
        """Add a file without a key, unless it has none because a person or retention holds it, or
        because it is in the trash."""
        for temporary_ino, is_held in view.paths.temporary.items():
            if is_held and len(self._directories) < DIRECTORIES_KEPT:
                self._directories.setdefault(temporary_ino)
        place = view.paths.place(ino)
        is_known = place is None or place.is_trashed or view.paths.is_held_by_order(ino)
        if is_known or not size:
            return
        into = self._known if self._fresh is None else self._fresh
        if len(into) < KEPT or ino in into:
            into[ino] = (sealed_ns, size)
        elif self._fresh is not None and _is_long(sealed_ns):
            self._fresh_more = (self._fresh_more[0] + 1, self._fresh_more[1] + size)

    def discard(self, inos: Iterable[int]) -> None:
        """Forget files that changed."""
        for ino in inos:
            self._known.pop(ino, None)
            if self._fresh is not None:
                self._fresh.pop(ino, None)

    def is_released(self, view: DrainView) -> bool:
        """Return whether a directory that was held is held no more, because it was found to be the
        directory of a run."""
        is_released = False
        for ino in list(islice(self._directories, DIRECTORIES_AT_ONCE)):
            del self._directories[ino]
            if view.paths.place(ino) is None:
                continue
            if view.paths.temporary.get(ino):
                self._directories[ino] = None
            else:
                is_released = True
        return is_released

    def shown(self) -> dict[str, Any]:
        """Return what is held for long, for the drain's report."""
        known = list(self._known.items())
        old = sorted(
            (sealed_ns, ino, size) for ino, (sealed_ns, size) in known if _is_long(sealed_ns)
        )
        more_files, more_bytes = self._more
        return {
            "files": len(old) + more_files,
            "bytes": sum(size for *_, size in old) + more_bytes,
            "first": [
                {"ino": ino, "sealed_ns": sealed_ns, "bytes": size}
                for sealed_ns, ino, size in old[:SHOWN]
            ],
        }


def _is_long(sealed_ns: int) -> bool:
    return clock.now_ns() - sealed_ns >= HELD_SECONDS * clock.NS


COMPARED = 2048
"""The things that are waited for of which one look compares the rows."""
LOOKED_AT = 64
"""The files that one look returns although nothing is known to have changed."""

_INOS = given_numbers("inos")
SIGNS = Statement(
    select(
        inode.c.ino,
        inode.c.change,
        inode.c.drained_version,
        inode.c.write_open,
        object_.c.key,
        checkpoint.c.state,
        checkpoint.c.evidence,
    ).select_from(
        _INOS.join(inode, inode.c.ino == _INOS.c.value)
        .outerjoin(object_, object_.c.ino == inode.c.ino)
        .outerjoin(checkpoint, checkpoint.c.ino == inode.c.ino)
    )
)
"""Selects what changes with the end of a wait for an inode."""


class DependentFiles:
    """The files of one drain that wait for others."""

    def __init__(self) -> None:
        self._on: dict[int, int] = {}
        """The inode that each file waits for. What was not looked at for the longest time is
        first."""
        self._files: defaultdict[int, set[int]] = defaultdict(set)
        """The files that wait for each inode."""
        self._signs: dict[int, Any] = {}
        """What was last seen of each inode that is waited for. What was not compared for the
        longest time is first."""

    def __len__(self) -> int:
        return len(self._on)

    def __contains__(self, ino: int) -> bool:
        return ino in self._on

    def clear(self) -> None:
        """Forget all files."""
        self._on.clear()
        self._files.clear()
        self._signs.clear()

    def add(self, session: Session, ino: int, on: int) -> None:
        """Add a file that waits for an inode."""
        self.discard((ino,))
        self._on[ino] = on
        self._files[on].add(ino)
        if on not in self._signs:
            self._signs[on] = _signs(session, [on]).get(on)

    def discard(self, inos: Iterable[int]) -> None:
        """Forget files that wait."""
        for ino in inos:
            on = self._on.pop(ino, None)
            if on is None:
                continue
            self._files[on].discard(ino)
            if not self._files[on]:
                del self._files[on], self._signs[on]

    def of(self, touched: Iterable[int]) -> set[int]:
        """Return the files that wait for inodes that changed."""
        return {ino for on in touched if on in self._files for ino in self._files[on]}

    def due(self, session: Session) -> Collection[int]:
        """Return the files to look at now."""
        compared = list(islice(self._signs, COMPARED))
        signs = _signs(session, compared) if compared else {}
        due = set(islice(self._on, LOOKED_AT))
        for on in compared:
            sign = signs.get(on)
            if sign != self._signs.pop(on):
                due |= self._files[on]
            self._signs[on] = sign
        return due


def _signs(session: Session, inos: Collection[int]) -> dict[int, Any]:
    return {row[0]: tuple(row) for row in session.all(SIGNS, inos=numbers_of(inos))}


PAUSE_RATIO = 9
"""The pause after a reading takes this many times as long as the reading."""
STEP_MAX_SECONDS = 1.0
"""A step of a reading takes milliseconds. One that seems to take longer waited for the database, or
the machine was paused. Without this bound, the drain would then pause for nine times as long as it
was kept from its work."""


def spent_seconds(began: float) -> float:
    """Return the time that a step of a reading took.

    Args:
        began: monotonic seconds.
    """
    return min(clock.monotonic_seconds() - began, STEP_MAX_SECONDS)


def pacing_seconds(spent: float, poll_seconds: float) -> float:
    """Return the pause after a reading.

    Args:
        spent: the seconds of all its steps.
        poll_seconds: the shortest pause.
    """
    return max(poll_seconds, PAUSE_RATIO * spent)


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


class DirtySurvey:
    """The dirty files of one drain.

    Args:
        skip: returns whether a file cannot be sent now (a job runs, or its next try is not due).
        poll_seconds: the least time between two readings of everything, and between two looks at
            what was handed out.
        acknowledge: the rules about files that clients wait for.
        request_of: returns the request of the admin API by which a person has a job tried again.
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
        self._behind = DependentFiles()
        self.held = HeldCounter()
        self._fresh: Orders | None = None
        """The order that an unfinished reading of everything fills, or None."""
        self._at = _START
        self._stranded_at: tuple[int, int] | None = None
        """The position among times that are too far ahead to be true. A reading of everything
        begins there."""
        self._full_at = 0.0
        """Monotonic seconds of the next reading of everything."""
        self._paused_until = 0.0
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
        self._full_at = self._paused_until = 0.0
        self._fresh = self._reader = None
        self._behind.clear()

    def plan(
        self, context: Context, _after: int | str | None, lanes: Sequence[Lane] = UPLOADS
    ) -> JobPage:
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
            return JobPage([], 0)
        # A drain that plans in each poll interval follows the journal by that.
        self._follow_at = clock.monotonic_seconds() + 2 * self._poll_seconds
        has_more = self._order.waits_for(lanes) or self._fresh is not None or not is_last
        return JobPage(jobs, 0 if has_more else None)

    def _plan(
        self, context: Context, now_ns: int, lanes: Sequence[Lane]
    ) -> tuple[list[DrainJob], bool]:
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

    def _read(self, view: DrainView, reader: Reader, now_ns: int, ahead_ns: int) -> bool:
        """Read on by age and in the journal, for a bounded time. Returns False if the journal has
        more. Raises Lost."""
        until = clock.monotonic_seconds() + READ_SECONDS
        while True:
            self._scan(view, now_ns, ahead_ns)
            is_last = self._follow(view, reader, ahead_ns)
            is_done = is_last and self._fresh is None
            if is_done or clock.monotonic_seconds() >= until:
                return is_last

    def _scan(self, view: DrainView, now_ns: int, ahead_ns: int) -> None:
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
            pause = pacing_seconds(self._spent_seconds, self._poll_seconds)
            self._paused_until = clock.monotonic_seconds() + pause
            self._full_at = max(self._full_at, self._paused_until)

    def _follow(self, view: DrainView, reader: Reader, ahead_ns: int) -> bool:
        """Look at what the journal names next. Returns False if there is more of it. Raises
        Lost."""
        touched = reader.read(view.session, SCAN_PAGE)
        inos = {
            touched_inode.ino
            for touched_inode in touched
            if touched_inode.what & (CHANGED | STORED)
        }
        self._look(view, inos | self._behind.of(inos), ahead_ns)
        if any(touched_inode.what & BELOW for touched_inode in touched):
            # This also holds during such a reading: it may have passed files that are eligible only
            # now.
            self._full_at = self._paused_until
        return reader.is_at_end

    def _look_again(self, view: DrainView, now_ns: int, ahead_ns: int) -> None:
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
            self._full_at = self._paused_until
        self._look_for_oldest(view, now_ns)
        if self._order:
            self._order.put_first(self._complete.places(view))

    def _look(self, view: DrainView, inos: set[int], ahead_ns: int, is_again: bool = False) -> None:
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
        view: DrainView,
        rows: Sequence[Sequence[Any]],
        orders: Sequence[Orders],
        is_again: bool = False,
    ) -> None:
        """Add what may be drained to orders. What waits there keeps its place.

        Args:
            rows: rows of DIRTY.
            is_again: whether they were taken before.
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

    def _look_for_oldest(self, view: DrainView, now_ns: int) -> None:
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

    def _jobs(self, context: Context, view: DrainView, lane: Lane) -> list[DrainJob]:
        jobs: list[DrainJob] = []
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
            standings = intent.standings(view, keys.items())
            crossed = objects_above(view.session, context.prefix, keys.values())
            for ino in inos:
                standing = standings.get(ino)
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
                way = uploads.UploadWay(key, lane, key in crossed)
                jobs.append(uploads.job_of(context, view, standing, way, batch, request))
                total_bytes += standing.file.size
        return jobs

    def _is_skipped(self, ino: int) -> bool:
        is_skipped = self._skip(ino)
        if is_skipped:
            self._out[ino] = None
        return is_skipped
