"""The threads that answer go before those of other processes.

An answer waits for a processor several times, on a busy machine as long each time as the threads of
the NFS server keep it. What answers take from NFS is bounded by their share
(``admin_api.yielding``), not by their priority.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

ANSWERS = -10
"""The nice value (setpriority(2)) of the threads that answer. The package's unit allows it
(LimitNICE)."""


def first() -> None:
    """Give the calling thread, and those that it starts, the priority of answers."""
    _set(ANSWERS)


def as_the_process() -> None:
    """Give the calling thread the priority of the main thread: a job takes its time beside NFS."""
    _set(os.getpriority(os.PRIO_PROCESS, os.getpid()))


def _set(nice: int) -> None:
    """Set the nice value of the calling thread. One that may not have it keeps its own."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
