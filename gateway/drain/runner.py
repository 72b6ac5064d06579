"""Runner of jobs: takes them from the plans, claims them, and runs each in its group of threads.

Each ``job.Lane`` is a group of threads. The end of a job decides whether it is tried again, and
whether it stops a kind of work. What the drain does is counted for its report (run/drain.json).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, ParamSpec

from gateway.common import clock, logs
from gateway.common.errors import (
    DataFileError,
    LeaseLost,
    NamespaceError,
    OtherOwner,
    StoreError,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
)
from gateway.drain.admission.health import BucketHealth
from gateway.drain.admission.lease import Claims
from gateway.drain.admission.retries import Refusals, Retries, error_of
from gateway.drain.context import COPIES, Context
from gateway.drain.job import UPLOADS, DrainJob, JobOutcome, Lane, Sweep, WorkKind, run_jobs

P = ParamSpec("P")

CHORES = 8
"""Threads for deletions and clean-up."""
READERS = 3
"""Threads for checksums: hashing a large file must not hold up a deletion."""
QUEUED_PER_THREAD = 2


class DrainThreads:
    """The pools of one drain. Only the thread that plans submits.

    Args:
        workers: the number of threads of each lane that uploads.
    """

    def __init__(self, workers: int) -> None:
        counts = {
            **dict.fromkeys(UPLOADS, workers),
            Lane.CHORE: CHORES,
            Lane.COPY: COPIES,
            Lane.DISK: READERS,
        }
        self._pools = {
            lane: ThreadPoolExecutor(count, thread_name_prefix=f"drain-{lane.value}")
            for lane, count in counts.items()
        }
        self._slots = {lane: count * QUEUED_PER_THREAD for lane, count in counts.items()}
        self._running: dict[Lane, set[Future[None]]] = {lane: set() for lane in Lane}

    def submit(
        self, lane: Lane, function: Callable[P, None], /, *args: P.args, **named: P.kwargs
    ) -> None:
        """Run a function on a thread of a lane."""
        self._running[lane].add(self._pools[lane].submit(function, *args, **named))

    def free(self, lane: Lane) -> int:
        """Return how many more jobs may be submitted to a lane."""
        running = self._running[lane]
        running -= {future for future in running if future.done()}
        return self._slots[lane] - len(running)

    def are_idle(self) -> bool:
        """Return whether nothing was under way when ``free`` was last asked."""
        return not any(self._running.values())

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until what was submitted has ended. Returns False if it has not in that time."""
        running = {future for lane in self._running.values() for future in lane}
        return not wait(running, timeout=timeout_seconds).not_done

    def close(self, *, and_wait: bool) -> None:
        """Begin nothing more.

        Args:
            and_wait: whether to wait for what runs.
        """
        for pool in self._pools.values():
            pool.shutdown(wait=and_wait, cancel_futures=True)


RATE_SECONDS = 60.0


@dataclass
class Counters:
    """Counts the jobs of this run of the drain. Safe to use from several threads."""

    uploads: int = 0
    copies: int = 0
    deletes: int = 0
    transitions: int = 0
    checksums: int = 0
    snapshots: int = 0
    snapshots_missed: int = 0
    """Files that were open for long and never still enough for a snapshot."""
    retries: int = 0
    """Jobs that failed and will be tried again."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def count(self, name: str, more: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            setattr(self, name, getattr(self, name) + more)


class Rate:
    """The bytes per second of the last minute."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def of(self, total_bytes: int) -> int:
        """Return the rate by now.

        Args:
            total_bytes: a count that only grows.
        """
        now = clock.monotonic_seconds()
        self._points.append((now, total_bytes))
        while now - self._points[0][0] > RATE_SECONDS:
            self._points.popleft()
        since, before = self._points[0]
        return int((total_bytes - before) / (now - since)) if now > since else 0


