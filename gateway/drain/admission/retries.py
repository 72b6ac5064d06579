"""Retries of failed jobs, and refusals by the store of one key or of a kind of work.

Tries never end. People and the next start read the rows of ``retry``. This module keeps a copy in
memory, which is saved with the next claims (gateway.drain.admission.lease).

A policy of the store may deny one key. So a kind counts as refused only after the refusals of
several keys in a row, with no job of the kind done between them. Keys that were refused while
others worked, or in a trial, are remembered: another refusal of them says nothing new of the kind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from sqlalchemy import delete, insert, literal_column, select, update

from gateway.common import clock
from gateway.common.errors import DataFileError, ObjectRefused, StoreRefused
from gateway.common.retry import jittered_seconds
from gateway.db.compiled import Session, Statement, b
from gateway.db.drain_models import HYDRATE
from gateway.db.statements import retry
from gateway.drain.job import JobId, WorkKind

FORGET_NS = 3600 * clock.NS
"""A failure that belongs to no file, and was not tried again for so long after it was due, is of a
job that no longer exists."""
FOR_GOOD = "needs a person: "
"""The first words of the error of a job that cannot succeed without a person."""
FOR_GOOD_TRIES = 2
"""One try is not enough: the first time, a client may have been changing the file."""

LASTING_NS = 1800 * clock.NS
"""After so long a job that is tried again and again counts as stuck, whatever its error says."""

_WORKS = {work.value for work in WorkKind}

_ID = (retry.c.work, retry.c.ino, retry.c.key)
RETRIES = Statement(
    select(
        *_ID,
        retry.c.tries,
        retry.c.error,
        retry.c.next_ns,
        retry.c.request_id,
        retry.c.since_ns,
    ).where(retry.c.work != HYDRATE)
)
RETRY_INSERT = Statement(insert(retry))
RETRY_NOW = Statement(
    update(retry)
    .where(retry.c.ino == b("the_ino"), retry.c.work != b("the_work"))
    .values(next_ns=0, request_id=b("request_id"))
)
"""Has the failures of a file, except those of one kind of work, due at once (``hasten``)."""
HASTENED = Statement(
    select(*_ID, retry.c.request_id).where(
        retry.c.work != HYDRATE, retry.c.next_ns == literal_column("0")
    )
)
RETRY_DELETE = Statement(
    delete(retry).where(
        retry.c.work == b("the_work"), retry.c.ino == b("the_ino"), retry.c.key == b("the_key")
    )
)


class JobFailure(NamedTuple):
    """The failures of a job so far."""

    tries: int
    error: str
    next_ns: int
    request_id: str | None = None
    """The request of the admin API by which a person wants the next try."""
    since_ns: int = 0
    """When the first of them was, or 0 if that is not known."""

    @property
    def is_lasting(self) -> bool:
        """Whether the tries have lasted for so long that they will not end by themselves.

        The time of an outage counts only up to the last try before it.
        """
        return 0 < self.since_ns <= self.next_ns - LASTING_NS


NO_FAILURE = JobFailure(0, "", 0)


def failures(session: Session) -> Iterator[tuple[JobId, JobFailure]]:
    """Yield the failures of the drain that are recorded in the database. The hydrator records its
    own."""
    for work, ino, key, *failure in session.all(RETRIES):
        if work in _WORKS:
            yield JobId(WorkKind(work), ino, key), JobFailure(*failure)


def needs_person(tries: int, error: str) -> bool:
    """Return whether a job needs a person."""
    return tries >= FOR_GOOD_TRIES and error.startswith(FOR_GOOD)


class Retries:
    """The failures of one drain. Safe to use from several threads.

    Args:
        retry_max_seconds: the longest pause.
    """

    def __init__(self, retry_max_seconds: float) -> None:
        self._retry_max_seconds = retry_max_seconds
        self._lock = threading.Lock()
        self._failed: dict[JobId, JobFailure] = {}
        self._of_file: dict[int, set[JobId]] = {}
        """The failing jobs of each file, by inode."""
        self._unsaved: set[JobId] = set()

    def load(self, session: Session) -> None:
        """Load the failures of an earlier run, inside a write transaction."""
        with self._lock:
            for job, failure in failures(session):
                if job not in self._failed:
                    self._put(job, failure)

    def is_due(self, job: JobId) -> bool:
        """Return whether a job may be tried now."""
        with self._lock:
            return self._is_due(job)

    def is_file_due(self, ino: int) -> bool:
        """Return whether all failed jobs about a file may be tried now."""
        with self._lock:
            return all(self._is_due(job) for job in self._of_file.get(ino, ()))

    def failed(self, job: JobId, error: str) -> None:
        """Count a failure and draw the pause before the next try."""
        with self._lock:
            before = self._take(job)
            tries = 1 if before is None else before.tries + 1
            pause_ns = int(jittered_seconds(tries, self._retry_max_seconds) * clock.NS)
            now_ns = clock.now_ns()
            since_ns = (NO_FAILURE if before is None else before).since_ns or now_ns
            text = " ".join(error.split())
            self._put(job, JobFailure(tries, text, now_ns + pause_ns, since_ns=since_ns))
            self._unsaved.add(job)

    def worked(self, job: JobId, ino: int) -> None:
        """Note that a job is done, or that there is nothing left for it to do.

        What failed under the earlier names of the file is forgotten.

        Args:
            ino: the inode of a file that is in the bucket now, or 0.
        """
        with self._lock:
            for gone in {job, *self._of_file.get(ino, ())}:
                if self._take(gone) is not None:
                    self._unsaved.add(gone)

    def hasten(self, session: Session) -> None:
        """Take over that a person wants a job tried again now (``gateway.drain.queue.retry``)."""
        for work, ino, key, request in session.all(HASTENED):
            if work not in _WORKS:
                continue
            job = JobId(WorkKind(work), ino, key)
            with self._lock:
                failure = self._failed.get(job)
                if failure is not None and job not in self._unsaved:
                    self._failed[job] = failure._replace(next_ns=0, request_id=request)

    def request_of(self, job: JobId) -> str | None:
        """Return the request of the admin API by which a person wants a job tried again."""
        with self._lock:
            return self._failed.get(job, NO_FAILURE).request_id

    def forget(self, is_wanted: Callable[[int], bool]) -> None:
        """Forget failures of jobs that no longer exist.

        Args:
            is_wanted: returns whether a file has something left to do in the bucket.
        """
        with self._lock:
            failed = list(self._failed.items())
        before_ns = clock.now_ns() - FORGET_NS
        for job, failure in failed:
            if is_wanted(job.file) if job.file else failure.next_ns >= before_ns:
                continue
            with self._lock:
                if self._failed.get(job) == failure:
                    self._take(job)
                    self._unsaved.add(job)

    def _is_due(self, job: JobId) -> bool:
        failure = self._failed.get(job)
        most_ns = int(self._retry_max_seconds * clock.NS)
        return failure is None or not clock.is_ahead(failure.next_ns, most_ns)

    def _put(self, job: JobId, failure: JobFailure) -> None:
        self._failed[job] = failure
        if job.file:
            self._of_file.setdefault(job.file, set()).add(job)

    def _take(self, job: JobId) -> JobFailure | None:
        failure = self._failed.pop(job, None)
        if failure is not None and job.file:
            jobs = self._of_file[job.file]
            jobs.discard(job)
            if not jobs:
                del self._of_file[job.file]
        return failure

    def take_unsaved(self) -> set[JobId]:
        """Take the jobs whose rows are out of date. The caller saves them or gives them back."""
        with self._lock:
            taken, self._unsaved = self._unsaved, set()
        return taken

    def give_back(self, jobs: set[JobId]) -> None:
        """Give back jobs that could not be saved."""
        with self._lock:
            self._unsaved |= jobs

    def save(self, session: Session, jobs: Iterable[JobId]) -> None:
        """Write the rows of some jobs, inside a write transaction."""
        for job in jobs:
            with self._lock:
                failure = self._failed.get(job)
            work = job.work.value
            session.run(RETRY_DELETE, the_work=work, the_ino=job.ino, the_key=job.key)
            if failure is not None:
                session.run(RETRY_INSERT, work=work, ino=job.ino, key=job.key, **failure._asdict())

    def shown(self, most: int) -> list[dict[str, Any]]:
        """Return the latest failures."""
        with self._lock:
            latest = list(self._failed.items())[-most:]
        return [
            {"job": str(job), "tries": failure.tries, "error": failure.error}
            for job, failure in latest
        ]

    def __len__(self) -> int:
        with self._lock:
            return len(self._failed)


def error_of(exc: Exception) -> str:
    """Return an error as people see it. If it does not end by itself, the text says what to do."""
    if isinstance(exc, DataFileError):
        return f"{FOR_GOOD}{exc}: restore its bytes, write the file again, or delete it"
    if isinstance(exc, StoreRefused):
        return f"{FOR_GOOD}{exc}"
    if isinstance(exc, ObjectRefused):
        return f"{FOR_GOOD}{exc}: see to that object, write the file again, or delete it"
    return str(exc)


IN_A_ROW = 3
KNOWN_MAX = 10_000
"""The number of keys that are remembered."""


class Refusals:
    """The refusals of one drain. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._row: dict[WorkKind, list[int | str]] = {}
        """The refused jobs since the kind last worked, each named by one of its keys."""
        self._known: set[tuple[WorkKind, int | str]] = set()

    def refused(self, kind: WorkKind, claims: Iterable[int | str]) -> bool:
        """Note that a job was refused. Returns True if all of its kind must count as refused."""
        name = _name(claims)
        with self._lock:
            if (kind, name) in self._known:
                return False
            row = self._row.setdefault(kind, [])
            if name not in row:
                row.append(name)
            return len(row) >= IN_A_ROW

    def worked(self, kind: WorkKind, claims: Iterable[int | str]) -> None:
        """Note that a job did its work."""
        with self._lock:
            self._known.discard((kind, _name(claims)))
            self._know(kind)

    def tried(self, kind: WorkKind) -> None:
        """Note that a trial of a refused kind was refused too. The health of the bucket records the
        refusal from now on, and the same keys say nothing more of the kind."""
        with self._lock:
            self._know(kind)

    def _know(self, kind: WorkKind) -> None:
        row = self._row.pop(kind, [])
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        self._known.update((kind, name) for name in row)


def _name(claims: Iterable[int | str]) -> int | str:
    return max((claim for claim in claims if isinstance(claim, str)), default="")
