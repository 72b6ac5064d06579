"""Runner of jobs on a few threads, which keeps their rows up to date.

The row is the truth. A process that starts finds the jobs that the one before it left: those that
wait are run, those that ran begin again if their kind can, and end as interrupted otherwise.
"""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Depends, Request

from admin_api import cpu_budget, problems
from admin_api.access.principal import Principal
from admin_api.jobs import rows
from admin_api.jobs.kinds import Cancelled, JobKind, JobYield, RunningJob, Stopped
from admin_api.jobs.rows import JobRow
from admin_api.problems import Problem, ProblemCode
from gateway.common import clock, logs
from gateway.common.errors import NamespaceError, SpillwayError
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.service.jobs import missing

log = logging.getLogger("admin.jobs")

THREADS = 4
WAITERS = 32
"""Threads of jobs that mostly wait: one for each trainer that waits for its save, say."""
SLICE_SECONDS = 90.0
"""A job that waits gives its thread to another one after so long, if there is one without. That is
enough to see that a longer wait is useless (gateway.service.residency)."""
WAITING_MAX = 1000
CANCELLED_TEXT = "cancelled; what was done stays done"
SAVE_SECONDS = 1.0
"""Progress is saved, and told, this often at most."""
END_TRIES = 5
STOP_SECONDS = 2.0

Publish = Callable[[JobRow], None]


