"""The drain's loop: plans, claims, runs, for ever.

Invariant: two jobs that share an inode or a key never run at the same time (claims), and only one
drain works on a data directory (a lock on a file). Whatever a crash interrupts, the rows in the
database name it, and the next start carries on from them.

The main thread plans; uploads and chores (moves, deletions, clean-up) run on threads of their own.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gateway import clock
from gateway.config import Settings
from gateway.db.engine import Database
from gateway.drain import garbage, plan
from gateway.drain.context import Context
from gateway.drain.health import BucketState, Health, Retries
from gateway.drain.plan import Job, Lane, Page
from gateway.drain.status import Progress, StatusFile
from gateway.drain.upload import Outcome
from gateway.errors import (
    BucketError,
    DataFileError,
    NamespaceError,
    ObjectRefused,
    StoreRefused,
    StoreUnavailable,
    UserError,
)
from gateway.objectstore.s3 import S3Store

log = logging.getLogger("drain")

CHORES = 2
"""Threads for moves, deletions and clean-up."""
QUEUED_PER_THREAD = 2
STOP_SECONDS = 5.0
PAUSE_MIN_SECONDS = 0.05
FAILURES_SHOWN = 20


@dataclass
class _Sweep:
    """One kind of work, and how far through its rows the planning is."""

    plan: Callable[[Context, int | str | None], Page]
    lane: Lane
    planned: deque[Job] = field(default_factory=deque)
    after: int | str | None = None
    """Where the next page starts; None: at the first row."""
    next_at: float = 0.0
    """Monotonic seconds before which the rows are not read from the first again."""


class Drain:
    """The drain of one data directory.

    Parameters: settings; store, stop for tests. Raises UserError when another drain runs.
    """

    def __init__(
        self,
        settings: Settings,
        store: S3Store | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        settings.run_dir.mkdir(parents=True, exist_ok=True)
        self._lock_fd = _lock(settings)
        self._settings = settings
        self._progress = Progress()
        self._context = Context(
            settings,
            Database(settings.database_url),
            S3Store(settings) if store is None else store,
            threading.Event() if stop is None else stop,
            self._progress.moved,
        )
        retry_max_seconds = settings.drain.retry_max_seconds
        self.health = Health(settings.bucket.name, retry_max_seconds)
        self.retries = Retries(retry_max_seconds)
        self._started: datetime | None = datetime.now(UTC)
        """Until the multipart uploads of an earlier run were looked for."""
        self._wake = threading.Event()
        self._claims_lock = threading.Lock()
        self._claims: set[int | str] = set()
        self.done = 0
        """Jobs that did something."""
        threads = {Lane.UPLOAD: settings.drain.workers, Lane.CHORE: CHORES}
        self._pools = {
            lane: ThreadPoolExecutor(count, thread_name_prefix=f"drain-{lane.value}")
            for lane, count in threads.items()
        }
        self._slots = {lane: count * QUEUED_PER_THREAD for lane, count in threads.items()}
        self._running: dict[Lane, set[Future[None]]] = {lane: set() for lane in Lane}
        # Order matters only for the bucket's sake: what is garbage goes before new bytes come.
        self._sweeps = [
            _Sweep(plan.settlements, Lane.CHORE),
            _Sweep(plan.deletions, Lane.CHORE),
            _Sweep(plan.rekeys, Lane.CHORE),
            _Sweep(plan.uploads, Lane.UPLOAD),
        ]
        self._status = StatusFile(settings.run_dir / "drain.json", self._report)

    def run(self) -> None:
        """Work until stop is set; then return soon, with everything safe for a restart."""
        while not self._context.stop.is_set():
            self._wake.clear()
            try:
                pause_seconds = self._work()
            except NamespaceError as exc:
                log.warning("cannot read what is to be done: %s", exc)
                pause_seconds = self._settings.drain.retry_max_seconds
            # A job that ends wakes us: its slot and its claims are free.
            self._wake.wait(pause_seconds)
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        wait(set().union(*self._running.values()), timeout=STOP_SECONDS)

    def cycle(self) -> int:
        """One pass over everything, for tests: returns when its jobs ended, with how many did
        something."""
        before = self.done
        for sweep in self._sweeps:
            if not self._is_bucket_ready():
                break
            sweep.after, sweep.next_at = None, 0.0
            while sweep.planned or sweep.next_at < math.inf:
                self._advance(sweep, math.inf)
                wait(set().union(*self._running.values()))
        self._status.write()
        return self.done - before

    def wake(self) -> None:
        """Look for work, or for the stop, now."""
        self._wake.set()

    def close(self) -> None:
        """Wait for what runs and let go of everything."""
        self._context.stop.set()
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)
        self.report_stopped()
        self._context.database.close()
        os.close(self._lock_fd)

    def report_stopped(self) -> None:
        """Write the last report."""
        self._context.stop.set()
        self._status.close()

    def _work(self) -> float:
        """Submit what there is; returns for how many seconds nothing else is due."""
        poll_seconds = self._settings.drain.poll_seconds
        if not self._is_bucket_ready():
            return max(self.health.pause_seconds(), PAUSE_MIN_SECONDS)
        submitted = sum(self._advance(sweep, poll_seconds) for sweep in self._sweeps)
        if not submitted and not any(self._running.values()):
            self.health.worked()
        return poll_seconds

    def _is_bucket_ready(self) -> bool:
        store, health = self._context.store, self.health
        if health.pause_seconds() > 0:
            return False
        try:
            if health.needs_check():
                if health.state == BucketState.REFUSED:
                    # A person may have corrected the credentials meanwhile.
                    store.reload()
                store.check()
                health.checked()
                for sweep in self._sweeps:
                    sweep.next_at = 0.0
            if self._started is not None:
                self._abort_unrecorded(self._started)
                self._started = None
        except BucketError as exc:
            health.failed(exc)
            return False
        return True

    def _abort_unrecorded(self, started: datetime) -> None:
        try:
            garbage.abort_unrecorded(self._context, started)
        except (StoreRefused, ObjectRefused) as exc:
            # Not every server can list uploads, and not every policy allows it. Nothing depends
            # on it: it only frees space that a crash of the drain left occupied.
            log.warning("cannot look for unfinished multipart uploads: %s", exc)

    def _advance(self, sweep: _Sweep, pause_seconds: float) -> int:
        """Submit what fits; returns how many jobs that were."""
        submitted = 0
        while self._free(sweep.lane) > 0:
            if not sweep.planned and not self._plan(sweep, pause_seconds):
                break
            while sweep.planned and self._free(sweep.planned[0].lane) > 0:
                submitted += self._submit(sweep.planned.popleft())
            if sweep.planned:
                break
        return submitted

    def _plan(self, sweep: _Sweep, pause_seconds: float) -> bool:
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

    def _submit(self, job: Job) -> int:
        if not self.retries.is_due(job.title):
            return 0
        with self._claims_lock:
            if not self._claims.isdisjoint(job.claims):
                return 0
            self._claims |= job.claims
        self._running[job.lane].add(self._pools[job.lane].submit(self._run_job, job))
        return 1

    def _run_job(self, job: Job) -> None:
        try:
            if self.health.pause_seconds() > 0 or self._context.stop.is_set():
                return
            outcome = job.run()
            self.retries.worked(job.title)
            if outcome == Outcome.DONE:
                self.health.worked()
                with self._claims_lock:
                    self.done += 1
        except StoreRefused as exc:
            self.health.failed(exc)
        except StoreUnavailable as exc:
            log.warning("%s: %s", job.title, exc)
            self.retries.failed(job.title, str(exc))
            self.health.doubted()
        except (ObjectRefused, DataFileError) as exc:
            log.error("%s: %s", job.title, exc)
            self.retries.failed(job.title, str(exc))
        except NamespaceError as exc:
            log.warning("%s: %s", job.title, exc)
            self.retries.failed(job.title, str(exc))
        except Exception as exc:
            # One job that fails in a way nobody thought of must not stop the others.
            log.exception("%s failed", job.title)
            self.retries.failed(job.title, f"{type(exc).__name__}: {exc}")
        finally:
            with self._claims_lock:
                self._claims -= job.claims
            for claim in job.claims:
                if isinstance(claim, str):
                    self._progress.ended(claim)
            self._wake.set()

    def _report(self) -> dict[str, Any]:
        return {
            "state": "stopped" if self._context.stop.is_set() else "running",
            "bucket": self.health.shown(),
            "uploads": self._progress.shown(),
            "failures": self.retries.shown(FAILURES_SHOWN),
        }


def _lock(settings: Settings) -> int:
    """Claims of keys are in memory: two drains would delete what the other uploads."""
    path = settings.run_dir / "drain.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise UserError(f"another drain works on {settings.data_dir}: stop it first") from None
    return fd
