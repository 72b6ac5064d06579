"""Counts the time that has passed for certain, so that a clock that jumps ends no grace early.

While the machine runs, its count of the time since its start says what has passed, whatever is done
to the clock, and whichever process asks. Nothing says for how long a machine was off: of that time
no more counts than the clock says, and no more than ``OFF_MAX_NS``. A machine may also have been
started before the stored moment, because the database was moved to it. So after another start no
more counts than the clock says in all.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway import clock

OFF_MAX_NS = 3600 * clock.NS
"""So much of a grace may be lost to a clock that jumps while the machine is off."""


class Moment(NamedTuple):
    """A moment, as it is stored. The row of ``elapsed`` has these columns."""

    elapsed_ns: int
    """The time that had passed for certain. Only differences have a meaning."""
    boot: str
    """The id of the start of the machine."""
    uptime_ns: int
    """The time since that start."""
    clock_ns: int
    """The time by the clock."""


def now(stored: Moment | None) -> Moment:
    """Return the present moment. Parameters: stored, the last one that was stored, if any.

    Raises OSError if the machine does not say when it was started.
    """
    boot, uptime_ns, clock_ns = clock.boot_id(), clock.uptime_ns(), clock.now_ns()
    if stored is None:
        return Moment(0, boot, uptime_ns, clock_ns)
    if stored.boot == boot:
        passed_ns = max(0, uptime_ns - stored.uptime_ns)
    else:
        by_clock_ns = max(0, clock_ns - stored.clock_ns)
        passed_ns = min(by_clock_ns, uptime_ns + OFF_MAX_NS)
    return Moment(stored.elapsed_ns + passed_ns, boot, uptime_ns, clock_ns)
