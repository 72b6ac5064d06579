"""Pace of requests to the bucket: their rates, and how many are under way at once.

Every request of every thread passes here, also a repetition that boto makes by itself. It waits for
the rates before it is signed, because a signature must not grow old. It waits for its place among
the requests under way before it is sent.

- Rates are token buckets. In any window of w seconds there are at most rate * w + burst, where the
  burst is a tenth of a second's worth, at least one request or one body. Drains of one namespace
  divide the rates among them.
- There are at first as many places as the drain can use. They are halved when the store says that
  it gets too much (503, 429) or does not answer in time, at most once for the requests under way
  then. After ``STEADY`` good answers in a row there is one more. There is always at least one.
- ``Retry-After`` holds every request back.
- While a request that goes first waits, for the rates or for a place, the others wait for it.
- While clients wait for cold reads, the drain has half of the places, or fewer if one kind of its
  work would leave the others free.
"""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Protocol

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from gateway.common import clock, units

BURST_SECONDS = 0.1
STEADY = 16
TOO_MUCH = (429, 503)
TIMED_OUT = (ConnectTimeoutError, ReadTimeoutError)
LASTING = ("CompleteMultipartUpload", "CopyObject", "UploadPartCopy")
"""Requests on which a store may be at work for minutes before it answers: that says nothing of how
much it gets."""
RETRY_AFTER_MAX_SECONDS = 300.0
PATIENCE_SECONDS = 30.0
"""A request that gives way to others gives way for so long, also while the rate is limited."""
SCHEDULE_SECONDS = 1.0
"""The interval at which a waiting request checks whether the rate has changed."""


Goes = Callable[[], bool]
"""Returns whether a request goes first now. It is asked while the request waits: a client may begin
to wait for its bytes meanwhile. It may not block."""


def always() -> bool:
    return True


def patiently() -> Goes:
    """Return what lets a request give way to all others, but not for ever."""
    until = clock.monotonic_seconds() + PATIENCE_SECONDS
    return lambda: clock.monotonic_seconds() >= until


