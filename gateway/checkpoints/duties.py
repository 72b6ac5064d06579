"""Runs what follows from the catalogue, beside the follower: each duty in a thread of its own, so
that a bucket which does not answer holds up one duty and not the catalogue.

A duty has a turn when it asked for one, and earlier if rows of the catalogue changed, but not
within a second of a turn that left nothing to do. It reads its work from the database at each turn,
so a turn that is lost in a crash is done by the next one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Protocol

from gateway.errors import NamespaceError

log = logging.getLogger("checkpoints")

RETRY_SECONDS = 2.0
REST_SECONDS = 30.0
PAUSE_SECONDS = 1.0
"""The least time between a turn that left nothing to do and the next one. A turn for each of many
saves in a row would take processor time from the saves."""
JOIN_SECONDS = 3.0


class Duty(Protocol):
    """Something to do for checkpoints."""

    name: str

    def turn(self) -> float:
        """Do what is due. It looks at its stop event between two steps. Returns the seconds after
        which it has its next turn at the latest. Raises NamespaceError if the database cannot be
        used."""


class Duties:
    """The threads of the duties.

    Parameters: duties; stop, after which they end between two steps.
    """

    def __init__(self, duties: Sequence[Duty], stop: threading.Event) -> None:
        self._stop = stop
        self._news = [(duty, threading.Event()) for duty in duties]
        self._threads = [
            threading.Thread(target=self._run, args=pair, name=pair[0].name, daemon=True)
            for pair in self._news
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def news(self, idle: Collection[Duty] = ()) -> None:
        """Rows of the catalogue changed: each duty has a turn. Returns at once.

        Parameters: idle, the duties that have no work from this change.
        """
        for duty, news in self._news:
            if duty not in idle:
                news.set()

    def end(self) -> None:
        """Wait for the turns that are under way, after stop was set."""
        self.news()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _run(self, duty: Duty, news: threading.Event) -> None:
        while not self._stop.is_set():
            news.clear()
            try:
                seconds = duty.turn()
            except NamespaceError as exc:
                log.warning("%s waits for the database: %s", duty.name, exc)
                seconds = RETRY_SECONDS
            except Exception:
                # What is not foreseen must not end the duty: its next turn may succeed.
                log.exception("%s: unexpected", duty.name)
                seconds = REST_SECONDS
            self._stop.wait(min(seconds, PAUSE_SECONDS))
            news.wait(seconds)
