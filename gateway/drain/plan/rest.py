"""Says how long a reading of the namespace rests before the next one, so that readings take at most
a tenth of the time."""

from __future__ import annotations

from gateway import clock

REST = 9
"""The rest after a reading takes this many times as long as the reading."""
STEP_MAX_SECONDS = 1.0
"""A step of a reading takes milliseconds. One that seems to take longer waited for the database, or
the machine was paused. Without this bound, the drain would then rest for nine times as long as it
was kept from its work."""


def spent_seconds(began: float) -> float:
    """Return the time that a step of a reading took. Parameters: began, monotonic seconds."""
    return min(clock.monotonic_seconds() - began, STEP_MAX_SECONDS)


def rest_seconds(spent: float, poll_seconds: float) -> float:
    """Return the rest after a reading. Parameters: spent, the seconds of all its steps;
    poll_seconds, the shortest rest."""
    return max(poll_seconds, REST * spent)