class SentBytes:
    """The bytes that each running upload has sent. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[str, tuple[int, int]] = {}

    def moved(self, key: str, done_bytes: int, total_bytes: int) -> None:
        with self._lock:
            self._uploads[key] = (done_bytes, total_bytes)

    def ended(self, key: str) -> None:
        with self._lock:
            self._uploads.pop(key, None)

    def shown(self) -> list[dict[str, Any]]:
        with self._lock:
            uploads = sorted(self._uploads.items())
        return [{"key": key, "done_bytes": d, "total_bytes": t} for key, (d, t) in uploads]


log = logging.getLogger("drain")


class JobRunner:
    """Runs jobs that were admitted, on any thread.

    Args:
        claims, health, retries: which are told how jobs ended.
        counters, sent_bytes: for the report.
        on_ended: called when a job's thread and claims are free.
    """

    def __init__(
        self,
        context: Context,
        claims: Claims,
        health: BucketHealth,
        retries: Retries,
        counters: Counters,
        sent_bytes: SentBytes,
        on_ended: Callable[[], None],
    ) -> None:
        self._context = context
        self._claims = claims
        self._health = health
        self._retries = retries
        self._counters = counters
        self._sent_bytes = sent_bytes
        self._on_ended = on_ended
        self._refusals = Refusals()
        self._done_lock = threading.Lock()
        self.done = 0
        """The number of jobs that did something."""

    def run(self, jobs: list[DrainJob], lease: int) -> None:
        """Run jobs of one batch.

        Args:
            lease: under which the jobs hold their claims.
        """
        request = jobs[0].request_id or self._retries.request_of(jobs[0].id)
        with logs.of_request(request):
            self._run(jobs, lease)

    def _run(self, jobs: list[DrainJob], lease: int) -> None:
        try:
            if self._context.stop.is_set() or self._health.stops(jobs[0].kind):
                return
            for job, result in zip(jobs, run_jobs(jobs), strict=True):
                if isinstance(result, Exception):
                    self._failed(job, lease, result)
                    continue
                is_done = result == JobOutcome.DONE
                is_sent = is_done and job.kind == WorkKind.UPLOAD
                self._retries.worked(job.id, job.id.ino if is_sent else 0)
                if is_done:
                    if job.kind.asks_bucket:
                        self._refusals.worked(job.kind, job.claims)
                        self._health.worked(job.kind)
                    self._count(job)
        finally:
            self._health.ended(jobs[0].kind)
            for job in jobs:
                self._claims.ended(job, lease)
                for claim in job.claims:
                    if isinstance(claim, str):
                        self._sent_bytes.ended(claim)
            self._on_ended()

    def _failed(self, job: DrainJob, lease: int, exc: Exception) -> None:
        if isinstance(exc, LeaseLost):
            return self._mark_indeterminate(job)
        if isinstance(exc, OtherOwner):
            # It says nothing of the job, and the request was not sent.
            return self._health.failed(exc)
        if isinstance(exc, StoreRefused):
            self._refused(job, exc)
        elif self._claims.is_lost(lease):
            return self._mark_indeterminate(job)
        if isinstance(exc, (StoreError, DataFileError, NamespaceError)):
            passing = isinstance(exc, NamespaceError) or (
                isinstance(exc, StoreError) and exc.is_retryable
            )
            error = error_of(exc)
            log.log(logging.WARNING if passing else logging.ERROR, "%s: %s", job.id, error)
        else:
            # A job that fails in an unforeseen way must not stop the others.
            error = f"{type(exc).__name__}: {exc}"
            log.error("%s: %s", job.id, error, exc_info=exc)
        if isinstance(exc, StoreUnavailable) and not isinstance(exc, StoreSlow):
            self._health.unanswered()
        self._retries.failed(job.id, error)
        return self._counters.count("retries")

    def _refused(self, job: DrainJob, exc: StoreRefused) -> None:
        on_trial = self._health.is_refused(job.kind)
        if self._refusals.refused(job.kind, job.claims) or on_trial:
            if on_trial:
                self._refusals.tried(job.kind)
            self._health.failed(exc, job.kind)
        else:
            # A check finds out whether the bucket as a whole refuses.
            self._health.unanswered()

    def _count(self, job: DrainJob) -> None:
        with self._done_lock:
            self.done += 1
        if job.kind != WorkKind.CLEAN_UP:
            self._counters.count(job.kind.value)

    def _mark_indeterminate(self, job: DrainJob) -> None:
        log.warning("%s: given up, the lease is lost", job.id)
        try:
            replace(self._context, lease=None).mark_all_indeterminate(job.claims)
        except NamespaceError as exc:
            log.error("%s: cannot note that its keys must be looked at: %s", job.id, exc)


CLAIMED_AT_ONCE = 64
PAGES_AT_ONCE = 16
"""The pages of one kind of work that are planned before those of the other kinds."""


class Dispatcher:
    """Submits the jobs of sweeps. Only the thread that plans uses it.

    Args:
        sweeps: sweeps in the order in which they are planned.
        claims, health, retries: admit jobs.
        threads, runner: run them.
    """

    def __init__(
        self,
        sweeps: Sequence[Sweep],
        claims: Claims,
        health: BucketHealth,
        retries: Retries,
        threads: DrainThreads,
        runner: JobRunner,
    ) -> None:
        self.sweeps = sweeps
        self._claims = claims
        self._health = health
        self._retries = retries
        self._threads = threads
        self._runner = runner

    def restart(self) -> None:
        """Forget what was planned, so that it is planned again."""
        for sweep in self.sweeps:
            sweep.planned.clear()
            sweep.claimed.clear()
            sweep.after, sweep.next_at = None, 0.0

    def read_again(self) -> None:
        """Read the rows of every sweep when it is planned next."""
        for sweep in self.sweeps:
            sweep.next_at = 0.0

    def advance(self, context: Context, sweep: Sweep, pause_seconds: float) -> int:
        """Submit as many jobs of a sweep as there is room for. Returns how many were submitted.

        Args:
            context: context with the lease.
            pause_seconds: the time between two readings of the rows from the first.
        """
        submitted = 0
        for _ in range(PAGES_AT_ONCE if self._health.admits(sweep.kind) else 0):
            while sweep.claimed and self._may_continue(sweep):
                submitted += self._submit(self._take(sweep.claimed))
            if sweep.claimed or self._threads.free(sweep.lane) <= 0:
                break
            if not sweep.planned and not self._plan(context, sweep, pause_seconds):
                break
            sweep.claimed.extend(self._claim(sweep.planned))
        return submitted

    def _may_continue(self, sweep: Sweep) -> bool:
        """Return whether the next claimed job of a sweep can be submitted. A job of another lane
        that has no room is dropped, and planned again: it must not hold up the others."""
        while sweep.claimed:
            lane = sweep.claimed[0].lane
            if self._threads.free(lane) > 0:
                return True
            if lane is sweep.lane:
                return False
            self._claims.drop(sweep.claimed.popleft(), self._claims.lease)
        return False

    def has_unread(self) -> bool:
        """Return whether there are rows to read, and threads for their jobs."""
        return any(
            sweep.after is not None and self._threads.free(sweep.lane) > 0
            for sweep in self.sweeps
            if self._health.admits(sweep.kind)
        )

    def _claim(self, planned: deque[DrainJob]) -> list[DrainJob]:
        """Claim the next planned jobs that may run now."""
        jobs: list[DrainJob] = []
        while planned and len(jobs) < CLAIMED_AT_ONCE:
            job = planned.popleft()
            busy = any(map(self._claims.is_busy, job.claims))
            if not busy and self._retries.is_due(job.id) and self._health.admits(job.kind):
                jobs.append(job)
        return self._claims.claim(jobs) if jobs else []

    def _plan(self, context: Context, sweep: Sweep, pause_seconds: float) -> bool:
        """Plan the next page. Returns False if all rows were read less than a pause ago."""
        if sweep.after is None and clock.monotonic_seconds() < sweep.next_at:
            return False
        page = sweep.plan(context, sweep.after)
        sweep.planned.extend(page.jobs)
        sweep.after = page.after
        if page.after is None:
            sweep.next_at = clock.monotonic_seconds() + pause_seconds
        return True

    def _take(self, ready: deque[DrainJob]) -> list[DrainJob]:
        """Take the next job and those that run together with it. Jobs whose names are busy are
        dropped."""
        first = ready[0]
        taken: list[DrainJob] = []
        size = 0
        while ready and (ready[0] is first or (first.batch and ready[0].batch is first.batch)):
            job = ready[0]
            if first.batch and taken and not first.batch.has_room(len(taken), size + job.size):
                break
            ready.popleft()
            if self._health.admits(job.kind) and self._claims.take(job):
                self._health.begun(job.kind)
                taken.append(job)
                size += job.size
            else:
                self._claims.drop(job, self._claims.lease)
        return taken

    def _submit(self, jobs: list[DrainJob]) -> int:
        if jobs:
            self._threads.submit(jobs[0].lane, self._runner.run, jobs, self._claims.lease)
        return len(jobs)