class JobThreads:
    """The jobs of one gateway. Safe to use from several threads.

    Args:
        database: database of the namespace.
        store: which has the rows.
        publish: called with each row that changed, also from other threads.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        store: Database,
        kinds: Iterable[JobKind],
        publish: Publish = lambda _row: None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._kinds = {kind.name: kind for kind in kinds}
        self._publish = publish
        self._workers = ThreadPoolExecutor(THREADS, "job", cpu_budget.as_the_process)
        self._waiters = ThreadPoolExecutor(WAITERS, "waiting-job", cpu_budget.as_the_process)
        self._changed = threading.Condition()
        self._works: dict[str, RunningJob] = {}
        self._later: dict[str, RunningJob] = {}
        """Those that gave their thread to others."""
        self._without_thread = 0
        """The jobs that wait for a thread of the waiters."""
        self._stopping = threading.Event()

    def start(self) -> None:
        """Take over what an earlier process left. Raises TryAgain."""
        with self._store.reading() as session:
            job_rows = rows.left(session)
        for row in job_rows:
            kind = self._kinds.get(row.kind)
            if row.cancel_asked:
                self._end(row.id, rows.CANCELLED, "cancelled")
            elif kind is None:
                self._end(row.id, rows.INTERRUPTED, "this version of the gateway has no such job")
            elif row.state == rows.RUNNING and kind.remedy is not None:
                self._end(row.id, rows.INTERRUPTED, f"the gateway was restarted: {kind.remedy}")
            else:
                self._queue(kind, row.id)

    def stop(self) -> None:
        """Make the threads end, and wait for them for a moment. The next process decides what
        becomes of their jobs."""
        self._stopping.set()
        with self._changed:
            works = list(self._works.values())
        for work in works:
            work.end(Stopped)
        for pool in (self._workers, self._waiters):
            pool.shutdown(wait=False, cancel_futures=True)
        with self._changed:
            self._changed.wait_for(lambda: not self._works, STOP_SECONDS)

    def submit(
        self, kind: str, arguments: dict[str, Any], principal: Principal, request_id: str
    ) -> JobRow:
        """Have work done. Returns the job. Raises Problem when too many wait.

        Args:
            arguments: JSON can hold.
        """
        now_ns = clock.now_ns()
        row = JobRow(
            id=secrets.token_hex(8),
            kind=self._kinds[kind].name,
            arguments=json.dumps(arguments),
            state=rows.WAITING,
            done=0,
            total=None,
            text="waits for its turn",
            asked_by=principal.name,
            token_id=principal.token_id,
            request_id=request_id,
            created_ns=now_ns,
            updated_ns=now_ns,
            ended_ns=None,
            cancel_asked=0,
            result=None,
            problem=None,
        )
        with self._store.writing() as session:
            if rows.waiting(session) >= WAITING_MAX:
                raise Problem(
                    ProblemCode.JOB_LIMIT,
                    f"{WAITING_MAX} jobs wait already: try again later, or cancel some",
                )
            session.run(rows.INSERT, **row._asdict())
        self._publish(row)
        if not self._stopping.is_set():
            self._queue(self._kinds[kind], row.id)
        return row

    def cancel(self, id: str) -> JobRow:
        """Make a job end. What it has done stays done. Raises Problem, NotThere."""
        with self._store.writing() as session:
            row = rows.get(session, id)
            if row is None:
                raise missing(id)
            if not session.run(rows.CANCEL, the_id=id):
                raise Problem(ProblemCode.ENDED_JOB, f"the job has ended: {row.state}")
        with self._changed:
            work, is_later = self._works.get(id), id in self._later
        if work is not None:
            work.end(Cancelled)
        elif is_later:
            self._end(id, rows.CANCELLED, CANCELLED_TEXT)
        elif row.state == rows.WAITING:
            self._end(id, rows.CANCELLED, "cancelled before it began")
        with self._store.reading() as session:
            return rows.get(session, id) or row

    def _queue(self, kind: JobKind, id: str) -> None:
        if not kind.waits:
            self._workers.submit(self._run, id)
            return
        with self._changed:
            self._without_thread += 1
        self._waiters.submit(self._run_waiter, kind, id)

    def _run_waiter(self, kind: JobKind, id: str) -> None:
        with self._changed:
            self._without_thread -= 1
        try:
            self._run(id)
        except JobYield:
            with suppress(RuntimeError):  # the process ends: the next one continues the job
                self._queue(kind, id)

    def _run(self, id: str) -> None:
        """Run a job on a thread of its pool."""
        row = self._begin(id)
        if row is None:
            self._later.pop(id, None)
            return
        until = clock.monotonic_seconds() + SLICE_SECONDS
        with self._changed:
            work = self._later.pop(id, None) or RunningJob(
                self._settings,
                self._database,
                json.loads(row.arguments),
                row.asked_by,
                _Progress(self._store, self._publish, id).tell,
            )
            if self._kinds[row.kind].waits:
                work.gives_way = lambda: self._is_over(until)
            self._works[id] = work
        if self._stopping.is_set():
            work.end(Stopped)
        try:
            # The lines of a job have the id of the request that began it.
            with logs.of_request(row.request_id):
                self._work(row, work)
        except JobYield:
            with self._changed:
                self._later[id] = work
            raise
        finally:
            with self._changed:
                del self._works[id]
                self._changed.notify_all()

    def _is_over(self, until: float) -> bool:
        """Return whether a job gives its thread to another one.

        Args:
            until: the end of its slice.
        """
        return self._without_thread > 0 and clock.monotonic_seconds() >= until

    def _work(self, row: JobRow, work: RunningJob) -> None:
        """Do the work of a job, and record its end unless the process ends."""
        logs.event(log, logging.INFO, job=row.id, kind=row.kind, state=rows.RUNNING)
        try:
            state, text, result, problem = self._outcome(self._kinds[row.kind], work)
            self._end(row.id, state, text, result, problem)
        except Stopped:
            state = "left for the next start"
        except JobYield:
            logs.event(log, logging.INFO, job=row.id, kind=row.kind, state="gives its thread away")
            raise
        logs.event(log, logging.INFO, job=row.id, kind=row.kind, state=state)

    def _begin(self, id: str) -> JobRow | None:
        """Return the row of a job that is to run now, or None."""
        try:
            with self._store.writing() as session:
                now_ns = clock.now_ns()
                if not session.run(rows.RUN, the_id=id, new_text="", now_ns=now_ns):
                    return None
                row = rows.get(session, id)
        except (NamespaceError, sqlite3.Error) as exc:
            log.error("job %s waits for the next start: %s", id, exc)
            return None
        assert row is not None
        if row.cancel_asked:
            self._end(id, rows.CANCELLED, "cancelled before it began")
            return None
        self._publish(row)
        return row

    def _outcome(
        self, kind: JobKind, work: RunningJob
    ) -> tuple[str, str | None, dict[str, Any] | None, Problem | None]:
        """Return state, text, result and problem of a job after its run. Raises Stopped."""
        try:
            work.check()
            result = kind.run(work)
            return rows.DONE, work.text, result, None
        except Cancelled:
            return rows.CANCELLED, CANCELLED_TEXT, None, None
        except (Stopped, JobYield):
            raise
        except SpillwayError as exc:
            problem = exc if isinstance(exc, Problem) else problems.of(exc)
            return rows.FAILED, problem.detail, None, problem
        except Exception:
            # The row must say that the job has ended: else it would run again at each start.
            log.exception("unexpected error of a job (%s)", kind.name)
            problem = Problem(
                ProblemCode.INTERNAL_ERROR,
                "an error that was not foreseen: the log of the admin API has it",
            )
            return rows.FAILED, problem.detail, None, problem

    def _end(
        self,
        id: str,
        state: str,
        text: str | None,
        result: dict[str, Any] | None = None,
        problem: Problem | None = None,
    ) -> None:
        """Record the end of a job.

        Args:
            text: text, or None to keep the last one.
        """
        stored_problem = None if problem is None else told_of(problem)
        for _ in range(END_TRIES):
            try:
                with self._store.writing() as session:
                    row = rows.get(session, id)
                    assert row is not None
                    session.run(
                        rows.END,
                        the_id=id,
                        new_state=state,
                        new_text=row.text if text is None else text,
                        new_result=None if result is None else json.dumps(result),
                        new_problem=None if stored_problem is None else json.dumps(stored_problem),
                        now_ns=clock.now_ns(),
                    )
                    row = rows.get(session, id)
            except (NamespaceError, sqlite3.Error) as exc:
                log.error("the end of job %s (%s) is not recorded: %s", id, state, exc)
                self._stopping.wait(SAVE_SECONDS)
                continue
            assert row is not None
            self._publish(row)
            return


def told_of(problem: Problem) -> dict[str, Any]:
    """Return what a job says of the problem that ended it."""
    return {"code": problem.code, "status": problem.status, "detail": problem.detail}


class _Progress:
    """Saves how far a job is, now and then."""

    def __init__(self, store: Database, publish: Publish, id: str) -> None:
        self._store = store
        self._publish = publish
        self._id = id
        self._next_at = 0.0

    def tell(self, done: int, total: int | None, text: str) -> None:
        now = clock.monotonic_seconds()
        if now < self._next_at:
            return
        self._next_at = now + SAVE_SECONDS
        values = {"new_done": done, "new_total": total, "new_text": text}
        try:
            with self._store.writing() as session:
                session.run(rows.PROGRESS, the_id=self._id, now_ns=clock.now_ns(), **values)
                row = rows.get(session, self._id)
        except (NamespaceError, sqlite3.Error) as exc:
            # The work does not depend on it.
            log.warning("the progress of job %s is not saved: %s", self._id, exc)
            return
        if row is not None:
            self._publish(row)


async def _runner(request: Request) -> JobThreads:
    threads: JobThreads = request.app.state.runner
    return threads


Working = Annotated[JobThreads, Depends(_runner)]
"""The parameter of a route that needs the runner of jobs."""
