"""Units of sizes, times and rates, with their text for people, and rates by the time of day. Pure.

The configuration has rates by the time of day in the form ``08:00-20:00 200MiB``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

Units = Mapping[str, Decimal | int]
"""The value of each unit, by the name that people write."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
BYTES: Mapping[str, int] = {
    **{unit: 1000**power for power, unit in enumerate(_DECIMAL_UNITS[:-1])},
    **{unit: 1024**power for power, unit in enumerate(_UNITS)},
}
SECONDS: Units = {"ms": Decimal("0.001"), "s": 1, "m": 60, "h": 3600, "d": 86_400}
BYTES_PER_SECOND: Units = {
    **{f"{prefix}bit/s": Decimal(1000**power) / 8 for power, prefix in enumerate("MGT", 2)},
    **{f"{unit}/s": size_bytes for unit, size_bytes in BYTES.items()},
}


def size(size_bytes: float) -> str:
    """Format a number of bytes. All lines and pages use this form, so that two sizes compare."""
    for unit in _UNITS:
        # 1023.95 would be shown as 1024.0, which is 1.0 of the next unit.
        if size_bytes < (1024 if unit == "B" else 1023.95) or unit == _UNITS[-1]:
            break
        size_bytes /= 1024
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"


def decimal_size(size_bytes: float) -> str:
    """Format a number of bytes with units of 1,000, as networks and prices use them."""
    for unit in _DECIMAL_UNITS:
        # 999.5 would be shown as 1e+03.
        if size_bytes < 999.5 or unit == _DECIMAL_UNITS[-1]:
            break
        size_bytes /= 1000
    return f"{size_bytes:.3g} {unit}" if size_bytes < 999.5 else f"{size_bytes:,.0f} {unit}"


def duration(seconds: float) -> str:
    """Format a number of seconds."""
    for unit_seconds, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_seconds:
            return f"{seconds / unit_seconds:.1f} {unit}"
    return f"{seconds:.0f} s"


def days(number: float) -> str:
    """Format a number of days that a person chose."""
    return "1 day" if number == 1 else f"{number:g} days"


FORM = (
    'must look like "08:00-20:00 200MiB" (local time; bytes per second; KiB, MiB, GiB; 0: no limit)'
)
DAY_MINUTES = 24 * 60

_SPAN = re.compile(
    r"([0-9]{2}):([0-5][0-9])-([0-9]{2}):([0-5][0-9]) +([0-9]+(?:\.[0-9]+)?)([KMG]iB)?(?:/s)?"
)


class RateSpan(NamedTuple):
    """A span of every day and the rate in it."""

    start_minute: int
    """Minute of the day, local time."""
    end_minute: int
    """Minute of the day, exclusive. An end before the start is on the next day."""
    bytes_per_second: float
    """0 means no limit."""

    def covers(self, minute: int) -> bool:
        if self.start_minute < self.end_minute:
            return self.start_minute <= minute < self.end_minute
        return minute >= self.start_minute or minute < self.end_minute


def parse(text: str) -> RateSpan:
    """Parse one entry. Raises ValueError, which says what an entry must look like."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} {FORM}")
    start, end = (int(match[n]) * 60 + int(match[n + 1]) for n in (1, 3))
    if start >= DAY_MINUTES or end > DAY_MINUTES:
        raise ValueError(f"{text!r} names a time that is not of a day: 00:00 to 24:00")
    if start == end:
        raise ValueError(f"{text!r} is empty: for the whole day write 00:00-24:00")
    return RateSpan(start, end, float(match[5]) * BYTES[match[6] or "B"])


def rate_at(spans: Iterable[RateSpan], minute: int, otherwise: float) -> float:
    """Return the rate of the first span that covers a minute of the day, or else ``otherwise``."""
    for span in spans:
        if span.covers(minute):
            return span.bytes_per_second
    return otherwise
