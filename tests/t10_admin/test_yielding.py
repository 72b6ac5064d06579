"""On a busy machine the admin API takes its share of the processor, and no more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from admin_api import cpu_budget, listener
from admin_api.cpu_budget import LOOK_SECONDS, CpuBudgetMiddleware, MachineLoad, Share
from gateway.common import clock
from tests.support.waiting import until

SHARE = 0.5


def spend(seconds: float) -> None:
    """Use processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def spend_of(share: Share, seconds: float) -> None:
    """Use processor time for a request."""
    share.begin()
    spend(seconds)
    share.end()


@contextmanager
def busy_machine() -> Iterator[None]:
    """Keep every processor busy."""
    count = os.cpu_count() or 1
    processes = [subprocess.Popen([sys.executable, "-c", "while 1: 0"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def loads(tmp_path: Path) -> Path:
    path = tmp_path / "loadavg"
    path.write_text("0.20 0.18 0.12 1/80 11206\n")
    return path


def test_a_machine_without_an_idle_processor_is_busy(
    loads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MachineLoad(loads=loads)
    with monkeypatch.context() as late:
        late.setattr(cpu_budget, "LOOK_SECONDS", 600.0)
        assert not machine.is_busy(), "nothing was measured yet"
    with busy_machine():
        until(machine.is_busy, "the machine is busy")


def test_a_machine_is_not_busy_while_it_waits_for_disks(tmp_path: Path, loads: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 0 0 0 1000 1000 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    machine = MachineLoad(stat, loads)
    time.sleep(LOOK_SECONDS)
    stat.write_text("cpu 900 0 0 1000 9000 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    assert not machine.is_busy()
    time.sleep(LOOK_SECONDS)
    stat.write_text("cpu 9000 0 0 1001 9001 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    assert machine.is_busy()


@pytest.fixture
def late_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters of time show nothing during the test."""
    monkeypatch.setattr(cpu_budget, "LOOK_SECONDS", 600.0)


@pytest.mark.usefixtures("late_counters")
def test_a_machine_is_busy_as_soon_as_others_have_a_thread_for_each_processor(loads: Path) -> None:
    processors = os.cpu_count() or 1
    machine = MachineLoad(loads=loads)
    loads.write_text(f"0.20 0.18 0.12 {processors}/80 11206\n")
    assert not machine.is_busy()
    loads.write_text(f"0.20 0.18 0.12 {processors + 1}/80 11206\n")
    assert machine.is_busy()


@pytest.mark.usefixtures("late_counters")
def test_the_kernel_tells_of_threads_that_can_run() -> None:
    machine = MachineLoad()
    with busy_machine():
        until(machine.is_busy, "the kernel tells of the threads")


def test_what_was_saved_up_may_be_spent_at_once() -> None:
    # On a machine without time for this test, seconds pass until as much is used.
    share = Share(0.001, lambda: True, burst_seconds=0.2)
    assert share.wait_seconds() == 0
    spend_of(share, 0.3)
    assert share.wait_seconds() > 0


@pytest.mark.alone
def test_nobody_waits_while_a_processor_is_idle_and_that_is_no_debt() -> None:
    is_busy = False
    share = Share(SHARE, lambda: is_busy, burst_seconds=0.0)
    spend_of(share, 0.5)
    assert share.wait_seconds() == 0
    is_busy = True
    assert share.wait_seconds() < 0.1


@pytest.mark.alone
def test_what_was_used_of_a_busy_machine_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_budget, "DEBT_SECONDS", 0.2)
    share = Share(0.1, lambda: True, burst_seconds=0.0)
    spend_of(share, 0.1)
    assert share.wait_seconds() == LOOK_SECONDS
    spend_of(share, 0.5)
    started = time.monotonic()
    while seconds := share.wait_seconds():
        time.sleep(seconds)
    assert time.monotonic() - started <= 2 * 0.2 / 0.1


class Site:
    """An application that uses processor time.

    Args:
        share: share of its requests.
    """

    def __init__(self, share: Share) -> None:
        self.running = self.most = 0
        self.streaming = asyncio.Event()
        self._yielding = CpuBudgetMiddleware(self._answer, share, ["/api/v1/health/"])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        spend(0.01)
        await asyncio.sleep(0.01)
        self.running -= 1
        await send({"type": "http.response.start", "status": 200})
        if scope["path"] == "/stream":
            await self.streaming.wait()

    async def ask(self, path: str, is_stranger: bool = False) -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Any:
            raise AssertionError("nothing is read")

        state = {listener.STRANGERS_STATE: is_stranger}
        await self._yielding({"type": "http", "path": path, "state": state}, receive, send)
        return sent


@pytest.mark.alone
def test_requests_of_a_spent_budget_run_one_after_the_other_at_their_share() -> None:
    async def ask() -> tuple[Site, float]:
        site = Site(Share(0.2, lambda: True, burst_seconds=0.0))
        started = time.monotonic()
        sents = await asyncio.gather(*(site.ask("/x") for _ in range(10)))
        assert all(len(sent) == 1 for sent in sents)
        return site, time.monotonic() - started

    site, seconds = asyncio.run(ask())
    assert site.most == 1
    assert seconds >= 0.8 * 9 * 0.01 / 0.2


@pytest.mark.alone
def test_a_stream_and_a_probe_hold_nobody_up() -> None:
    async def ask() -> None:
        share = Share(SHARE, lambda: True, burst_seconds=0.0)
        site = Site(share)
        spend_of(share, 0.05)
        stream = asyncio.create_task(site.ask("/stream"))
        while not site.most:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            await site.ask("/x")
            spend_of(share, 0.5)
            started = time.monotonic()
            await site.ask("/api/v1/health/live")
            assert time.monotonic() - started < 0.5
        site.streaming.set()
        await stream

    asyncio.run(ask())


def test_what_is_used_between_requests_is_not_owed() -> None:
    share = Share(0.001, lambda: True, burst_seconds=0.0)
    spend(0.1)
    assert share.wait_seconds() == 0


def test_a_stranger_leaves_half_of_the_budget_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        share = Share(0.001, lambda: True, burst_seconds=0.2)
        site = Site(share)
        while share.wait_seconds(share.half_seconds) == 0:
            spend_of(share, 0.01)
        stranger = asyncio.create_task(site.ask("/x", is_stranger=True))
        async with asyncio.timeout(30):
            await asyncio.sleep(0)
            assert not site.most
            await site.ask("/y")
            assert not stranger.done()
            # Who never finds the budget full is answered nevertheless.
            monkeypatch.setattr(clock, "monotonic_seconds", lambda: time.monotonic() + 10)
            monkeypatch.setattr(cpu_budget, "STRANGERS_WAIT_SECONDS", 1.0)
            await stranger

    asyncio.run(ask())


def test_a_failed_request_gives_its_turn_back() -> None:
    async def fail(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError

    async def ask() -> int:
        turns = CpuBudgetMiddleware(fail, Share(SHARE, lambda: True, burst_seconds=0.0))
        failed = 0
        for _ in range(2):
            try:
                async with asyncio.timeout(30):
                    await turns({"type": "http", "path": "/x"}, None, None)  # type: ignore[arg-type]
            except RuntimeError:
                failed += 1
        return failed

    assert asyncio.run(ask()) == 2