class TokenBucket:
    """A rate limit. It is not safe for several threads by itself.

    Args:
        rate: tokens per second, 0 for no limit.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._tokens = self._capacity()
        self._filled_at = clock.monotonic_seconds()

    def wait_seconds(self) -> float:
        """Return the seconds until tokens may be spent."""
        self._fill()
        if not self.rate or self._tokens >= self._least():
            return 0.0
        return (self._least() - self._tokens) / self.rate

    def spend(self, amount: float) -> None:
        """Spend tokens. It may leave a debt, because a body is not cut in pieces."""
        self._tokens -= amount if self.rate else 0.0

    def change(self, rate: float) -> None:
        """Set the rate from now on."""
        self._fill()
        debt_seconds = -self._tokens / self.rate if self.rate and self._tokens < 0 else 0.0
        self.rate = rate
        # A debt of ten seconds at the old rate becomes a debt of ten seconds at the new one.
        self._tokens = -debt_seconds * rate if debt_seconds else self._capacity()

    def _capacity(self) -> float:
        return max(1.0, self.rate * BURST_SECONDS)

    def _least(self) -> float:
        return min(1.0, self._capacity())

    def _fill(self) -> None:
        now = clock.monotonic_seconds()
        self._tokens = min(self._capacity(), self._tokens + (now - self._filled_at) * self.rate)
        self._filled_at = now


class Gate(Protocol):
    """The interface of what every request passes."""

    def attach(self, client: Any) -> None:
        """Make every request of a boto client pass."""

    def admit(self, body_bytes: int, goes_first: Goes = always) -> None:
        """Wait until a request of so many bytes may be made."""

    def begin(self, goes_first: Goes = always) -> int:
        """Wait for a place and take it. Returns the number of the request."""

    def end(self, number: int, *hows: RequestEnd) -> None:
        """Give back a place after a request, or after several that followed each other in it."""


class RequestEnd(NamedTuple):
    """The end of a request, as the pace needs it."""

    too_much: bool
    """Whether the store said that it gets too much, or did not answer in time."""
    retry_after_seconds: float = 0.0
    """The time for which the store wants no request."""
    taken_bytes: int = 0
    """Bytes of the body, if the store took it, or gave it."""
    is_lost: bool = False
    """Whether the connection ended without an answer."""
    status: int = 0
    """The status of HTTP, or 0 without an answer."""


def ended(status: int, headers: Mapping[str, str], body_bytes: int) -> RequestEnd:
    """Return what an answer says about the pace.

    Args:
        headers: headers with names in lower case.
    """
    too_much = status in TOO_MUCH
    after = retry_after_seconds(headers.get("retry-after")) if too_much else 0.0
    return RequestEnd(too_much, after, body_bytes if status < 300 else 0, status=status)


class Rates(NamedTuple):
    """The most that is asked of the store, on average. 0: no limit."""

    bytes_per_second: float
    """Bytes of bodies, in whichever direction they go."""
    requests_per_second: float
    schedule: Sequence[str] = ()
    """Other values of bytes_per_second by the time of day (``drain.schedule``)."""


class Pace:
    """Lets requests pass. It is safe to use from several threads.

    Args:
        places: the most requests under way.
        stop: set when the process must end: then no request waits any more.
        busy: the most of one kind of work: half of it gives way (default: places).
    """

    def __init__(
        self, rates: Rates, places: int, stop: threading.Event, busy: int | None = None
    ) -> None:
        self._rates = rates
        self._spans = [units.parse(entry) for entry in rates.schedule]
        self._stop = stop
        self._drains = 1
        self._by_request = TokenBucket(rates.requests_per_second)
        self._by_byte = TokenBucket(self._bytes_per_second())
        self._lock = threading.Condition()
        self._resume_at = 0.0
        self._most = places
        self._fewer = (places if busy is None else busy) // 2
        self._places = places
        self._under_way = 0
        self._gives_way = False
        self._waiting: list[Goes] = []
        """For each request that waits: whether it goes before the others."""
        self._steady = 0
        self._halved_at = 0
        self._sent = 0
        self._own = _Own()
        self.requests = 0
        """The number of requests that were answered or failed so far."""
        self.bytes = 0
        """The bytes of bodies that the store took, or gave."""
        self.throttles = 0
        """The number of requests that were answered with 429 or 503, or not in time."""
        self.aborts = 0
        """The number of aborts of multipart uploads."""
        self._answers: Counter[int] = Counter()

    @property
    def places(self) -> int:
        """The number of requests that may be under way now."""
        if not self._gives_way:
            return self._places
        return max(1, min(self._places // 2, self._fewer))

    def share(self, drains: int) -> None:
        """Divide the rates among so many drains, this one included, from now on."""
        with self._lock:
            if drains != self._drains:
                self._drains = drains
                self._by_request.change(self._rates.requests_per_second / drains)

    def give_way(self, is_wanted: bool) -> None:
        """Leave half of the places to another process, or take all again.

        Args:
            is_wanted: whether clients wait for what that one asks of the store.
        """
        with self._lock:
            self._gives_way = is_wanted
            self._lock.notify_all()

    def counters(self) -> dict[str, int]:
        """Return the counters. They only grow."""
        with self._lock:
            return {
                "requests": self.requests,
                "bytes": self.bytes,
                "throttles": self.throttles,
                "aborts": self.aborts,
            }

    def answers(self) -> dict[str, int]:
        """Return the number of requests by the status of their answer. ``none``: no answer came.
        The numbers only grow, and their sum is ``requests``."""
        with self._lock:
            return {str(status or "none"): n for status, n in sorted(self._answers.items())}

    def attach(self, client: Any) -> None:
        """Make every request of a boto client pass here."""
        events = client.meta.events
        events.register_first("request-created.s3", self._created)
        events.register_first("before-send.s3", self._before_send)
        events.register_first("before-parse.s3", self._answered)
        events.register_first("response-received.s3", self._failed)

    def admit(self, body_bytes: int, goes_first: Goes = always) -> None:
        """Wait until a request of so many bytes may be made."""

        def left_seconds() -> float:
            if self._by_byte.rate != (rate := self._bytes_per_second()):
                self._by_byte.change(rate)
            return max(
                self._by_request.wait_seconds(),
                self._by_byte.wait_seconds() if body_bytes else 0.0,
                self._resume_at - clock.monotonic_seconds(),
            )

        with self._lock:
            self._wait(left_seconds, goes_first)
            self._by_request.spend(1.0)
            self._by_byte.spend(body_bytes)

    def _wait(self, left_seconds: Callable[[], float], goes_first: Goes) -> None:
        """Wait, with the lock, until no time is left and no other request goes first."""
        self._waiting.append(goes_first)
        while not self._stop.is_set():
            seconds = left_seconds()
            if not goes_first() and any(other() for other in self._waiting):
                seconds = SCHEDULE_SECONDS
            if seconds <= 0:
                break
            self._lock.wait(min(seconds, SCHEDULE_SECONDS))
        self._waiting.remove(goes_first)
        if not all(other() for other in self._waiting):
            self._lock.notify_all()

    def is_free(self) -> bool:
        """Return whether nothing limits the drain: there is no rate, and all places are open."""
        with self._lock:
            return self.places == self._most and not (
                self._by_request.rate or self._spans or self._rates.bytes_per_second
            )

    def begin(self, goes_first: Goes = always) -> int:
        """Wait for a place and take it. Returns the number of the request."""
        with self._lock:
            self._wait(self._place_seconds, goes_first)
            self._under_way += 1
            self._sent += 1
            return self._sent

    def _place_seconds(self) -> float:
        return 0.0 if self._under_way < self.places else SCHEDULE_SECONDS

    def end(self, number: int, *hows: RequestEnd) -> None:
        """Give back a place after a request, or after several that followed each other in it.

        Args:
            number: number from begin.
            hows: the end of each request.
        """
        with self._lock:
            self._under_way -= 1
            for how in hows:
                self._count(number, how)
            self._lock.notify_all()

    def _count(self, number: int, how: RequestEnd) -> None:
        self.bytes += how.taken_bytes
        self.requests += 1
        self._answers[how.status] += 1
        self.throttles += how.too_much
        if how.retry_after_seconds > 0:
            until = clock.monotonic_seconds() + how.retry_after_seconds
            self._resume_at = max(self._resume_at, until)
        if how.is_lost:
            # A store that gets too much may hang up without an answer.
            self._steady = 0
            return
        if not how.too_much:
            self._steady += 1
            if self._steady >= STEADY:
                self._steady = 0
                self._places = min(self._most, self._places + 1)
            return
        self._steady = 0
        # A request that was sent before the last halving says nothing about the rate since then.
        if number > self._halved_at:
            self._halved_at = self._sent
            self._places = max(1, self._places // 2)

    def _bytes_per_second(self) -> float:
        rate: float = self._rates.bytes_per_second
        if self._spans:
            rate = units.rate_at(self._spans, clock.minute_of_day(), rate)
        return rate / self._drains

    # boto calls the following, on the thread of the request.

    def _created(self, request: Any, operation_name: str, **_: Any) -> None:
        self._own.operation, self._own.body_bytes = operation_name, _length(request.data)
        self.admit(self._own.body_bytes)
        with self._lock:
            # boto signs the request next, and it takes its place after that: one that is not taken
            # is no place that a failed signature would keep.
            self._wait(self._place_seconds, always)

    def _before_send(self, **_: Any) -> None:
        self._own.number = self.begin()

    def _answered(self, response_dict: Any, **_: Any) -> None:
        status = response_dict["status_code"]
        self._over(ended(status, response_dict["headers"], self._own.body_bytes))
        if status < 300 and self._own.operation == "AbortMultipartUpload":
            with self._lock:
                self.aborts += 1

    def _failed(self, exception: Exception | None, **_: Any) -> None:
        if exception is not None and self._own.number:
            timed_out = isinstance(exception, TIMED_OUT)
            too_much = timed_out and self._own.operation not in LASTING
            self._over(RequestEnd(too_much, is_lost=not timed_out))

    def _over(self, how: RequestEnd) -> None:
        number, self._own.number = self._own.number, 0
        self.end(number, how)


class _Own(threading.local):
    """The request of a thread."""

    operation = ""
    body_bytes = 0
    number = 0


def retry_after_seconds(value: str | None) -> float:
    """Return the seconds of a Retry-After header (RFC 9110 section 10.2.3), 0 if it is invalid."""
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - clock.now_ns() / clock.NS
        except (TypeError, ValueError):
            return 0.0
    return min(max(0.0, seconds), RETRY_AFTER_MAX_SECONDS)


def _length(body: Any) -> int:
    if isinstance(body, (bytes, bytearray)):
        return len(body)
    if body is None or not hasattr(body, "seek"):
        return 0
    at = body.tell()
    length: int = body.seek(0, io.SEEK_END) - at
    body.seek(at)
    return length
