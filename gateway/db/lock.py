"""The queue of those who want to write to a SQLite database, whatever process they are.

SQLite makes a writer that finds another one at work sleep and look again, up to 100 ms later. A
process that commits again and again takes the write lock in between, so the sleeper may wait for
seconds. Here those that wait are woken at once, and the NFS server goes first: it waits for no
more than the transaction that is under way. SQLite's own lock stays what keeps writers apart; this
one only says who is next.

Both locks are flocks, which end with their process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from gateway.errors import TryAgain

TOO_LONG = "another process has been writing to the namespace database for too long"
POLL_SECONDS = 50e-6


class _Files(NamedTuple):
    """Descriptors of the two files that are locked."""

    next: int
    """Locked by one that goes first, until it has the other; the rest stand back meanwhile."""
    turn: int
    """Locked by the one who writes."""

    def close(self) -> None:
        os.close(self.next)
        os.close(self.turn)


def take(database: Path, seconds: float, first: bool) -> _Files:
    """Take the lock; returns what ``release`` needs.

    Parameters: database, the path of its file, beside which the locks' files are made; seconds,
    how long to wait; first, before all that do not say so.
    Raises: TryAgain when others kept it for so long; OSError when there can be no files.
    """
    # Descriptors of its own each time, so that threads of one process exclude each other too.
    names = (f"{database.name}-{name}" for name in _Files._fields)
    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
    files = _Files(*(os.open(database.with_name(name), flags, 0o600) for name in names))
    if not _take_at_once(files):
        if not first:
            _Waiter(files).wait(seconds)
        elif not _wait_first(files, seconds):
            files.close()
            raise TryAgain(TOO_LONG)
    return files


def release(files: _Files) -> None:
    """Let the next writer begin."""
    # Closing alone would leave the lock to a child that was forked meanwhile, until its exec.
    fcntl.flock(files.turn, fcntl.LOCK_UN)
    files.close()


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_at_once(files: _Files) -> bool:
    """Take the turn if nobody has it and nobody is next."""
    if not _try(files.next):
        return False
    taken = _try(files.turn)
    fcntl.flock(files.next, fcntl.LOCK_UN)
    return taken


def _wait_first(files: _Files, seconds: float) -> bool:
    """Whether the turn came in time. It looks again and again: nobody else takes it meanwhile, and
    a thread that waits for it would have to be woken once more on a busy machine."""
    taken = _poll(files.next, seconds) and _poll(files.turn, seconds)
    fcntl.flock(files.next, fcntl.LOCK_UN)
    return taken


def _poll(fd: int, seconds: float) -> bool:
    started = time.monotonic()
    while not _try(fd):
        waited = time.monotonic() - started
        if waited > seconds:
            return False
        time.sleep(max(POLL_SECONDS, waited / 10))
    return True


def _wait_behind(files: _Files) -> None:
    fcntl.flock(files.turn, fcntl.LOCK_EX)
    while not _try(files.next):
        # Another came to be next while this one waited.
        fcntl.flock(files.turn, fcntl.LOCK_UN)
        fcntl.flock(files.next, fcntl.LOCK_EX)
        fcntl.flock(files.next, fcntl.LOCK_UN)
        fcntl.flock(files.turn, fcntl.LOCK_EX)
    fcntl.flock(files.next, fcntl.LOCK_UN)


class _Waiter:
    """A thread that queues, because flock knows no time-out.

    Parameters: files, closed here unless the wait succeeds.
    """

    def __init__(self, files: _Files) -> None:
        self._all = files
        self._lock = threading.Lock()
        self._has_turn = False
        self._given_up = False
        self._thread = threading.Thread(target=self._block, name="write-lock", daemon=True)

    def wait(self, seconds: float) -> None:
        """Return with the turn. Raises TryAgain when that took too long."""
        self._thread.start()
        try:
            self._thread.join(seconds)
        finally:
            with self._lock:
                self._given_up = not self._has_turn
        if self._given_up:
            raise TryAgain(TOO_LONG)

    def _block(self) -> None:
        _wait_behind(self._all)
        with self._lock:
            self._has_turn = not self._given_up
        if self._given_up:
            self._all.close()
