"""Threads wait at the scheduler without waking each other for nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.cache.fetch_scheduler import FetchScheduler
from gateway.cache.hydration import WHOLE, BlockMap, Hydration
from gateway.cache.rows import AbsentSource
from gateway.objectstore.ranges import ObjectLocation
from tests.support.waiting import until

WORKERS = 8
LONG_SECONDS = 20.0


class Threads:
    """Threads that take steps, each of which lasts until ``may_end`` is set.

    Args:
        for_clients: for clients of each thread.
    """

    def __init__(self, scheduler: FetchScheduler, *for_clients: bool) -> None:
        self.scheduler = scheduler
        self.may_end = threading.Event()
        self.may_end.set()
        self.looked: set[int] = set()
        """The threads that have looked since all of them waited."""
        self.taken: list[int] = []
        self.is_over = False
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in for_clients]

    def start(self) -> None:
        """Start the threads, in turn. Return when all of them wait."""
        for thread in self._threads:
            thread.start()
            until(lambda: thread.ident in self.looked, "a thread that waits")  # noqa: B023
        with self.scheduler.lock:
            self.looked.clear()

    def end(self) -> None:
        with self.scheduler.lock:
            self.is_over = True
            self.scheduler.wake_all()
        self.may_end.set()
        for thread in self._threads:
            thread.join()

    def _run(self, for_clients: bool) -> None:
        while True:
            with self.scheduler.lock:
                if self.is_over:
                    return
                self.looked.add(threading.get_ident())
                step = self.scheduler.choose(for_clients)
                if step is None:
                    self.scheduler.wait_for_step(for_clients)
                    continue
                self.taken.append(step.hydration.ino)
            self.may_end.wait()
            with self.scheduler.lock:
                step.hydration.needs_look = False
                self.scheduler.end(step)


@contextmanager
def threads(*for_clients: bool) -> Iterator[Threads]:
    made = Threads(FetchScheduler(WORKERS), *for_clients)
    made.start()
    try:
        yield made
    finally:
        made.end()


def test_what_a_client_asks_for_wakes_two_threads() -> None:
    with threads(*[False] * WORKERS) as made:
        made.may_end.clear()
        with made.scheduler.lock:
            made.scheduler.ask(7, 0, 1)
        until(lambda: made.taken, "the step")
        until(lambda: len(made.looked) >= 2, "the thread that is woken next")
        # The second one found no step, and wakes no other.
        with made.scheduler.lock:
            made.scheduler.wait_for_step()
            assert len(made.looked) == 2
        assert made.taken == [7]


def test_each_file_has_a_thread_at_once() -> None:
    with threads(*[False] * WORKERS) as made:
        made.may_end.clear()
        with made.scheduler.lock:
            for ino in range(WORKERS):
                made.scheduler.add(ino)
        until(lambda: len(made.taken) == WORKERS, "a step for each thread")
        assert sorted(made.taken) == list(range(WORKERS))


def test_the_thread_that_serves_clients_passes_the_rest_on() -> None:
    # The first thread that waits is the first that is woken.
    with threads(True, False) as made:
        with made.scheduler.lock:
            made.scheduler.add(7)
        until(lambda: made.taken == [7], "the step of the other thread")


def test_the_thread_that_saves_wakes_up_for_the_first_file() -> None:
    scheduler, woken = FetchScheduler(1), threading.Event()

    def wait() -> None:
        with scheduler.lock:
            waits.set()
            scheduler.wait_for_save()
        woken.set()

    waits = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(LONG_SECONDS)
    with scheduler.lock:
        scheduler.add(7)
    assert woken.wait(LONG_SECONDS)
    thread.join()


def given_up(scheduler: FetchScheduler, ino: int) -> Hydration:
    """Add a file all of whose blocks cannot be had, as a look leaves it."""
    hydration = scheduler.add(ino)
    hydration.needs_look, hydration.map = False, BlockMap(1)
    hydration.source = AbsentSource(ino, 0, 1, 10, ObjectLocation("key", "etag"), 16, bytes(8))
    scheduler.give_up(hydration, WHOLE, "wrong bytes")
    return hydration


def test_files_that_cannot_be_had_cost_nothing_until_their_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = FetchScheduler(WORKERS)
    with scheduler.lock:
        damaged = [given_up(scheduler, ino) for ino in range(100, 1100)]
        assert scheduler.choose() is None
        assert not scheduler._awake
        scheduler.add(7)
        step = scheduler.choose()
        assert step is not None
        assert step.hydration.ino == 7
        scheduler.ask(500, 0, 10)
        step = scheduler.choose()
        assert step is not None
        assert (step.hydration.ino, step.blocks) == (500, range(1))
        scheduler.end(step)
        scheduler.drop(step.hydration)
        damaged.remove(step.hydration)
        first = min(damaged, key=lambda hydration: hydration.retry_at)
        retry_at = first.retry_at
        monkeypatch.setattr("gateway.cache.fetch_scheduler.now", lambda: retry_at)
        first.forgive_all()
        step = scheduler.choose()
        assert step is not None
        assert step.hydration.ino in (7, first.ino)


def test_a_file_that_is_woken_is_looked_at_before_its_time() -> None:
    scheduler = FetchScheduler(WORKERS)
    with scheduler.lock:
        hydration = scheduler.add(7)
        scheduler.later(hydration, 1000.0)
        assert scheduler.choose() is None
        scheduler.wake(hydration)
        step = scheduler.choose()
        assert step is not None
        assert step.hydration is hydration
