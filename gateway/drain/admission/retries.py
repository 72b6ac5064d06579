"""Jobs that failed, and when each may be tried again: for ever, with full jitter.

The rows of ``retry`` are the truth for people and for the next start; this is their copy in memory,
saved with the next claims (gateway.drain.admission.lease).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sqlalchemy import delete, insert, select

from gateway import clock
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import retry
from gateway.errors import DataFileError, ObjectRefused, StoreRefused

FIRST_PAUSE_SECONDS = 0.5
DOUBLINGS_MAX = 30
FORGET_NS = 3600 * clock.NS
"""A failure of no file that was not tried again for so long after it was due is of a job that no
longer exists."""
FOR_GOOD = "needs a person: "
"""How the error of a job begins that does not succeed by itself."""
FOR_GOOD_TRIES = 2
"""The first time, a client may just have been changing the file."""

RETRIES = Statement(select(retry.c.job, retry.c.tries, retry.c.error, retry.c.next_ns, retry.c.ino))
RETRY_INSERT = Statement(insert(retry))
RETRY_DELETE = Statement(delete(retry).where(retry.c.job == b("the_key")))


class Failure(NamedTuple):
    """A job's failures so far."""

    tries: int
    error: str
    next_ns: int
    ino: int
    """The file that the job is about; 0: none."""


def needs_person(tries: int, error: str) -> bool:
    """Whether a job fails for good."""
    return tries >= FOR_GOOD_TRIES and error.startswith(FOR_GOOD)


class Retries:
    """Safe to use from several threads.

    Parameters: retry_max_seconds, the longest pause.
    """

    def __init__(self, retry_max_seconds: float) -> None:
        self._retry_max_seconds = retry_max_seconds
        self._lock = threading.Lock()
        self._failed: dict[str, Failure] = {}
        self._of_file: dict[int, set[str]] = {}
        """The failing jobs of a file, by inode."""
        self._unsaved: set[str] = set()

    def load(self, session: Session) -> None:
        """Start from what an earlier run left, inside a write transaction."""
        with self._lock:
            for title, tries, error, next_ns, ino in session.all(RETRIES):
                if title not in self._failed:
                    self._put(title, Failure(tries, error, next_ns, ino))

    def is_due(self, title: str) -> bool:
        """Whether a job may be tried now."""
        with self._lock:
            return self._is_due(title)

    def is_file_due(self, ino: int) -> bool:
        """Whether every job about a file that failed may be tried now."""
        with self._lock:
            return all(self._is_due(title) for title in self._of_file.get(ino, ()))

    def failed(self, title: str, ino: int, error: str) -> None:
        """Count a failure and draw the pause before the next try. Parameters: ino, of the file that
        the job is about; 0: none."""
        with self._lock:
            before = self._take(title)
            tries = 1 if before is None else before.tries + 1
            pause_ns = int(jittered_seconds(tries, self._retry_max_seconds) * clock.NS)
            next_ns = clock.now_ns() + pause_ns
            self._put(title, Failure(tries, " ".join(error.split()), next_ns, ino))
            self._unsaved.add(title)

    def worked(self, title: str, ino: int) -> None:
        """The job is done, or there is nothing to do any more.

        Parameters: ino, of a file that is in the bucket now: what failed under its earlier names is
        forgotten; 0: none.
        """
        with self._lock:
            for gone in {title, *self._of_file.get(ino, ())}:
                if self._take(gone) is not None:
                    self._unsaved.add(gone)

    def forget(self, is_wanted: Callable[[int], bool]) -> None:
        """Forget failures of jobs that no longer exist.

        Parameters: is_wanted, whether a file has something left to do in the bucket.
        """
        with self._lock:
            failed = list(self._failed.items())
        before_ns = clock.now_ns() - FORGET_NS
        for title, failure in failed:
            if is_wanted(failure.ino) if failure.ino else failure.next_ns >= before_ns:
                continue
            with self._lock:
                if self._failed.get(title) == failure:
                    self._take(title)
                    self._unsaved.add(title)

    def _is_due(self, title: str) -> bool:
        found = self._failed.get(title)
        most_ns = int(self._retry_max_seconds * clock.NS)
        return found is None or not clock.is_ahead(found.next_ns, most_ns)

    def _put(self, title: str, failure: Failure) -> None:
        self._failed[title] = failure
        if failure.ino:
            self._of_file.setdefault(failure.ino, set()).add(title)

    def _take(self, title: str) -> Failure | None:
        found = self._failed.pop(title, None)
        if found is not None and found.ino:
            titles = self._of_file[found.ino]
            titles.discard(title)
            if not titles:
                del self._of_file[found.ino]
        return found

    def take_unsaved(self) -> set[str]:
        """Jobs whose rows are not what they should be. The caller saves them or gives them back."""
        with self._lock:
            taken, self._unsaved = self._unsaved, set()
        return taken

    def give_back(self, titles: set[str]) -> None:
        """They could not be saved."""
        with self._lock:
            self._unsaved |= titles

    def save(self, session: Session, titles: Iterable[str]) -> None:
        """Write the rows of some jobs, inside a write transaction."""
        for title in titles:
            with self._lock:
                found = self._failed.get(title)
            session.run(RETRY_DELETE, the_key=title)
            if found is not None:
                session.run(
                    RETRY_INSERT,
                    job=title,
                    tries=found.tries,
                    error=found.error,
                    next_ns=found.next_ns,
                    ino=found.ino,
                )

    def shown(self, most: int) -> list[dict[str, Any]]:
        """The latest failures."""
        with self._lock:
            latest = list(self._failed.items())[-most:]
        return [
            {"job": title, "tries": found.tries, "error": found.error} for title, found in latest
        ]

    def __len__(self) -> int:
        with self._lock:
            return len(self._failed)


def jittered_seconds(tries: int, most_seconds: float) -> float:
    """A pause before the next try: anywhere up to a bound that doubles with each try."""
    bound = min(most_seconds, FIRST_PAUSE_SECONDS * 2.0 ** min(tries, DOUBLINGS_MAX))
    return random.uniform(0.05 * bound, bound)


def error_of(exc: Exception) -> str:
    """An error as people see it; where it does not end by itself, with what to do."""
    if isinstance(exc, DataFileError):
        return f"{FOR_GOOD}{exc}: restore its bytes, write the file again, or delete it"
    if isinstance(exc, StoreRefused):
        return f"{FOR_GOOD}{exc}"
    if isinstance(exc, ObjectRefused):
        return f"{FOR_GOOD}{exc}: see to that object, write the file again, or delete it"
    return str(exc)
