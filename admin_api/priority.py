"""Has requests answered before other work of the machine.

While clients save, each thread that wakes up waits for a processor, and an answer passes through
several threads. The priority shortens these waits. Requests are limited to ``admin.busy_share``
(admin_api.yielding), so the NFS server loses no more than that. Jobs and what is got in the
background are not requests: they have the priority of others.

Linux keeps a priority for each thread. A new thread has that of the one that began it (sched(7)).
"""

from __future__ import annotations

import os
from contextlib import suppress

REQUESTS = -10
"""The nice value of threads that answer requests. systemd allows it (LimitNICE)."""
OTHERS = 0


def requests_first() -> None:
    """Give this thread, and those that it begins, the priority of requests.

    A process without the right keeps its priority: that of a user who runs ``spillway up``.
    """
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, REQUESTS)


def as_others() -> None:
    """Give this thread the priority of others, if it was begun by one that answers requests."""
    if os.getpriority(os.PRIO_PROCESS, 0) == REQUESTS:
        os.setpriority(os.PRIO_PROCESS, 0, OTHERS)
