"""Gives processes their turn to write to a SQLite database. The NFS server goes first.

SQLite makes a writer that finds another writer at work sleep and look again, up to 100 ms later. A
process that commits again and again takes the write lock in between, so the sleeper may wait for
seconds. These locks decide which process is next. SQLite's own lock keeps writers apart.

Two files are locked with flock, which ends with its process. ``turn`` is held for a write
transaction. ``next`` is a turnstile: every writer passes it on its way to ``turn``, and the NFS
server keeps it until it has its turn. So the server waits for no more than the transaction that is
under way, and the others cannot overtake it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.errors import TryAgain

POLL_SECONDS = 50e-6
POLL_FACTOR = 0.1
"""A poll sleeps for this share of the time waited so far, so that a long wait costs little."""


@contextmanager
def turn(database: Path, first_seconds: float | None) -> Iterator[None]:
    """Hold the turn to write.

    Parameters: database, the path of its file, beside which the files of the locks are made;
    first_seconds, the time-out of the NFS server, which goes first. None means to wait behind the
    server for as long as it takes.
    Raises: TryAgain, OSError.
    """
    with _file(database, "next") as gate, _file(database, "turn") as mine:
        if first_seconds is None:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(gate, fcntl.LOCK_UN)
            fcntl.flock(mine, fcntl.LOCK_EX)
        else:
            until = time.monotonic() + first_seconds
            _poll(gate, until)
            _poll(mine, until)
            fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # A close alone would leave the lock to a child that was forked meanwhile.
            fcntl.flock(mine, fcntl.LOCK_UN)


@contextmanager
def _file(database: Path, name: str) -> Iterator[int]:
    # Each turn has a descriptor of its own, so that threads of one process exclude each other too.
    path = database.with_name(f"{database.name}-{name}")
    fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _poll(fd: int, until: float) -> None:
    """Lock a file. It polls because flock has no time-out. No other process overtakes the poll."""
    started = time.monotonic()
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
        if now > until:
            raise TryAgain("another process has been writing to the namespace for too long")
        time.sleep(max(POLL_SECONDS, POLL_FACTOR * (now - started)))
