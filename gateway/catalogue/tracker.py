"""Follower of the journal: examines again each checkpoint that a change concerns.

Work is done in rounds, so a checkpoint is looked at once a second at most, whatever happens to its
members. A round reads the next rows of the journal, finds the checkpoints that they concern, looks
at each, and writes what differs together with the position in the journal. A round that is
interrupted is done again: looking twice makes the same rows.

A write transaction makes the NFS server wait for the disk. So a row that differs only in how far a
save has come waits for the next transaction, for WRITING_SECONDS at most. The position is not saved
before it.

Everything is read when the journal was not kept for this reader, or when the rules are others than
those that the rows were made with. ``catalogue`` has no row until that is done.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from gateway.catalogue import statements as own
from gateway.catalogue.display_state import Look
from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.store import catalogue_of
from gateway.common import clock
from gateway.common.errors import NamespaceError
from gateway.common.text import printable
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.journal import BELOW, STORED, Lost, Reader

log = logging.getLogger("checkpoints")

RULES_VERSION = 3
"""Grows when a rule of a framework changes: all checkpoints are then looked at again."""
ROUND_SECONDS = 1.0
PAUSE_RATIO = 4
"""The pause after a round takes this many times as long as the round."""
PAUSE_LIMIT_SECONDS = 30.0
READ_INOS = 4096
"""The inodes of the journal that one round takes up."""
WRITTEN_AT_ONCE = 64
"""The rows of a write transaction, for which the NFS server waits."""
WRITING_SECONDS = 3.0
"""The time for which a row may wait whose checkpoint is being written, as it was before."""
SAVE_SECONDS = 10.0
SAVE_ROWS = 256
"""The position is saved after so many seconds or rows although nothing else is written."""
RETRY_SECONDS = 2.0
DUE_MAX_SECONDS = 86_400.0 * 30
"""The longest time for which a rule of the configuration can want a checkpoint to be quiet."""


class Follower:
    """Follower of the journal that maintains the catalogue of one namespace.

    Args:
        stop: after which it ends between two transactions.
        news: which is called with the looks that were written and are more than progress, without
            one when rows are gone, and with looks that found a complete checkpoint touched and as
            before.
        writing_seconds: for which the row of a checkpoint that is being written may wait.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        stop: threading.Event,
        news: Callable[[Sequence[Look]], None] = lambda _looks: None,
        writing_seconds: float = 0.0,
    ) -> None:
        self._database = database
        self._news = news
        self._writing_seconds = writing_seconds
        self._stop = stop
        self._catalogue = catalogue_of(settings, database)
        self._made_with = made_with(settings)
        self._reader: Reader | None = None
        """The reader of the journal, or None if it must begin or resume."""
        self._due: dict[int, float] = {}
        """Monotonic seconds at which checkpoints are looked at although nothing changed, by inode:
        a wall clock that is set back must not keep them waiting."""
        self._looks: dict[int, Look] = {}
        """What is to be written, by inode."""
        self._is_unnumbered = False
        """Whether records were written that have no place in the order of completions yet."""
        self._runs: set[bytes] = set()
        """The runs with a new complete checkpoint, of which others are to be looked at."""
        self._same: list[Look] = []
        """Checkpoints that were touched and are as before: their links may be gone."""
        self._write_at = 0.0
        """The time at which looks that may wait are written."""
        self._save_at = clock.monotonic_seconds() + SAVE_SECONDS
        self._count = -1
        """The number of checkpoints of which the tasks know."""
        self.rounds = 0
        """The rounds, for a watchdog."""

    def run(self) -> None:
        """Follow until stop is set."""
        seconds = 0.0
        while not self._stop.wait(seconds):
            self.rounds += 1
            started = clock.monotonic_seconds()
            try:
                is_last = self.step()
            except NamespaceError as exc:
                log.warning("the catalogue waits for the database: %s", exc)
                seconds = RETRY_SECONDS
                continue
            except Exception:
                # What is not foreseen must not end the process: all other checkpoints would wait.
                log.exception("unexpected")
                seconds = PAUSE_LIMIT_SECONDS
                continue
            spent = clock.monotonic_seconds() - started
            seconds = (
                min(max(ROUND_SECONDS, PAUSE_RATIO * spent), PAUSE_LIMIT_SECONDS)
                if is_last
                else 0.0
            )

    def step(self) -> bool:
        """Do one round. Returns whether the journal was read to its end. Raises NamespaceError."""
        reader, self._reader = self._reader, None
        try:
            if reader is None:
                reader = self._resumed()
            is_last = self._round(reader)
        except Lost as exc:
            log.info("%s: the whole namespace is read", exc)
            reader = self._rebuild()
            is_last = False
        if not self._stop.is_set():
            self._reader = reader
        return is_last

    def _resumed(self) -> Reader:
        """Return the reader at its saved position. Raises Lost."""
        reader = Reader("catalogue")
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            row = session.one(own.MADE_WITH)
            if row is None or row[0] != self._made_with:
                raise Lost("there is no catalogue yet, or it was made with other rules")
            reader.resume(session)
            self._looks = {}
            self._due = {ino: _monotonic(due_ns) for ino, due_ns in session.all(own.DUE)}
        self._is_unnumbered = True
        return reader

    def _rebuild(self) -> Reader:
        """Look at the whole namespace. Raises Lost."""
        reader = Reader("catalogue")
        with self._catalogue.writing() as session:
            session.run(own.MADE_WITH_DELETE)
            reader.begin(session)
        self._due, self._looks = {}, {}
        self._look(self._catalogue.everything())
        if not self._stop.is_set():
            with self._catalogue.writing() as session:
                session.run(own.MADE_WITH_INSERT, id=1, rules=self._made_with)
                self._catalogue.number(session)
            self._is_unnumbered = False
            self._news(())
        return reader

    def _round(self, reader: Reader) -> bool:
        changed: set[int] = set()
        below: set[int] = set()
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            for inode in reader.read(session, READ_INOS):
                changed.add(inode.ino)
                if inode.what & (BELOW | STORED):
                    below.add(inode.ino)
        inos, directories = self._catalogue.concerned(changed) if changed else (set(), set())
        below &= directories
        for directory in directories:
            inos |= self._catalogue.beside(directory)
        now = clock.monotonic_seconds()
        due = [ino for ino, due_at in self._due.items() if due_at <= now]
        for ino in due:
            # Its row may be gone. What it has to wait for once more is in the row that is written.
            del self._due[ino]
        inos.update(due)
        # What waits to be written may be no checkpoint any more, and no row says that it was one.
        inos.update(self._looks)
        self._look(chain(inos, *(self._catalogue.below(ino) for ino in below)), reader)
        if changed:
            self._tell_of_removals()
        return reader.is_at_end

    def _tell_of_removals(self) -> None:
        """Tell the tasks if there are fewer checkpoints: rows go with their inodes, unwritten."""
        with self._database.reader() as connection:
            row = Session(connection, self._database.dialect).one(own.COUNT)
        assert row is not None, "a query without groups has one row"
        before, self._count = self._count, row[0]
        if row[0] < before:
            self._news(())

    def _look(self, inos: Iterable[int], reader: Reader | None = None) -> None:
        """Look at inodes, and at what follows from that, and write what differs. The last
        transaction saves the position of the reader. Raises Lost."""
        rebuilt: deque[int] = deque()
        for ino in self._followed(inos, rebuilt):
            if self._stop.is_set():
                return
            look = self._catalogue.look(ino)
            if look.is_rebuilt:
                rebuilt.append(ino)
            self._take(look)
            if len(self._looks) >= WRITTEN_AT_ONCE:
                self._write(None)
        self._write(reader)
        while self._runs and not self._stop.is_set():
            runs, self._runs = self._runs, set()
            for ino in self._catalogue.writing_of(runs):
                self._take(self._catalogue.look(ino))
            self._write(reader)
        if self._same:
            self._news(self._same)
            self._same = []

    def _take(self, look: Look) -> None:
        """Keep a look until it is written, in place of an earlier one at the same inode."""
        if not self._looks:
            self._write_at = clock.monotonic_seconds() + self._writing_seconds
        self._looks.pop(look.ino, None)
        if not look.is_news and look.wanted is None:
            if look.now is not None and look.now.state != CheckpointState.WRITING:
                self._same.append(look)
            return
        self._looks[look.ino] = look
        self._due.pop(look.ino, None)
        if look.now is not None and look.now.due_ns is not None:
            self._due[look.ino] = _monotonic(look.now.due_ns)

    def _followed(self, inos: Iterable[int], rebuilt: deque[int]) -> Iterator[int]:
        """Yield inodes, and then what is below those that became checkpoints or are none now."""
        yield from inos
        while rebuilt:
            yield from self._catalogue.below(rebuilt.popleft())

    def _write(self, reader: Reader | None) -> None:
        """Write the looks, unless all of them may wait. Raises Lost."""
        now = clock.monotonic_seconds()
        unsaved = 0 if reader is None else reader.unsaved
        is_due = unsaved >= SAVE_ROWS or (unsaved > 0 and now >= self._save_at)
        looks = list(self._looks.values())
        may_wait = reader is not None and now < self._write_at
        # An earlier completion may be among what was not read yet.
        numbers = reader is not None and reader.is_at_end and self._is_unnumbered
        if not (is_due or numbers) and all(may_wait and look.is_progress for look in looks):
            return
        with self._catalogue.writing() as session:
            self._catalogue.write(session, looks)
            self._is_unnumbered |= any(look.is_unnumbered for look in looks)
            numbered = 0
            if reader is not None and reader.is_at_end and self._is_unnumbered:
                numbered = self._catalogue.number(session)
            if reader is not None:
                reader.save(session)
                self._save_at = now + SAVE_SECONDS
        self._is_unnumbered &= reader is None or not reader.is_at_end
        self._looks = {}
        self._runs |= {run for look in looks if (run := look.completes) is not None}
        # No task has work from a checkpoint that is only further written than before.
        if changes := [look for look in looks if not look.is_progress]:
            self._news(changes)
        elif numbered:
            self._news(())
        for look in looks:
            self._say(look)

    def _say(self, look: Look) -> None:
        before = None if look.before is None else look.before.state
        if look.now is not None and look.now.state != before:
            log.info("%s: %s", printable(look.now.path), look.now.state)


def _monotonic(due_ns: int) -> float:
    """Return a time in monotonic seconds.

    Args:
        due_ns: the same by the wall clock.
    """
    seconds = (due_ns - clock.now_ns()) / clock.NS
    return clock.monotonic_seconds() + min(max(seconds, 0.0), DUE_MAX_SECONDS)


def made_with(settings: Settings) -> str:
    """Return a hash of what says which places are checkpoints, and what is durable."""
    tables = [sorted(table.items()) for table in settings.checkpoints.rule]
    configured = (settings.drain.incomplete_patterns, settings.checkpoints.quiet_seconds)
    facts = (RULES_VERSION, tables, *configured, settings.bucket.prefix)
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()
