"""The only reader of time."""

from __future__ import annotations

import time

NS = 1_000_000_000


def now_ns() -> int:
    """Nanoseconds since 1970."""
    return time.time_ns()


def monotonic_seconds() -> float:
    """Seconds of a clock that never goes back."""
    return time.monotonic()


def minute_of_day() -> int:
    """Minutes since midnight, local time."""
    now = time.localtime()
    return now.tm_hour * 60 + now.tm_min
