"""Jobs that failed, and when each may be tried again: for ever, with full jitter.

The rows of ``retry`` are the truth for people and for the next start; this is their copy in memory,
saved with the next claims (gateway.drain.lease).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway import clock
from gateway.db import statements as sql
from gateway.drain import statements as own

FIRST_PAUSE_SECONDS = 0.5
DOUBLINGS_MAX = 30
FORGET_NS = 24 * 3600 * clock.NS
"""A row that was not tried again for so long after it was due is of a job that no longer exists."""


class Failure(NamedTuple):
    """A job's failures so far."""

    tries: int
    error: str
    next_ns: int
    ino: int
    """Of an upload; 0 for other jobs, and for uploads of an earlier run."""


class Retries:
    """Safe to use from several threads.

    Parameters: retry_max_seconds, the longest pause.
    """

    def __init__(self, retry_max_seconds: float) -> None:
        self._retry_max_seconds = retry_max_seconds
        self._lock = threading.Lock()
        self._failed: dict[str, Failure] = {}
        self._due_ns: dict[int, int] = {}
        self._unsaved: set[str] = set()

    def load(self, session: sql.Session) -> None:
        """Start from what an earlier run left, inside a write transaction."""
        session.run(own.RETRIES_FORGET, before_ns=clock.now_ns() - FORGET_NS)
        with self._lock:
            for title, tries, error, next_ns in session.all(own.RETRIES):
                self._failed.setdefault(title, Failure(tries, error, next_ns, 0))

    def is_due(self, title: str) -> bool:
        """Whether a job may be tried now."""
        with self._lock:
            found = self._failed.get(title)
        return found is None or found.next_ns <= clock.now_ns()

    def is_file_due(self, ino: int) -> bool:
        """Whether the upload of a file may be tried now; True also when only its title is known."""
        with self._lock:
            return self._due_ns.get(ino, 0) <= clock.now_ns()

    def failed(self, title: str, ino: int, error: str) -> None:
        """Count a failure and draw the pause before the next try."""
        with self._lock:
            before = self._failed.pop(title, None)
            tries = 1 if before is None else before.tries + 1
            pause_ns = int(jittered_seconds(tries, self._retry_max_seconds) * clock.NS)
            next_ns = clock.now_ns() + pause_ns
            self._failed[title] = Failure(tries, " ".join(error.split()), next_ns, ino)
            if ino:
                self._due_ns[ino] = next_ns
            self._unsaved.add(title)

    def worked(self, title: str, ino: int) -> None:
        """The job is done, or there is nothing to do any more."""
        with self._lock:
            self._due_ns.pop(ino, None)
            if self._failed.pop(title, None) is not None:
                self._unsaved.add(title)

    def take_unsaved(self) -> set[str]:
        """Jobs whose rows are not what they should be. The caller saves them or gives them back."""
        with self._lock:
            taken, self._unsaved = self._unsaved, set()
        return taken

    def give_back(self, titles: set[str]) -> None:
        """They could not be saved."""
        with self._lock:
            self._unsaved |= titles

    def save(self, session: sql.Session, titles: Iterable[str]) -> None:
        """Write the rows of some jobs, inside a write transaction."""
        for title in titles:
            with self._lock:
                found = self._failed.get(title)
            session.run(own.RETRY_DELETE, the_key=title)
            if found is not None:
                session.run(
                    own.RETRY_INSERT,
                    job=title,
                    tries=found.tries,
                    error=found.error,
                    next_ns=found.next_ns,
                    ino=0,
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
