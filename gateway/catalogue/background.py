"""Background tasks beside the tracker, each in a thread of its own.

A bucket that does not answer holds up one task and not the catalogue. A task runs when it asked for
that, and earlier if rows of the catalogue changed, but not within a second of a pass that left
nothing to do. It reads its work from the database at each pass, so a pass that is lost in a crash
is done by the next one.

``AbandonedFiles`` finds what killed saves have left below temporary names. The drain may hold such
a file for ever, and the checkpoint is whole without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from gateway.catalogue import statements as own
from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.rules import Rules, is_removed
from gateway.common.errors import NamespaceError
from gateway.common.types import Extent, InodeKind
from gateway.db.compiled import Session
from gateway.namespace.lookup import way_up

log = logging.getLogger("checkpoints")

RETRY_SECONDS = 2.0
IDLE_SECONDS = 30.0
PAUSE_SECONDS = 1.0
"""The least time between a pass that left nothing to do and the next one. A pass for each of many
saves in a row would take processor time from the saves."""
JOIN_SECONDS = 3.0


class BackgroundTask(Protocol):
    """Something to do for checkpoints."""

    name: str

    def run_once(self) -> float:
        """Do what is due. It looks at its stop event between two steps. Returns the seconds after
        which it has its next pass at the latest. Raises NamespaceError if the database cannot be
        used."""


class BackgroundTasks:
    """The threads of the tasks.

    Args:
        stop: after which they end between two steps.
    """

    def __init__(self, tasks: Sequence[BackgroundTask], stop: threading.Event) -> None:
        self._stop = stop
        self._news = [(task, threading.Event()) for task in tasks]
        self._threads = [
            threading.Thread(target=self._run, args=pair, name=pair[0].name, daemon=True)
            for pair in self._news
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def news(self, idle: Collection[BackgroundTask] = ()) -> None:
        """Rows of the catalogue changed: each task runs once. Returns at once.

        Args:
            idle: the tasks that have no work from this change.
        """
        for task, news in self._news:
            if task not in idle:
                news.set()

    def end(self) -> None:
        """Wait for the passes that are under way, after stop was set."""
        self.news()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _run(self, task: BackgroundTask, news: threading.Event) -> None:
        while not self._stop.is_set():
            news.clear()
            try:
                seconds = task.run_once()
            except NamespaceError as exc:
                log.warning("%s waits for the database: %s", task.name, exc)
                seconds = RETRY_SECONDS
            except Exception:
                # What is not foreseen must not end the task: its next pass may succeed.
                log.exception("%s: unexpected", task.name)
                seconds = IDLE_SECONDS
            self._stop.wait(min(seconds, PAUSE_SECONDS))
            news.wait(seconds)


class Inside(NamedTuple):
    """The checkpoint that a directory is, or is in."""

    rule: str
    is_deep: bool
    """Whether what is in the directories below belongs to it too."""
    is_complete: bool
    """Whether no save is under way in it."""


class AbandonedFiles:
    """Files that killed saves have left under temporary names.

    Args:
        session: session in a transaction that reads.
    """

    def __init__(self, session: Session, rules: Rules) -> None:
        self._session = session
        self._rules = rules

    def at(self, top: int) -> Inside | None:
        """Return the checkpoint that a directory is, or is in."""
        enclosing_checkpoint: Inside | None = None
        for ino, _parent, _name in reversed(list(way_up(self._session, top))):
            enclosing_checkpoint = self.below(ino, enclosing_checkpoint)
        return enclosing_checkpoint

    def below(self, directory: int, above: Inside | None) -> Inside | None:
        """Return the checkpoint that a directory is, or is in.

        Args:
            above: that of the directory that it is in.
        """
        row = self._session.one(own.RULE, ino=directory)
        if row is not None:
            return Inside(row[0], row[1] == Extent.TREE, row[2] != CheckpointState.WRITING)
        return above if above is not None and above.is_deep else None

    def has(self, inside: Inside | None, kind: int, name: bytes, is_open: bool) -> bool:
        """Return whether a file is one.

        Args:
            inside: that of its directory.
            kind: of the inode.
            name: of the file.
            is_open: whether it is open for writing.
        """
        if kind == InodeKind.REGULAR and is_removed(name):
            return True
        if inside is None or kind != InodeKind.REGULAR or is_open:
            return False
        if self._rules.leaves(inside.rule, name):
            return True
        return inside.is_complete and self._rules.holds.holds((), name)
