"""Reads the clocks of the machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

NS = 1_000_000_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def now_ns() -> int:
    """Return nanoseconds since 1970."""
    return time.time_ns()


def iso(time_ns: int) -> str:
    """Return a stored time as ISO 8601, in seconds and in UTC."""
    return datetime.fromtimestamp(time_ns // NS, UTC).isoformat()


def is_ahead(time_ns: int, most_ns: int) -> bool:
    """Return whether a stored time is in the future.

    A time further ahead than ``most_ns`` was stored before the clock went back. It counts as past.

    Parameters: most_ns, how far ahead of now the time can have been set.
    """
    return 0 < time_ns - now_ns() <= most_ns


def monotonic_seconds() -> float:
    """Return the seconds of a clock that never goes back."""
    return time.monotonic()


def monotonic_ns() -> int:
    """Return the nanoseconds of the same clock."""
    return time.monotonic_ns()


def boot_id() -> str:
    """Return the id of the start of the machine. Raises OSError."""
    return _BOOT_ID.read_text().strip()


def uptime_ns() -> int:
    """Return nanoseconds since the start of the machine, with the time in which it slept."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def minute_of_day() -> int:
    """Return minutes since midnight, local time."""
    now = time.localtime()
    return now.tm_hour * 60 + now.tm_min


def local_iso(time_ns: int) -> str:
    """Return a time as ISO 8601, to the second, in the time zone of this machine.

    Raises OverflowError, ValueError, OSError for a time that no calendar has.
    """
    return datetime.fromtimestamp(time_ns // NS).astimezone().isoformat()
