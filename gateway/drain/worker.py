"""The drain's loop: plans, claims, runs, for ever.

Invariant: two jobs that share an inode or a key never run at the same time, in this drain or in
another (lease.py). Whatever a crash interrupts, the rows in the database name it, and the next
start carries on from them.

The main thread plans; uploads and chores (moves, deletions, clean-up) run on threads of their own.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from gateway import clock
from gateway.db.engine import Database
from gateway.drain import doubt, garbage, plan
from gateway.drain.context import Context
from gateway.drain.health import BucketState, Health
from gateway.drain.lease import Claims
from gateway.drain.paths import is_unfinished
from gateway.drain.plan import Job, Kind, Lane, Sweep
from gateway.drain.refusals import Refusals
from gateway.drain.renames import Renames
from gateway.drain.retries import Retries, error_of
from gateway.drain.sealed import Sealed
from gateway.drain.senders import Senders
from gateway.drain.snapshots import Snapshots
from gateway.drain.status import Counters, Progress, StatusFile
from gateway.drain.survey import REST, Survey
from gateway.drain.upload import Outcome
from gateway.errors import (
    BucketError,
    DataFileError,
    LeaseLost,
    NamespaceError,
    ObjectRefused,
    StoreRefused,
    StoreUnavailable,
)
from gateway.objectstore.pace import Pace
from gateway.objectstore.s3 import S3Store
from gateway.settings import Settings

log = logging.getLogger("drain")

CHORES = 8
"""Threads for moves, deletions and clean-up: a copy is all waiting for the store."""
READERS = 2
"""Threads for checksums: hashing a large file must not hold up a deletion."""
A_DAY = timedelta(days=1)
LOOK_AGAIN = timedelta(minutes=10)
"""After a look for unfinished multipart uploads that failed."""
QUEUED_PER_THREAD = 2
CLAIMED_AT_ONCE = 64
PAGES_PER_TURN = 16
"""Of one kind of work, before the others have their turn."""
STOP_SECONDS = 5.0
PAUSE_MIN_SECONDS = 0.05
FAILURES_SHOWN = 20


class Drain:
    """A drain of one data directory.

    Parameters: settings; store, stop for tests. Raises NamespaceError.
    """

    def __init__(
        self,
        settings: Settings,
        store: S3Store | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        settings.run_dir.mkdir(parents=True, exist_ok=True)
        drain = settings.drain
        self._settings = settings
        stop = threading.Event() if stop is None else stop
        self._progress = Progress()
        self.counters = Counters()
        self._pace = Pace(drain, drain.workers * drain.part_concurrency + CHORES, stop)
        store = S3Store(settings, pace=self._pace) if store is None else store
        self._senders = Senders(settings, store, self._pace, stop)
        self._context = Context(
            settings,
            Database(settings.database_url),
            store,
            stop,
            self._progress.moved,
            senders=self._senders,
        )
        self.health = Health(settings.bucket.name, drain.retry_max_seconds)
        self.retries = Retries(drain.retry_max_seconds)
        self._refusals = Refusals()
        self._started = datetime.now(UTC)
        self._looked: datetime | None = None
        """When unfinished multipart uploads were looked for, of earlier runs at first."""
        self._wake = threading.Event()
        self._forget_at = 0.0
        """Monotonic seconds of the next look for failures of what is gone."""
        self._lease_lost = threading.Event()
        self._claims = Claims(self._context, self.retries, self._on_lease_lost, self._pace.share)
        self._done_lock = threading.Lock()
        self.done = 0
        """Jobs that did something."""
        threads = {Lane.UPLOAD: drain.workers, Lane.CHORE: CHORES, Lane.DISK: READERS}
        self._pools = {
            lane: ThreadPoolExecutor(count, thread_name_prefix=f"drain-{lane.value}")
            for lane, count in threads.items()
        }
        self._slots = {lane: count * QUEUED_PER_THREAD for lane, count in threads.items()}
        self._running: dict[Lane, set[Future[None]]] = {lane: set() for lane in Lane}
        self._survey = Survey(self._is_out_of_reach, drain.poll_seconds)
        self._renames = Renames(drain.poll_seconds, drain.retry_max_seconds)
        self._sealed = Sealed(drain.settle_seconds, drain.poll_seconds)
        self._snapshots = Snapshots(settings, partial(self.counters.count, "snapshots_missed"))
        # Order matters only for the bucket's sake: what is garbage goes before new bytes come.
        self._sweeps = [
            Sweep(plan.settlements, Kind.CLEAN_UP, Lane.CHORE),
            Sweep(plan.doubts, Kind.CLEAN_UP, Lane.CHORE),
            Sweep(plan.deletions, Kind.DELETE, Lane.CHORE),
            Sweep(self._renames.plan, Kind.COPY, Lane.CHORE),
            Sweep(self._survey.plan, Kind.UPLOAD, Lane.UPLOAD),
        ]
        if drain.max_open_age_seconds:
            # Before the uploads, which take every thread while there are any.
            self._sweeps.insert(-1, Sweep(self._snapshots.plan, Kind.SNAPSHOT, Lane.UPLOAD))
        if drain.checksum_at_seal:
            self._sweeps.insert(0, Sweep(self._sealed.plan, Kind.CHECKSUM, Lane.DISK))
        self._enter()
        self._status = StatusFile(settings.run_dir / "drain.json", self._report)

    def run(self) -> None:
        """Work until stop is set; then return soon, with everything safe for a restart."""
        while not self._context.stop.is_set():
            self._wake.clear()
            try:
                if self._lease_lost.is_set():
                    self._enter()
                pause_seconds = self._work()
            except NamespaceError as exc:
                log.warning("cannot read what is to be done: %s", exc)
                pause_seconds = self._settings.drain.retry_max_seconds
            except LeaseLost:
                self._lease_lost.set()
                pause_seconds = 0.0
            # A job that ends wakes us: its slot and its claims are free.
            self._wake.wait(pause_seconds)
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        if not wait(self._futures(), timeout=STOP_SECONDS).not_done:
            self._claims.leave()

    def cycle(self) -> int:
        """One pass over everything, for tests: returns when its jobs ended, with how many did
        something."""
        before = self.done
        self._restart()
        for sweep in self._sweeps:
            if sweep.kind.asks_bucket and not self._is_bucket_ready():
                break
            # The look for unfinished uploads: it sees the rows as the last run left them.
            wait(self._futures())
            sweep.after, sweep.next_at = None, 0.0
            while sweep.planned or sweep.held or sweep.next_at < math.inf:
                if not self.health.admits(sweep.kind):
                    break
                self._advance(sweep, math.inf)
                wait(self._futures())
        self._forget_at = 0.0
        self._forget_gone()
        self._status.write()
        return self.done - before

    def wake(self) -> None:
        """Look for work, or for the stop, now."""
        self._wake.set()

    def close(self) -> None:
        """Wait for what runs and let go of everything."""
        self._context.stop.set()
        for pool in (*self._pools.values(), self._context.copiers):
            pool.shutdown(cancel_futures=True)
        self._senders.close()
        self.report_stopped()
        self._claims.leave()
        self._context.database.close()

    def report_stopped(self) -> None:
        """Write the last report."""
        self._context.stop.set()
        self._status.close()

    def _enter(self) -> None:
        """Begin a lease. What was planned under an earlier one is planned again."""
        self._lease_lost.clear()
        for sweep in self._sweeps:
            sweep.planned.clear()
            sweep.held.clear()
            sweep.after, sweep.next_at = None, 0.0
        self._restart()
        self._context = replace(self._context, generation=self._claims.enter())

    def _restart(self) -> None:
        self._survey.restart()
        self._renames.restart()
        self._sealed.restart()

    def _on_lease_lost(self) -> None:
        log.error("lost the lease: another drain has taken over what this one was doing")
        self._lease_lost.set()
        self._wake.set()

    def _work(self) -> float:
        """Submit what there is; returns for how many seconds nothing else is due."""
        poll_seconds = self._settings.drain.poll_seconds
        if not self._is_bucket_ready():
            local = [sweep for sweep in self._sweeps if not sweep.kind.asks_bucket]
            for sweep in local:
                self._advance(sweep, poll_seconds)
            pause_seconds = max(self.health.pause_seconds(), PAUSE_MIN_SECONDS)
            return min(poll_seconds, pause_seconds) if local else pause_seconds
        submitted = sum(self._advance(sweep, poll_seconds) for sweep in self._sweeps)
        self._forget_gone()
        if not submitted and not any(self._running.values()):
            self.health.worked()
            self._claims.hold([])
        unread = any(
            sweep.after is not None and self._free(sweep.lane) > 0 for sweep in self._admitted()
        )
        return 0.0 if unread else poll_seconds

    def _forget_gone(self) -> None:
        began = clock.monotonic_seconds()
        if not len(self.retries) or began < self._forget_at:
            return
        with self._context.reading() as view:
            self.retries.forget(partial(is_unfinished, view.session, view.paths))
        spent_seconds = clock.monotonic_seconds() - began
        self._forget_at = began + max(self._settings.drain.poll_seconds, REST * spent_seconds)

    def _admitted(self) -> list[Sweep]:
        return [sweep for sweep in self._sweeps if self.health.admits(sweep.kind)]

    def _is_bucket_ready(self) -> bool:
        store, health = self._context.store, self.health
        if health.needs_check() and health.pause_seconds() > 0:
            return not health.stops_all()
        try:
            if health.needs_check():
                if health.state == BucketState.REFUSED:
                    # A person may have corrected the credentials meanwhile.
                    store.reload()
                    self._senders.reload()
                store.check()
                health.checked()
                for sweep in self._sweeps:
                    sweep.next_at = 0.0
            self._look_for_unrecorded()
        except BucketError as exc:
            health.failed(exc)
            return False
        return True

    def _look_for_unrecorded(self) -> None:
        """Once a day, beside all other work: a store that is slow to list must not stop it."""
        now = datetime.now(UTC)
        if self._looked is not None and now - self._looked < A_DAY:
            return
        self._looked = now
        look = self._pools[Lane.CHORE].submit(self._abort_unrecorded, now - A_DAY)
        self._running[Lane.CHORE].add(look)

    def _abort_unrecorded(self, aged: datetime) -> None:
        try:
            garbage.abort_unrecorded(self._context, self._started, aged)
        except Exception as exc:
            # Not every server can list uploads, and not every policy allows it. Nothing depends
            # on it: it only frees space that a crash of the drain left occupied.
            log.warning("cannot look for unfinished multipart uploads: %s", exc)
            if not isinstance(exc, (StoreRefused, ObjectRefused)):
                self._looked = aged + LOOK_AGAIN

    def _advance(self, sweep: Sweep, pause_seconds: float) -> int:
        """Submit what fits; returns how many jobs that were."""
        submitted = 0
        for _ in range(PAGES_PER_TURN if self.health.admits(sweep.kind) else 0):
            while sweep.held and self._free(sweep.held[0].lane) > 0:
                submitted += self._submit(self._take(sweep.held))
            if sweep.held or self._free(sweep.lane) <= 0:
                break
            if not sweep.planned and not self._plan(sweep, pause_seconds):
                break
            sweep.held.extend(self._hold(sweep.planned))
        return submitted

    def _hold(self, planned: deque[Job]) -> list[Job]:
        """Claim the next of the planned jobs that may run now."""
        jobs: list[Job] = []
        while planned and len(jobs) < CLAIMED_AT_ONCE:
            job = planned.popleft()
            busy = any(map(self._claims.is_busy, job.claims))
            if not busy and self.retries.is_due(job.title) and self.health.admits(job.kind):
                jobs.append(job)
        return self._claims.hold(jobs) if jobs else []

    def _plan(self, sweep: Sweep, pause_seconds: float) -> bool:
        """Plan the next page. False: the rows were all read not long ago."""
        if sweep.after is None and clock.monotonic_seconds() < sweep.next_at:
            return False
        page = sweep.plan(self._context, sweep.after)
        sweep.planned.extend(page.jobs)
        sweep.after = page.after
        if page.after is None:
            sweep.next_at = clock.monotonic_seconds() + pause_seconds
        return True

    def _free(self, lane: Lane) -> int:
        running = self._running[lane]
        running -= {future for future in running if future.done()}
        return self._slots[lane] - len(running)

    def _futures(self) -> set[Future[None]]:
        return {future for running in self._running.values() for future in running}

    def _take(self, held: deque[Job]) -> list[Job]:
        """The next job, and those that run together with it, that no thread is at."""
        first = held[0]
        taken: list[Job] = []
        size = 0
        while held and (held[0] is first or (first.batch and held[0].batch is first.batch)):
            job = held[0]
            if first.batch and taken and not first.batch.has_room(len(taken), size + job.size):
                break
            held.popleft()
            if self.health.admits(job.kind) and self._claims.take(job):
                self.health.begun(job.kind)
                taken.append(job)
                size += job.size
            else:
                self._claims.drop(job, self._claims.generation)
        return taken

    def _submit(self, jobs: list[Job]) -> int:
        if jobs:
            pool = self._pools[jobs[0].lane]
            future = pool.submit(self._run_jobs, jobs, self._claims.generation)
            self._running[jobs[0].lane].add(future)
        return len(jobs)

    def _is_out_of_reach(self, ino: int) -> bool:
        return self._claims.is_busy(ino) or not self.retries.is_file_due(ino)

    def _run_jobs(self, jobs: list[Job], generation: int) -> None:
        try:
            if self._context.stop.is_set() or self.health.stops(jobs[0].kind):
                return
            for job, result in zip(jobs, plan.run_jobs(jobs), strict=True):
                if isinstance(result, Exception):
                    self._failed(job, generation, result)
                    continue
                is_done = result == Outcome.DONE
                self.retries.worked(job.title, job.ino if is_done else 0)
                if is_done:
                    if job.kind.asks_bucket:
                        self._refusals.worked(job.kind, job.claims)
                        self.health.worked(job.kind)
                    self._count(job)
        finally:
            self.health.ended(jobs[0].kind)
            for job in jobs:
                self._claims.ended(job, generation)
                for claim in job.claims:
                    if isinstance(claim, str):
                        self._progress.ended(claim)
            self._wake.set()

    def _failed(self, job: Job, generation: int, exc: Exception) -> None:
        if isinstance(exc, LeaseLost):
            return self._note_doubts(job)
        if isinstance(exc, StoreRefused):
            self._refused(job, exc)
        elif self._claims.is_lost(generation):
            return self._note_doubts(job)
        if isinstance(exc, (BucketError, DataFileError, NamespaceError)):
            passing = isinstance(exc, (StoreUnavailable, NamespaceError))
            error = error_of(exc)
            log.log(logging.WARNING if passing else logging.ERROR, "%s: %s", job.title, error)
        else:
            # One job that fails in a way nobody thought of must not stop the others.
            error = f"{type(exc).__name__}: {exc}"
            log.error("%s: %s", job.title, error, exc_info=exc)
        if isinstance(exc, StoreUnavailable):
            self.health.doubted()
        self.retries.failed(job.title, job.about, error)
        return self.counters.count("retries")

    def _refused(self, job: Job, exc: StoreRefused) -> None:
        on_trial = self.health.is_refused(job.kind)
        if self._refusals.refused(job.kind, job.claims) or on_trial:
            if on_trial:
                self._refusals.tried(job.kind)
            self.health.failed(exc, job.kind)
        else:
            # Whether it is the bucket as a whole, a check tells.
            self.health.doubted()

    def _count(self, job: Job) -> None:
        with self._done_lock:
            self.done += 1
        if job.kind != Kind.CLEAN_UP:
            self.counters.count(job.kind.value)

    def _note_doubts(self, job: Job) -> None:
        log.warning("%s: given up, the lease is lost", job.title)
        try:
            doubt.note(replace(self._context, generation=None), job.claims)
        except NamespaceError as exc:
            log.error("%s: cannot note that its keys must be looked at: %s", job.title, exc)

    def _report(self) -> dict[str, Any]:
        oldest_ns = self._survey.oldest_ns
        return {
            "state": "stopped" if self._context.stop.is_set() else "running",
            "bucket": self.health.shown(),
            "uploads": self._progress.shown(),
            "failures": self.retries.shown(FAILURES_SHOWN),
            "failing": len(self.retries),
            "counters": {**asdict(self.counters), **self._pace.counters()},
            "waiting_files": len(self._survey),
            "oldest_sealed_ns": oldest_ns,
            "restless_files": self._snapshots.restless(),
            "requests_at_once": self._pace.places,
        }
