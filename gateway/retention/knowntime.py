"""Says how late it is known to be, so that a clock that jumps makes no checkpoint old.

The clock of the machine is compared with the time that has really passed since the last look, by
the clock that counts from the start of the machine. Ages are counted to the known time:

- While the machine runs it follows the clock, but a step ahead of up to a day is only made up for
  at twice the speed of time, and a larger one not at all. A person confirms such a clock.
- After a start of the machine it is not known how long it was off. A day is believed.
- A clock that went back is followed at once, because that makes checkpoints younger.

At the first look the newest completion of a checkpoint takes the place of the last look. What was
stored is repaired where it cannot be right: a time of a clock that was not set counts as no look,
and one before the first completion of the catalogue moves up to that, if the clock agrees.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway import clock
from gateway.retention.facts import FIRST_NS
from gateway.retention.policy import DAY_NS

BELIEVED_NS = DAY_NS
"""A clock that is further ahead is not believed."""
SAVE_NS = 600 * clock.NS
"""The known time is stored so often. It grows by the time that has passed, stored or not."""


class Reading(NamedTuple):
    """The clocks of the machine at one moment."""

    clock_ns: int
    boot: str
    """Id of the start of the machine."""
    uptime_ns: int
    """The time since then, with the time in which the machine slept."""


class Known(NamedTuple):
    """The row of ``known_time``."""

    known_ns: int
    boot: str
    uptime_ns: int


class KnownTime(NamedTuple):
    """How late it is."""

    now_ns: int
    """The time to which ages are counted."""
    ahead_ns: int
    """How far ahead of it the clock is, if that is more than is believed. Otherwise 0."""
    row: Known
    """The row that is to be stored."""
    is_repaired: bool = False
    """Whether what was stored could not be right."""


class Completions(NamedTuple):
    """The times of the catalogue that a clock that was set has told. None: there are none."""

    first_ns: int | None = None
    last_ns: int | None = None


NONE = Completions()


def reading() -> Reading:
    """Read the clocks. Raises OSError without the id of the machine's start."""
    return Reading(clock.now_ns(), clock.boot_id(), clock.uptime_ns())


def judge(read: Reading, stored: Known | None, times: Completions = NONE) -> KnownTime:
    """Return how late it is.

    Parameters: read; stored, the row, or None at the first look; times of the catalogue.
    """
    known = _repaired(read, stored, times)
    found = _judge(read, known, times.last_ns)
    return found._replace(is_repaired=known != stored)


def _repaired(read: Reading, stored: Known | None, times: Completions) -> Known | None:
    if stored is None or stored.known_ns < FIRST_NS:
        return None
    # The clock may have been ahead during all of the saves.
    least_ns = min(times.first_ns or 0, read.clock_ns)
    return stored._replace(known_ns=max(stored.known_ns, least_ns))


def _judge(read: Reading, known: Known | None, newest_ns: int | None) -> KnownTime:
    fresh = Known(read.clock_ns, read.boot, read.uptime_ns)
    if known is None:
        passed_ns, fast_ns = (read.clock_ns if newest_ns is None else newest_ns), BELIEVED_NS
    elif known.boot == read.boot and read.uptime_ns >= known.uptime_ns:
        elapsed_ns = read.uptime_ns - known.uptime_ns
        passed_ns, fast_ns = known.known_ns + elapsed_ns, elapsed_ns
    else:
        passed_ns, fast_ns = known.known_ns + read.uptime_ns, BELIEVED_NS
    ahead_ns = read.clock_ns - passed_ns
    if ahead_ns > BELIEVED_NS:
        return KnownTime(passed_ns, ahead_ns, fresh._replace(known_ns=passed_ns))
    now_ns = min(read.clock_ns, passed_ns + fast_ns)
    if known is not None and now_ns < known.known_ns:
        return KnownTime(now_ns, 0, known)
    return KnownTime(now_ns, 0, fresh._replace(known_ns=now_ns))


def is_due(known: Known | None, found: KnownTime) -> bool:
    """Return whether the row must be stored."""
    if known is None or found.is_repaired or known.boot != found.row.boot:
        return known != found.row
    return found.row.uptime_ns - known.uptime_ns >= SAVE_NS
