"""Rates and places of requests, without a bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.config import loader
from gateway.config.settings import Settings
from gateway.objectstore.pace import (
    RETRY_AFTER_MAX_SECONDS,
    STEADY,
    Pace,
    Rates,
    RequestEnd,
    retry_after_seconds,
)
from tests.support.waiting import until


def rates(settings: Settings) -> Rates:
    drain = settings.drain
    return Rates(drain.bytes_per_second, drain.requests_per_second, drain.schedule)


def pace(places: int = 8, **drain: Any) -> Pace:
    settings = loader.from_mapping({"bucket": {"name": "b"}, "drain": drain}, {})
    return Pace(rates(settings), places, threading.Event())


def timed(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


def test_requests_are_spread_over_time() -> None:
    limited = pace(requests_per_second=100)
    times = []
    for _ in range(60):
        limited.admit(0)
        times.append(time.monotonic())
    # A window of a quarter of a second has its share, and the burst of a tenth of a second.
    assert max(sum(start <= t < start + 0.25 for t in times) for start in times) <= 25 + 10 + 1
    assert times[-1] - times[0] >= (60 - 11) / 100


@pytest.mark.alone
def test_bodies_are_paid_for_before_the_next_one() -> None:
    limited = pace(bytes_per_second=1_000_000)
    limited.admit(400_000)
    assert timed(lambda: limited.admit(1)) >= 0.25
    # A request without a body does not wait for bytes.
    limited.admit(300_000)
    assert timed(lambda: limited.admit(0)) < 0.2


def many(free: Pace) -> None:
    for _ in range(1000):
        free.admit(1 << 30)


def test_nothing_waits_without_limits() -> None:
    free = pace()
    assert timed(lambda: many(free)) < 1


def test_the_schedule_rules_over_the_rate() -> None:
    limited = pace(bytes_per_second=1000, schedule=["00:00-24:00 10MiB"])
    limited.admit(2 << 20)
    assert 0.05 <= timed(lambda: limited.admit(1)) < 1


def test_places_are_halved_and_grow_again_one_by_one() -> None:
    places = pace(places=8)
    numbers = [places.begin() for _ in range(8)]
    for number in numbers:
        places.end(number, RequestEnd(True))
    # Eight answers of the same moment count as one.
    assert places.places == 4
    places.end(places.begin(), RequestEnd(True))
    places.end(places.begin(), RequestEnd(True))
    places.end(places.begin(), RequestEnd(True))
    assert places.places == 1
    for _ in range(3 * STEADY):
        places.end(places.begin(), RequestEnd(False))
    assert places.places == 4
    for _ in range(9 * STEADY):
        places.end(places.begin(), RequestEnd(False))
    assert places.places == 8


def test_a_request_that_goes_first_passes_those_that_wait_for_the_rate() -> None:
    limited = pace(bytes_per_second=1_000_000)
    limited.admit(1_500_000)
    passed: list[str] = []

    def admit(name: str, goes_first: Callable[[], bool]) -> None:
        limited.admit(100_000, goes_first)
        passed.append(name)

    is_wanted = threading.Event()
    waits = [
        *((f"background {number}", lambda: False) for number in range(8)),
        ("wanted meanwhile", is_wanted.is_set),
    ]
    threads = [threading.Thread(target=admit, args=one) for one in waits]
    for thread in threads:
        thread.start()
    until(lambda: len(limited._waiting) == len(threads), "nine requests that wait")
    is_wanted.set()
    admit("first", lambda: True)
    for thread in threads:
        thread.join(10)
    assert set(passed[:2]) == {"first", "wanted meanwhile"}
    assert len(passed) == 10


def test_a_request_that_goes_first_takes_the_next_place() -> None:
    places = pace(places=1)
    under_way = places.begin()
    begun: list[str] = []

    def begin(name: str, goes_first: Callable[[], bool]) -> None:
        number = places.begin(goes_first)
        begun.append(name)
        places.end(number, RequestEnd(False))

    waits = [*((f"background {n}", lambda: False) for n in range(8)), ("first", lambda: True)]
    threads = [threading.Thread(target=begin, args=one) for one in waits]
    for thread in threads:
        thread.start()
    until(lambda: len(places._waiting) == len(threads), "nine requests that wait")
    places.end(under_way, RequestEnd(False))
    for thread in threads:
        thread.join(10)
    assert begun[0] == "first"
    assert len(begun) == 9


@pytest.mark.alone
def test_half_of_the_places_are_left_to_others() -> None:
    places = pace(places=8)
    places.give_way(True)
    assert (places.places, places.is_free()) == (4, False)
    numbers = [places.begin() for _ in range(4)]
    fifth = threading.Thread(target=places.begin)
    fifth.start()
    until(lambda: places._waiting, "the fifth request to wait")
    places.give_way(False)
    fifth.join(0.5)  # sooner than a waiting request looks by itself
    assert not fifth.is_alive()
    assert (places.places, places.is_free()) == (8, True)
    for number in numbers:
        places.end(number, RequestEnd(True))
    # What the store bears is halved, and half of that is left to others.
    places.give_way(True)
    assert places.places == 2


def test_a_request_waits_for_its_place() -> None:
    places = pace(places=1)
    first = places.begin()
    entered = threading.Event()

    def second() -> None:
        places.end(places.begin(), RequestEnd(False))
        entered.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert not entered.wait(0.2)
    places.end(first, RequestEnd(False))
    assert entered.wait(5)
    thread.join()


@pytest.mark.alone
def test_retry_after_holds_everything_back() -> None:
    places = pace()
    places.end(places.begin(), RequestEnd(True, 0.4))
    assert timed(lambda: places.admit(0)) >= 0.35


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0.0),
        ("7", 7.0),
        ("nonsense", 0.0),
        ("-3", 0.0),
        ("1e9", RETRY_AFTER_MAX_SECONDS),
        ("Fri, 01 Jan 2100 00:00:00 GMT", RETRY_AFTER_MAX_SECONDS),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_read(value: str | None, seconds: float) -> None:
    assert retry_after_seconds(value) == seconds


def test_a_stop_ends_all_waiting() -> None:
    settings = loader.from_mapping(
        {"bucket": {"name": "b"}, "drain": {"bytes_per_second": 1, "workers": 1}}, {}
    )
    stop = threading.Event()
    limited = Pace(rates(settings), 1, stop)
    limited.admit(1000)
    stop.set()
    assert timed(lambda: limited.admit(1000)) < 1


@pytest.mark.parametrize(
    "limit",
    [
        {"requests_per_second": 1000.0},
        {"bytes_per_second": 1 << 30},
        {"schedule": ["08:00-20:00 200MiB"]},
    ],
)
def test_a_drain_with_a_rate_is_not_free(limit: dict[str, Any]) -> None:
    assert not pace(**limit).is_free()


def test_a_drain_is_not_free_after_the_store_had_too_much() -> None:
    busy = pace(places=4)
    assert busy.is_free()
    busy.end(busy.begin(), RequestEnd(False), RequestEnd(True))
    assert (busy.places, busy.is_free()) == (2, False)
    busy.end(busy.begin(), *[RequestEnd(False)] * (2 * STEADY))
    assert (busy.places, busy.is_free()) == (4, True)
    assert busy.counters()["requests"] == 2 + 2 * STEADY


def test_requests_that_were_lost_do_not_make_it_send_more() -> None:
    """A store that closes connections instead of answering has too much to do already."""
    some = pace(places=8)
    some.end(some.begin(), RequestEnd(True))
    assert some.places == 4
    for _ in range(STEADY * 3):
        some.end(some.begin(), RequestEnd(False, is_lost=True))
    assert some.places == 4
    for _ in range(STEADY - 1):
        some.end(some.begin(), RequestEnd(False))
    some.end(some.begin(), RequestEnd(False, is_lost=True))
    some.end(some.begin(), RequestEnd(False))
    assert some.places == 4
    for _ in range(STEADY):
        some.end(some.begin(), RequestEnd(False))
    assert some.places == 5
