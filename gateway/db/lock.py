"""Gives processes their turn to write to a SQLite database. The NFS server goes first.

SQLite makes a writer that finds another writer at work sleep and look again, up to 100 ms later. A
process that commits again and again takes the write lock in between, so the sleeper may wait for
seconds. These locks decide which process is next. SQLite's own lock keeps writers apart.

Two files are locked with flock, which ends with its process. ``turn`` is held for a write
transaction. ``next`` is a turnstile: the writers pass it on their way to ``turn``. The NFS server
takes a ``turn`` that is free. Otherwise it keeps the turnstile until it has its turn, so it waits
for no more than the transaction that is under way, and the others cannot overtake it.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from collections import deque
from pathlib import Path
from typing import NamedTuple

from gateway.errors import TryAgain
from gateway.filelock import try_lock

POLL_SECONDS = 50e-6
POLL_FACTOR = 0.1
"""A poll sleeps for this share of the time waited so far, so that a long wait costs little."""


class Turn(NamedTuple):
    """The descriptors of one turn. No two turns share them at the same time, so that threads of one
    process exclude each other too."""

    gate: int
    mine: int

    def close(self) -> None:
        for fd in self:
            os.close(fd)


class Turns:
    """The turns of one process to write to one database.

    Parameters: database, the path of its file, beside which the files of the locks are made.
    """

    def __init__(self, database: Path) -> None:
        self._gate, self._mine = f"{database}-next", f"{database}-turn"
        # Opening the files for each turn would take a tenth of the processor time of a transaction
        # with one change.
        self._kept: deque[Turn] = deque()
        weakref.finalize(self, _close, self._kept)

    def take(self, first_seconds: float | None) -> Turn:
        """Wait for the turn to write. The caller gives it back with ``end``.

        Parameters: first_seconds, the time-out of the NFS server, which goes first. None means to
        wait behind the server for as long as it takes. Raises TryAgain, OSError.
        """
        turn = self._opened()
        try:
            if first_seconds is None:
                fcntl.flock(turn.gate, fcntl.LOCK_EX)
                fcntl.flock(turn.gate, fcntl.LOCK_UN)
                fcntl.flock(turn.mine, fcntl.LOCK_EX)
            elif not try_lock(turn.mine):
                until = time.monotonic() + first_seconds
                _poll(turn.gate, until)
                _poll(turn.mine, until)
                fcntl.flock(turn.gate, fcntl.LOCK_UN)
        except BaseException:
            turn.close()
            raise
        return turn

    def end(self, turn: Turn) -> None:
        """End a turn of ``take``."""
        # A close alone would leave the lock to a child that was forked meanwhile.
        fcntl.flock(turn.mine, fcntl.LOCK_UN)
        self._kept.append(turn)

    def close(self) -> None:
        """Close the files. A later turn opens them again."""
        _close(self._kept)

    def _opened(self) -> Turn:
        """Return descriptors that no turn has. Raises OSError."""
        try:
            turn = self._kept.pop()
        except IndexError:
            return self._open()
        # Other processes lock the files that have the names now.
        if all(os.fstat(fd).st_nlink for fd in turn):
            return turn
        turn.close()
        return self._open()

    def _open(self) -> Turn:
        gate = _open(self._gate)
        try:
            return Turn(gate, _open(self._mine))
        except BaseException:
            os.close(gate)
            raise


def _close(kept: deque[Turn]) -> None:
    while kept:
        kept.pop().close()


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _poll(fd: int, until: float) -> None:
    """Lock a file. It polls because flock has no time-out. No other process overtakes the poll."""
    started = time.monotonic()
    while not try_lock(fd):
        now = time.monotonic()
        if now > until:
            raise TryAgain("another process has been writing to the namespace for too long")
        time.sleep(max(POLL_SECONDS, POLL_FACTOR * (now - started)))
