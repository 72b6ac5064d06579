"""Runs jobs and decides by their ends what is tried again, and what stops a kind of work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from gateway import logs
from gateway.drain.admission.health import Health
from gateway.drain.admission.lease import Claims
from gateway.drain.admission.refusals import Refusals
from gateway.drain.admission.retries import Retries, error_of
from gateway.drain.context import Context
from gateway.drain.job import Job, Outcome, Work, run_jobs
from gateway.drain.status import Counters, SentBytes
from gateway.errors import (
    DataFileError,
    LeaseLost,
    NamespaceError,
    OtherOwner,
    StoreError,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
)

log = logging.getLogger("drain")


class Runner:
    """Runs jobs that were admitted, on any thread.

    Parameters: context; claims, health and retries, which are told how jobs ended; counters and
    sent_bytes, for the report; on_ended, called when a job's thread and claims are free.
    """

    def __init__(
        self,
        context: Context,
        claims: Claims,
        health: Health,
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

    def run(self, jobs: list[Job], lease: int) -> None:
        """Run jobs of one batch. Parameters: lease, under which the jobs hold their claims."""
        request = jobs[0].request_id or self._retries.request_of(jobs[0].id)
        with logs.of_request(request):
            self._run(jobs, lease)

    def _run(self, jobs: list[Job], lease: int) -> None:
        try:
            if self._context.stop.is_set() or self._health.stops(jobs[0].kind):
                return
            for job, result in zip(jobs, run_jobs(jobs), strict=True):
                if isinstance(result, Exception):
                    self._failed(job, lease, result)
                    continue
                is_done = result == Outcome.DONE
                is_sent = is_done and job.kind == Work.UPLOAD
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

    def _failed(self, job: Job, lease: int, exc: Exception) -> None:
        if isinstance(exc, LeaseLost):
            return self._note_doubts(job)
        if isinstance(exc, OtherOwner):
            # It says nothing of the job, and the request was not sent.
            return self._health.failed(exc)
        if isinstance(exc, StoreRefused):
            self._refused(job, exc)
        elif self._claims.is_lost(lease):
            return self._note_doubts(job)
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
            self._health.doubted()
        self._retries.failed(job.id, error)
        return self._counters.count("retries")

    def _refused(self, job: Job, exc: StoreRefused) -> None:
        on_trial = self._health.is_refused(job.kind)
        if self._refusals.refused(job.kind, job.claims) or on_trial:
            if on_trial:
                self._refusals.tried(job.kind)
            self._health.failed(exc, job.kind)
        else:
            # A check finds out whether the bucket as a whole refuses.
            self._health.doubted()

    def _count(self, job: Job) -> None:
        with self._done_lock:
            self.done += 1
        if job.kind != Work.CLEAN_UP:
            self._counters.count(job.kind.value)

    def _note_doubts(self, job: Job) -> None:
        log.warning("%s: given up, the lease is lost", job.id)
        try:
            replace(self._context, lease=None).note_doubts(job.claims)
        except NamespaceError as exc:
            log.error("%s: cannot note that its keys must be looked at: %s", job.id, exc)
