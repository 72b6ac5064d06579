"""Main loop of the drain: plans, claims and runs jobs until it is stopped.

Invariant: two jobs that share an inode or a key never run at the same time, in this drain or in
another (admission/lease.py). The rows in the database name whatever a crash interrupts, and the
next start resumes from them.

The main thread plans. Each job runs in its group of threads (``job.Lane``). While clients wait for
cold reads, as the hydrator reports, half of the places for requests are left to those.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from gateway.common import clock
from gateway.common.errors import LeaseLost, NamespaceError, ObjectRefused, StoreError, StoreRefused
from gateway.common.process import ReportFile
from gateway.config import datadir
from gateway.config.acknowledge import Acknowledge
from gateway.config.settings import DrainSettings, Settings
from gateway.db.engine import Database
from gateway.drain.admission.health import BucketHealth, BucketState
from gateway.drain.admission.lease import Claims
from gateway.drain.admission.retries import Retries
from gateway.drain.context import COPIES, Context
from gateway.drain.job import UPLOADS, Lane, Sweep, WorkKind
from gateway.drain.paths import is_unfinished
from gateway.drain.plan import sweeps
from gateway.drain.plan.digests import DigestPlan
from gateway.drain.plan.renames import Renames
from gateway.drain.plan.snapshots import Snapshots
from gateway.drain.plan.survey import DirtySurvey, pacing_seconds, spent_seconds
from gateway.drain.runner import (
    CHORES,
    Counters,
    Dispatcher,
    DrainThreads,
    JobRunner,
    Rate,
    SentBytes,
)
from gateway.drain.send.senders import Senders
from gateway.drain.tidy import garbage, indeterminate
from gateway.objectstore import negotiation
from gateway.objectstore.negotiation import negotiate
from gateway.objectstore.ownership import Ownership
from gateway.objectstore.pace import Pace, Rates
from gateway.objectstore.s3 import S3Store

OLD_NS = 10 * clock.NS
"""A hydrator that fetches writes a report each second. One that writes none waits for the bucket or
for an archive, and the drain takes nothing away from it."""


def are_wanted(settings: Settings) -> bool:
    """Return whether clients wait for bytes that the hydrator fetches now.

    A report that is missing, old, or of a process that has ended says nothing: then they do not.
    """
    try:
        report = datadir.read(settings, datadir.CACHE)
    except OSError:
        return False
    if report is None or not datadir.alive(report):
        return False
    waiting, written_ns = report.get("waiting_files"), report.get("time_ns")
    if not isinstance(waiting, int) or not isinstance(written_ns, int):
        return False
    return waiting > 0 and 0 <= clock.now_ns() - written_ns <= OLD_NS


log = logging.getLogger("drain")

A_DAY = timedelta(days=1)
LOOK_AGAIN = timedelta(minutes=10)
"""The time to the next look for unfinished multipart uploads after a look that failed."""
STOP_SECONDS = 5.0
PAUSE_MIN_SECONDS = 0.05
READS_SECONDS = 1.0
"""The time between two looks whether clients wait for cold reads."""
FAILURES_SHOWN = 20


class Drain:
    """A drain of one data directory.

    Raises NamespaceError.

    Args:
        store, stop: for tests.
    """

    rounds = 0
    """The rounds of the loop so far, for a watchdog."""

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
        self._sent_bytes, self._rate = SentBytes(), Rate()
        self.counters = Counters()
        rates = Rates(drain.bytes_per_second, drain.requests_per_second, drain.schedule)
        busy = drain.workers * drain.part_concurrency + CHORES
        self._pace = Pace(rates, _places(drain), stop, busy)
        store = S3Store(settings, pace=self._pace) if store is None else store
        self._senders = Senders(settings, store, self._pace, stop)
        self._context = Context(
            settings,
            Database(settings.database_url),
            store,
            stop,
            self._sent_bytes.moved,
            senders=self._senders,
        )
        self._ownership = _ownership_of(self._context)
        self.health = BucketHealth(settings.bucket.name, drain.retry_max_seconds)
        self.retries = Retries(drain.retry_max_seconds)
        self._started = datetime.now(UTC)
        self._looked: datetime | None = None
        """The last look for unfinished multipart uploads. The first look finds those of earlier
        runs."""
        self._wake = threading.Event()
        self._forget_at = 0.0
        """Monotonic seconds of the next look for failures of files that are gone."""
        self._lease_lost = threading.Event()
        self._claims = Claims(self._context, self.retries, self._on_lease_lost, self._pace.share)
        self._threads = DrainThreads(drain.workers)
        self._runner = JobRunner(
            self._context,
            self._claims,
            self.health,
            self.retries,
            self.counters,
            self._sent_bytes,
            on_ended=self._wake.set,
        )
        skip, request_of = self._is_out_of_reach, self.retries.request_of
        self._survey = DirtySurvey(skip, drain.poll_seconds, _rules(settings), request_of)
        self._renames = Renames(drain.poll_seconds, drain.retry_max_seconds)
        self._digests = DigestPlan(drain.settle_seconds, drain.poll_seconds)
        self._snapshots = Snapshots(settings, partial(self.counters.count, "snapshots_missed"))
        self._dispatcher = Dispatcher(
            self._sweeps(), self._claims, self.health, self.retries, self._threads, self._runner
        )
        self._enter()
        self._is_checksum_known = self._recall_checksum()
        self._status = ReportFile(settings.run_dir / datadir.DRAIN, self._report)

    def _sweeps(self) -> list[Sweep]:
        # The order matters only for the bucket: garbage is deleted before new bytes arrive.
        all_sweeps = [
            Sweep(sweeps.settlements, WorkKind.CLEAN_UP, Lane.CHORE),
            Sweep(
                partial(sweeps.indeterminate_writes, indeterminate.IndeterminateWaits()),
                WorkKind.CLEAN_UP,
                Lane.CHORE,
            ),
            Sweep(sweeps.deletions, WorkKind.DELETE, Lane.CHORE),
            Sweep(self._renames.plan, WorkKind.COPY, Lane.COPY),
        ]
        if self._settings.drain.max_open_age_seconds:
            # Snapshots come before uploads, which take every thread while there are any.
            all_sweeps.append(Sweep(self._snapshots.plan, WorkKind.SNAPSHOT, Lane.UPLOAD))
        for lane in UPLOADS:
            all_sweeps.append(
                Sweep(partial(self._survey.plan, lanes=(lane,)), WorkKind.UPLOAD, lane)
            )
        if self._settings.drain.checksum_at_seal:
            all_sweeps.insert(0, Sweep(self._digests.plan, WorkKind.CHECKSUM, Lane.DISK))
        # These come last: nothing waits for them.
        return [*all_sweeps, Sweep(sweeps.transitions, WorkKind.TRANSITION, Lane.COPY)]

    def run(self) -> None:
        """Work until stop is set. Then return soon, with everything safe for a restart."""
        threading.Thread(target=self._give_way, name="drain-reads", daemon=True).start()
        while not self._context.stop.is_set():
            self.rounds += 1
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
            # A job that ends wakes this thread: its slot and its claims are free.
            self._wake.wait(pause_seconds)
        self._threads.close(and_wait=False)
        if self._threads.wait(STOP_SECONDS):
            self._claims.leave()
            self._ownership.release()

    def wake(self) -> None:
        """Make the loop look for work, or for the stop, now."""
        self._wake.set()

    def close(self) -> None:
        """Wait for what runs and release everything."""
        self._context.stop.set()
        self._threads.close(and_wait=True)
        self._context.copiers.shutdown(cancel_futures=True)
        self._senders.close()
        self.report_stopped()
        self._claims.leave()
        self._context.database.close()

    def report_stopped(self) -> None:
        """Write the last report."""
        self._context.stop.set()
        self._status.close()

    def _enter(self) -> None:
        """Begin a lease. What was planned under an earlier lease is planned again."""
        self._lease_lost.clear()
        self._dispatcher.restart()
        self._restart()
        self._context = replace(self._context, lease=self._claims.enter())

    def _restart(self) -> None:
        self._survey.restart()
        self._renames.restart()
        self._digests.restart()

    def _give_way(self) -> None:
        """Leave half of the places to cold reads while clients wait for some."""
        stop = self._context.stop
        while not stop.wait(READS_SECONDS):
            self._pace.give_way(are_wanted(self._settings))

    def _on_lease_lost(self) -> None:
        log.error("lost the lease: another drain has taken over what this one was doing")
        self._lease_lost.set()
        self._wake.set()

    def _work(self) -> float:
        """Submit the jobs there are. Returns for how many seconds nothing else is due."""
        poll_seconds = self._settings.drain.poll_seconds
        self._survey.follow(self._context)
        if not self._is_bucket_ready():
            local = [sweep for sweep in self._dispatcher.sweeps if not sweep.kind.asks_bucket]
            for sweep in local:
                self._dispatcher.advance(self._context, sweep, poll_seconds)
            pause_seconds = max(self.health.pause_seconds(), PAUSE_MIN_SECONDS)
            return min(poll_seconds, pause_seconds) if local else pause_seconds
        submitted = sum(
            self._dispatcher.advance(self._context, sweep, poll_seconds)
            for sweep in self._dispatcher.sweeps
        )
        self._forget_gone()
        if not submitted and self._threads.are_idle():
            self.health.worked()
            self._claims.claim([])
        return 0.0 if self._dispatcher.has_unread() else poll_seconds

    def _forget_gone(self) -> None:
        began = clock.monotonic_seconds()
        if not len(self.retries) or began < self._forget_at:
            return
        with self._context.reading() as view:
            self.retries.hasten(view.session)
            self.retries.forget(partial(is_unfinished, view.session, view.paths))
        pause = pacing_seconds(spent_seconds(began), self._settings.drain.poll_seconds)
        self._forget_at = began + pause

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
                self._look_at_owner()
                self._know_checksum()
                health.checked()
                self._dispatcher.read_again()
            elif self._ownership.is_due:
                self._look_at_owner()
            self._look_for_unrecorded()
        except StoreError as exc:
            health.failed(exc)
            return False
        return True

    def _look_at_owner(self) -> None:
        """Make sure that the bucket and prefix are this gateway's. Raises StoreError."""
        self._context.store.conditions = self._ownership.look()

    def _recall_checksum(self) -> bool:
        """Use the checksum that the store was found to verify. Returns whether it is known."""
        with self._context.reading() as view:
            known = negotiation.known(view.session, self._settings.bucket)
        self._context.store.kind = known or self._context.store.kind
        return known is not None

    def _know_checksum(self) -> None:
        """Ask the store which checksum it verifies, if that is not known: once, before the first
        upload of this run, so that all of a run have the same."""
        if self._is_checksum_known:
            return
        try:
            checksum_kind = negotiate(self._settings, self._pace)
        except StoreError:
            raise
        except Exception:
            # An answer that no store should give must not end the drain, nor the next one.
            log.exception("cannot find out which checksums the bucket verifies")
            checksum_kind = None
        self._is_checksum_known = True
        if checksum_kind is None:
            return
        self._context.store.kind = checksum_kind
        with self._context.writing() as view:
            negotiation.remember(view.session, self._settings.bucket, checksum_kind)
        log.info("checksum of what is sent: %s", checksum_kind)

    def _look_for_unrecorded(self) -> None:
        """Look for them once a day, beside all other work: a slow listing must not stop it."""
        now = datetime.now(UTC)
        if self._looked is not None and now - self._looked < A_DAY:
            return
        self._looked = now
        self._threads.submit(Lane.CHORE, self._abort_unrecorded, now - A_DAY)

    def _abort_unrecorded(self, aged: datetime) -> None:
        try:
            garbage.abort_unrecorded(self._context, self._started, aged)
        except Exception as exc:
            # Not every server can list uploads, and not every policy allows it. Nothing depends on
            # the look: it only frees space that a crash of the drain left occupied.
            log.warning("cannot look for unfinished multipart uploads: %s", exc)
            if not isinstance(exc, (StoreRefused, ObjectRefused)):
                self._looked = aged + LOOK_AGAIN

    def _is_out_of_reach(self, ino: int) -> bool:
        """Return whether a file cannot be sent now: a job works on it, or its next try is not
        due."""
        return self._claims.is_busy(ino) or not self.retries.is_file_due(ino)

    def _report(self) -> dict[str, Any]:
        oldest_ns = self._survey.oldest_ns
        return {
            "state": "stopped" if self._context.stop.is_set() else "running",
            "bucket": self.health.shown(),
            "uploads": self._sent_bytes.shown(),
            "bytes_per_second": self._rate.of(self._pace.bytes),
            "failures": self.retries.shown(FAILURES_SHOWN),
            "failing": len(self.retries),
            "counters": {**asdict(self.counters), **self._pace.counters()},
            "answers": self._pace.answers(),
            "waiting_files": len(self._survey),
            "oldest_sealed_ns": oldest_ns,
            "held": self._survey.held.shown(),
            "restless_files": self._snapshots.restless(),
            "requests_at_once": self._pace.places,
        }


def _ownership_of(context: Context) -> Ownership:
    """Return the claim to the bucket, without which the store changes nothing."""
    ownership = Ownership(context.settings, context.database, context.stop)
    ownership.guard(context.store)
    return ownership


def _places(drain: DrainSettings) -> int:
    """Return the most requests under way. Parts and copies that take long leave some of them."""
    return drain.workers * (drain.part_concurrency + 1) + COPIES + CHORES


def _rules(settings: Settings) -> Acknowledge:
    return Acknowledge(settings.acknowledge.rule, settings.drain.incomplete_patterns)
