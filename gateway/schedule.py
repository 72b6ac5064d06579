"""Parses rates by the time of day, as the configuration has them: ``08:00-20:00 200MiB``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gateway.units import BYTES

FORM = (
    'must look like "08:00-20:00 200MiB" (local time; bytes per second; KiB, MiB, GiB; 0: no limit)'
)
DAY_MINUTES = 24 * 60

_SPAN = re.compile(
    r"([0-9]{2}):([0-5][0-9])-([0-9]{2}):([0-5][0-9]) +([0-9]+(?:\.[0-9]+)?)([KMG]iB)?(?:/s)?"
)


class Span(NamedTuple):
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


def parse(text: str) -> Span:
    """Parse one entry. Raises ValueError, which says what an entry must look like."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} {FORM}")
    start, end = (int(match[n]) * 60 + int(match[n + 1]) for n in (1, 3))
    if start >= DAY_MINUTES or end > DAY_MINUTES:
        raise ValueError(f"{text!r} names a time that is not of a day: 00:00 to 24:00")
    if start == end:
        raise ValueError(f"{text!r} is empty: for the whole day write 00:00-24:00")
    return Span(start, end, float(match[5]) * BYTES[match[6] or "B"])


def rate_at(spans: Iterable[Span], minute: int, otherwise: float) -> float:
    """Return the rate of the first span that covers a minute of the day, or else ``otherwise``."""
    for span in spans:
        if span.covers(minute):
            return span.bytes_per_second
    return otherwise
