"""Processor budget of the admin API: on a busy machine it takes a share of one processor.

An answer takes some tens of milliseconds of processor time, which the NFS server lacks when no
processor is idle. ``Share`` has a budget of such time. It fills at the rate ``admin.busy_share``,
up to a burst that people at the pages hardly ever use up. A program that asks without a pause does.
While the machine is busy and the budget is spent, requests begin one after the other, each when
nothing is owed any more. On a machine that has idle processors no request waits. Strangers
(``admin_api.listener``) leave half of the budget to others: who has no token cannot spend it.

The threads that answer go before those of other processes. An answer waits for a processor several
times, on a busy machine as long each time as the threads of the NFS server keep it. What answers
take from NFS is bounded by their share, not by their priority.

Probes, and what waits for the bucket, have threads of their own. Other requests have 40. Those that
ask a bucket which does not answer would have all of them, and a probe would find no thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from admin_api import listener
from gateway.common import clock

BURST_SECONDS = 3.0
DEBT_SECONDS = 0.25
"""The most processor time that is owed. A page waits for eight seconds at most with the default
share, if no other request waits before it. An answer that takes more time exceeds the share."""
STRANGERS_WAIT_SECONDS = DEBT_SECONDS / 0.03
"""The longest time for which a stranger leaves the budget to others: as long as a page may wait."""
LOOK_SECONDS = 0.1
"""The kernel counts processor time in steps of 0.01 s, so a shorter time would tell little."""
LEFT_PROCESSORS = 1.0
"""The machine is busy while others leave less processor time than this."""
_STAT = Path("/proc/stat")
_LOADS = Path("/proc/loadavg")


class MachineLoad:
    """Tells whether others keep the machine busy.

    Without the second, a save that begins would share the processors until the counters show it.

    Args:
        stat: the kernel's counters of time.
        loads: the threads that can run now.
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

    Only what is used while a request runs counts: refusals (``admin_api.listener``) must not spend
    what others have saved up.

    Args:
        share: seconds of processor time for each second of a busy machine.
        burst_seconds: the most that is saved up.
    """

    def __init__(
        self, share: float, is_busy: Callable[[], bool], burst_seconds: float = BURST_SECONDS
    ) -> None:
        self._share = share
        self._is_busy = is_busy
        self._burst = self._budget = burst_seconds
        self._at = clock.monotonic_seconds()
        self._used = time.process_time()
        self._running = 0

    def begin(self) -> None:
        """Note that a request begins."""
        self._settle()
        self._running += 1

    def end(self) -> None:
        """Note that a request has its answer."""
        self._settle()
        self._running -= 1

    def wait_seconds(self, kept_seconds: float = 0.0) -> float:
        """Return the time until the next request may begin.

        Args:
            kept_seconds: the budget that must be left on a busy machine.
        """
        self._settle()
        lacking = kept_seconds - self._budget
        if lacking <= 0 or (self._budget >= 0 and not self._is_busy()):
            return 0.0
        return min(LOOK_SECONDS, lacking / self._share)

    @property
    def half_seconds(self) -> float:
        """Half of what is saved up at most."""
        return self._burst / 2

    def _settle(self) -> None:
        now, used = clock.monotonic_seconds(), time.process_time()
        spent = used - self._used if self._running else 0.0
        filled = self._budget + self._share * (now - self._at) - spent
        # What was used while the processors were idle is not owed.
        least = -DEBT_SECONDS if self._is_busy() else 0.0
        self._budget = min(self._burst, max(least, filled))
        self._at, self._used = now, used


class CpuBudgetMiddleware:
    """An ASGI application around another one, whose requests wait for their share.

    Args:
        exempt: the beginnings of the paths of probes.
    """

    def __init__(self, app: ASGIApp, share: Share, exempt: Collection[str] = ()) -> None:
        self._app = app
        self._share = share
        self._exempt = tuple(exempt)
        self._slot = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(self._exempt):
            await self._app(scope, receive, send)
            return
        slot = None
        if scope.get("state", {}).get(listener.STRANGERS_STATE, False):
            await self._leave_to_others()
        elif self._slot.locked() or self._share.wait_seconds():
            slot = self._slot
            await slot.acquire()
        await self._answer(scope, receive, send, slot)

    async def _leave_to_others(self) -> None:
        """Wait until others have what they may need, but not for ever."""
        until = clock.monotonic_seconds() + STRANGERS_WAIT_SECONDS
        while seconds := self._share.wait_seconds(self._share.half_seconds):
            if clock.monotonic_seconds() >= until:
                return
            await asyncio.sleep(seconds)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, slot: asyncio.Lock | None
    ) -> None:
        """Have a request answered.

        Args:
            slot: which the request has, or None.
        """
        has_begun = False

        def end() -> None:
            nonlocal slot, has_begun
            if slot is not None:
                slot.release()
                slot = None
            if has_begun:
                self._share.end()
                has_begun = False

        async def end_and_send(message: Message) -> None:
            # A stream of events begins at once and does not end.
            end()
            await send(message)

        try:
            if slot is not None:
                while seconds := self._share.wait_seconds():
                    await asyncio.sleep(seconds)
            self._share.begin()
            has_begun = True
            await self._app(scope, receive, end_and_send)
        finally:
            end()


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


PROBES = 2
BUCKET = 4

T = TypeVar("T")


class ApartThreads:
    """The threads of one process, made in its event loop."""

    def __init__(self) -> None:
        self._probes = CapacityLimiter(PROBES)
        self._bucket = CapacityLimiter(BUCKET)

    async def probe(self, act: Callable[..., T], *given: object) -> T:
        """Return what a function returns that tells whether this machine is well."""
        return await to_thread.run_sync(partial(act, *given), limiter=self._probes)

    async def ask_bucket(self, act: Callable[..., T], *given: object) -> T:
        """Return what a function returns that asks the bucket."""
        return await to_thread.run_sync(partial(act, *given), limiter=self._bucket)


async def _threads(request: Request) -> ApartThreads:
    threads: ApartThreads = request.app.state.threads
    return threads


Apart = Annotated[ApartThreads, Depends(_threads)]
"""The parameter of a route that needs such a thread."""
