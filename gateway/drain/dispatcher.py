"""Takes jobs from the plans, claims them and gives them to the threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gateway import clock
from gateway.drain.admission.health import Health
from gateway.drain.admission.lease import Claims
from gateway.drain.admission.retries import Retries
from gateway.drain.context import Context
from gateway.drain.job import Job, Sweep
from gateway.drain.runner import Runner
from gateway.drain.threads import Threads

CLAIMED_AT_ONCE = 64
PAGES_PER_TURN = 16
"""The pages of one kind of work that are planned before the other kinds have their turn."""


class Dispatcher:
    """Submits the jobs of sweeps. Only the thread that plans uses it.

    Parameters: sweeps, in the order of their turns; claims, health and retries, which admit jobs;
    threads and runner, which run them.
    """

    def __init__(
        self,
        sweeps: Sequence[Sweep],
        claims: Claims,
        health: Health,
        retries: Retries,
        threads: Threads,
        runner: Runner,
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
        """Read the rows of every sweep at its next turn."""
        for sweep in self.sweeps:
            sweep.next_at = 0.0

    def advance(self, context: Context, sweep: Sweep, pause_seconds: float) -> int:
        """Submit as many jobs of a sweep as there is room for. Returns how many were submitted.

        Parameters: context, with the lease; pause_seconds, the time between two readings of the
        rows from the first.
        """
        submitted = 0
        for _ in range(PAGES_PER_TURN if self._health.admits(sweep.kind) else 0):
            while sweep.claimed and self._has_turn(sweep):
                submitted += self._submit(self._take(sweep.claimed))
            if sweep.claimed or self._threads.free(sweep.lane) <= 0:
                break
            if not sweep.planned and not self._plan(context, sweep, pause_seconds):
                break
            sweep.claimed.extend(self._claim(sweep.planned))
        return submitted

    def _has_turn(self, sweep: Sweep) -> bool:
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

    def _claim(self, planned: deque[Job]) -> list[Job]:
        """Claim the next planned jobs that may run now."""
        jobs: list[Job] = []
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

    def _take(self, ready: deque[Job]) -> list[Job]:
        """Take the next job and those that run together with it. Jobs whose names are busy are
        dropped."""
        first = ready[0]
        taken: list[Job] = []
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

    def _submit(self, jobs: list[Job]) -> int:
        if jobs:
            self._threads.submit(jobs[0].lane, self._runner.run, jobs, self._claims.lease)
        return len(jobs)
