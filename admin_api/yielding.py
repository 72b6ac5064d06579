"""Makes way for the NFS server: on a busy machine the admin API takes a share of one processor.

An answer takes some tens of milliseconds of processor time, which the NFS server lacks when no
processor is idle. ``Share`` has a budget of such time. It fills at the rate ``admin.busy_share``,
up to a burst that people at the pages hardly ever use up. A program that asks without a pause does.
While the machine is busy and the budget is spent, requests begin one after the other, each when
nothing is owed any more. On a machine that has idle processors no request waits.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import clock

BURST_SECONDS = 3.0
DEBT_SECONDS = 0.25
"""The most processor time that is owed. A page waits for eight seconds at most with the default
share, if no other request waits before it. An answer that takes more time exceeds the share."""
LOOK_SECONDS = 0.1
"""The kernel counts processor time in steps of 0.01 s, so a shorter time would tell little."""
LEFT_PROCESSORS = 1.0
"""The machine is busy while others leave less processor time than this."""
EXEMPT = ("/api/v1/health/",)
_STAT = Path("/proc/stat")
_LOADS = Path("/proc/loadavg")


class Machine:
    """Tells whether others keep the machine busy.

    Parameters: stat, the kernel's counters of time; loads, the threads that can run now. Without
    the second, a save that begins would share the processors until the counters show it.
    """

    def __init__(self, stat: Path = _STAT, loads: Path = _LOADS) -> None:
        self._stat, self._loads = stat, loads
        self._processors = os.cpu_count() or 1
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._at = clock.monotonic_seconds()
        self._left = self._left_seconds()
        self._is_busy = False

    def is_busy(self) -> bool:
        """Return whether others left less than a processor, as of LOOK_SECONDS ago at most, or have
        a thread for each processor now."""
        now = clock.monotonic_seconds()
        if now - self._at >= LOOK_SECONDS:
            left = self._left_seconds()
            self._is_busy = left - self._left < LEFT_PROCESSORS * (now - self._at)
            self._at, self._left = now, left
        return self._is_busy or self._others_running() >= self._processors

    def _others_running(self) -> int:
        """Return the number of other threads that run or wait for a processor (proc_loadavg(5))."""
        return int(self._loads.read_text().split()[3].partition("/")[0]) - 1

    def _left_seconds(self) -> float:
        """Return the time of all processors since the start that was idle, with the waits for disks
        (proc_stat(5)), or used by this process."""
        fields = self._stat.read_text().split("\n", 1)[0].split()
        return (int(fields[4]) + int(fields[5])) / self._ticks_per_second + time.process_time()


class Share:
    """The budget of processor time of this process. Not safe to use from several threads.

    Parameters: share, seconds of processor time for each second of a busy machine; is_busy;
    burst_seconds, the most that is saved up.
    """

    def __init__(
        self, share: float, is_busy: Callable[[], bool], burst_seconds: float = BURST_SECONDS
    ) -> None:
        self._share = share
        self._is_busy = is_busy
        self._burst = self._budget = burst_seconds
        self._at = clock.monotonic_seconds()
        self._used = time.process_time()

    def wait_seconds(self) -> float:
        """Return the time until the next request may begin."""
        now, used = clock.monotonic_seconds(), time.process_time()
        filled = self._budget + self._share * (now - self._at) - (used - self._used)
        # What was used while the processors were idle is not owed.
        least = -DEBT_SECONDS if self._is_busy() else 0.0
        self._budget = min(self._burst, max(least, filled))
        self._at, self._used = now, used
        return min(LOOK_SECONDS, -self._budget / self._share) if self._budget < 0 else 0.0


class Yielding:
    """An ASGI application around another one, whose requests wait for their share. Parameters: app;
    share."""

    def __init__(self, app: ASGIApp, share: Share) -> None:
        self._app = app
        self._share = share
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_exempt = scope["type"] != "http" or scope["path"].startswith(EXEMPT)
        if is_exempt or (not self._turn.locked() and not self._share.wait_seconds()):
            return await self._app(scope, receive, send)
        await self._turn.acquire()
        is_ours = True

        def end() -> None:
            nonlocal is_ours
            if is_ours:
                is_ours = False
                self._turn.release()

        async def send_and_end(message: Message) -> None:
            # A stream of events begins at once and does not end.
            end()
            await send(message)

        try:
            while seconds := self._share.wait_seconds():
                await asyncio.sleep(seconds)
            await self._app(scope, receive, send_and_end)
        finally:
            end()
