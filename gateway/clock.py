"""The only reader of time."""

from __future__ import annotations

import time

NS = 1_000_000_000


def now_ns() -> int:
    """Nanoseconds since 1970."""
    return time.time_ns()


def is_ahead(time_ns: int, most_ns: int) -> bool:
    """Whether a stored time is still to come. One that lies further ahead than it can have been set
    was stored before the clock went back: it counts as past.

    Parameters: most_ns, how far ahead it can have been set.
    """
    return 0 < time_ns - now_ns() <= most_ns


def monotonic_seconds() -> float:
    """Seconds of a clock that never goes back."""
    return time.monotonic()


def minute_of_day() -> int:
    """Minutes since midnight, local time."""
    now = time.localtime()
    return now.tm_hour * 60 + now.tm_min
