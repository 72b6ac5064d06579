"""Keeps the threads that run jobs, by lane."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import ParamSpec

from gateway.drain.context import COPIES
from gateway.drain.job import UPLOADS, Lane

P = ParamSpec("P")

CHORES = 8
"""Threads for deletions and clean-up."""
READERS = 3
"""Threads for checksums: hashing a large file must not hold up a deletion."""
QUEUED_PER_THREAD = 2


class Threads:
    """The pools of one drain. Only the thread that plans submits.

    Parameters: workers, the number of threads of each lane that uploads.
    """

    def __init__(self, workers: int) -> None:
        counts = {
            **dict.fromkeys(UPLOADS, workers),
            Lane.CHORE: CHORES,
            Lane.COPY: COPIES,
            Lane.DISK: READERS,
        }
        self._pools = {
            lane: ThreadPoolExecutor(count, thread_name_prefix=f"drain-{lane.value}")
            for lane, count in counts.items()
        }
        self._slots = {lane: count * QUEUED_PER_THREAD for lane, count in counts.items()}
        self._running: dict[Lane, set[Future[None]]] = {lane: set() for lane in Lane}

    def submit(
        self, lane: Lane, function: Callable[P, None], /, *args: P.args, **named: P.kwargs
    ) -> None:
        """Run a function on a thread of a lane."""
        self._running[lane].add(self._pools[lane].submit(function, *args, **named))

    def free(self, lane: Lane) -> int:
        """Return how many more jobs may be submitted to a lane."""
        running = self._running[lane]
        running -= {future for future in running if future.done()}
        return self._slots[lane] - len(running)

    def are_idle(self) -> bool:
        """Return whether nothing was under way when ``free`` was last asked."""
        return not any(self._running.values())

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until what was submitted has ended. Returns False if it has not in that time."""
        running = {future for lane in self._running.values() for future in lane}
        return not wait(running, timeout=timeout_seconds).not_done

    def close(self, *, and_wait: bool) -> None:
        """Begin nothing more. Parameters: and_wait, whether to wait for what runs."""
        for pool in self._pools.values():
            pool.shutdown(wait=and_wait, cancel_futures=True)
