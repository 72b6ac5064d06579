"""The threads that answer go before those of other processes.

An answer waits for a processor several times, on a busy machine as long each time as the threads of
the NFS server keep it. What answers take from NFS is bounded by their share
(``admin_api.yielding``), not by their priority.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

ANSWERS = -10
"""The nice value (setpriority(2)) of the threads that answer. The package's unit allows it
(LimitNICE)."""


def first(work: Callable[[], None]) -> Callable[[], None]:
    """Return work that does the same at the priority of answers, in the thread that calls it and
    those that this thread starts. A process that may not raise a priority keeps its own."""

    def at_priority() -> None:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), ANSWERS)
        work()

    return at_priority


def as_the_process() -> None:
    """Give the calling thread the priority of the main thread: a job takes its time beside NFS."""
    nice = os.getpriority(os.PRIO_PROCESS, os.getpid())
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
