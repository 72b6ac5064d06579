"""Stop of processes by SIGSTOP, with a wait until every one of their threads stands still."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from gateway.common.errors import TryAgain
from gateway.db.engine import Database
from tests.support.waiting import until


def stop(pid: int) -> None:
    """Stop a process. Each of its threads has finished its system call when this returns."""
    os.kill(pid, signal.SIGSTOP)
    until(partial(_is_stopped, pid), f"the stop of process {pid}")


def stop_between_transactions(pid: int, database: Database) -> None:
    """Stop a process that writes to the namespace while it neither has a write transaction nor is
    on its way to one. Otherwise no other process could write until it continues.
    """
    while True:
        with database.writing():
            stop(pid)
        try:
            with database.writing():
                return
        except TryAgain:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and let it continue at the end."""
    try:
        stop(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread ended meanwhile
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
