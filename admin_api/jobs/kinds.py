"""Kinds of jobs, and what the work of a job gets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.common.errors import SpillwayError
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.service.jobs import Progress


class Cancelled(SpillwayError):
    """A person wants the job to end."""


class Stopped(SpillwayError):
    """The process ends. The next one decides what becomes of the job."""


class JobYield(SpillwayError):
    """Other jobs wait for the thread. The job's function is called again, with the same work."""


@dataclass(frozen=True)
class JobKind:
    """A kind of job.

    Its function gets the work and returns the result, which JSON can hold. It calls ``Work.check``
    or ``Work.rest`` every few seconds and lets what they raise pass. What else it raises on purpose
    (admin_api.problems) is the problem of a job that failed.
    """

    name: str
    run: Callable[[RunningJob], dict[str, Any]]
    remedy: str | None = None
    """None: after a restart it begins again, and skips what was done. Otherwise the job ends as
    interrupted, with this text, which says what to do."""
    waits: bool = False
    """Whether it mostly waits for other processes. Then it takes no thread of those that work, and
    its function is called again after ``Work.rest`` gave the thread to others."""


class RunningJob:
    """One job while it runs, as its kind sees it.

    Args:
        database: database of the namespace.
        arguments: as they were given.
        who: asked.
        tell: called with done, total and text.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        arguments: dict[str, Any],
        who: str,
        tell: Callable[[int, int | None, str], None],
    ) -> None:
        self.settings = settings
        self.database = database
        self.arguments = arguments
        self.who = who
        self.text: str | None = None
        """What was said last, also if it was not saved."""
        self.memory: dict[str, Any] = {}
        """What its function keeps from one call to the next, in this process."""
        self._tell = tell
        self.gives_way: Callable[[], bool] = lambda: False
        """Returns whether another job waits for the thread. The runner sets it."""
        self._end = threading.Event()
        self._error: type[Exception] = Stopped

    def progress(self, done: int, total: int | None, text: str) -> None:
        """Say how far it is. Raises Cancelled, Stopped.

        Args:
            total: total, or None if it is not known.
            text: one line.
        """
        self.check()
        self.text = text
        self._tell(done, total, text)

    def tell(self, progress: Progress) -> None:
        """Say the same as work of ``gateway.service`` does. Raises Cancelled, Stopped."""
        self.progress(progress.done, progress.total, progress.text)

    def check(self) -> None:
        """Raise Cancelled or Stopped if the job is to end."""
        if self._end.is_set():
            raise self._error

    def rest(self, seconds: float) -> None:
        """Do nothing for a while. Raises Cancelled, Stopped, Later."""
        self._end.wait(seconds)
        self.check()
        if self.gives_way():
            raise JobYield

    def end(self, error: type[Exception]) -> None:
        """Make the job end.

        Args:
            error: Cancelled or Stopped.
        """
        self._error = error
        self._end.set()
