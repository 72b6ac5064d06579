"""The queue of those who want to write to a SQLite database, whatever process they are.

SQLite makes a writer that finds another one at work sleep and look again, up to 100 ms later. A
process that commits again and again takes the write lock in between, so the sleeper may wait for
seconds. Here the kernel wakes the one that waits, and the NFS server goes first: it waits for no
more than the transaction that is under way. SQLite's own lock stays what keeps writers apart; this
one only says who is next.

Both locks are flocks, which end with their process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gateway.errors import TryAgain


class _Files(NamedTuple):
    """Descriptors of the two files that are locked."""

    next: int
    """Locked by one that goes first, until it has the other; the rest stand back meanwhile."""
    turn: int
    """Locked by the one who writes."""

    def close(self) -> None:
        os.close(self.next)
        os.close(self.turn)


class WriteLock:
    """The lock of one database in one process.

    Parameters: database, the path of its file; the locks' files are made beside it.
    """

    def __init__(self, database: Path) -> None:
        self._paths = [database.with_name(f"{database.name}-{name}") for name in _Files._fields]
        self._files: _Files | None = None
        self._inside = threading.Lock()
        """A flock is its descriptor's: it does not keep threads apart."""

    def take(self, seconds: float, first: bool) -> None:
        """Take the lock.

        Parameters: seconds, how long to wait; first, before all that do not say so.

        Raises: TryAgain when others kept it for so long; OSError when there can be no files.
        """
        if not self._inside.acquire(timeout=seconds):
            raise TryAgain("another thread has been writing to the namespace database for too long")
        try:
            self._take(seconds, first)
        except BaseException:
            self._inside.release()
            raise

    def release(self) -> None:
        """Let the next writer begin."""
        assert self._files is not None
        fcntl.flock(self._files.turn, fcntl.LOCK_UN)
        self._inside.release()

    def _take(self, seconds: float, first: bool) -> None:
        if self._files is None:
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
            self._files = _Files(*(os.open(path, flags, 0o600) for path in self._paths))
        if not _take_at_once(self._files):
            waiter = _Waiter(self._files, _wait_first if first else _wait_behind)
            # They are the waiter's until it has the lock.
            self._files = None
            self._files = waiter.wait(seconds)


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


def _wait_first(files: _Files) -> None:
    fcntl.flock(files.next, fcntl.LOCK_EX)
    fcntl.flock(files.turn, fcntl.LOCK_EX)
    fcntl.flock(files.next, fcntl.LOCK_UN)


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

    Parameters: files, closed here unless the wait succeeds; take, which waits and locks them.
    """

    def __init__(self, files: _Files, take: Callable[[_Files], None]) -> None:
        self._all = files
        self._take = take
        self._lock = threading.Lock()
        self._has_turn = False
        self._given_up = False
        self._thread = threading.Thread(target=self._block, name="write-lock", daemon=True)

    def wait(self, seconds: float) -> _Files:
        """The files, locked. Raises TryAgain when that took too long."""
        self._thread.start()
        try:
            self._thread.join(seconds)
        finally:
            with self._lock:
                self._given_up = not self._has_turn
        if self._given_up:
            raise TryAgain(
                "another process has been writing to the namespace database for too long"
            )
        return self._all

    def _block(self) -> None:
        self._take(self._all)
        with self._lock:
            self._has_turn = not self._given_up
        if self._given_up:
            self._all.close()
