"""Clocks of the machine, and the trusted clock, which a jump of the machine's clock does not fool.

The trusted clock counts graces and ages so that a jump ends or adds none. Each of its two times has
an invariant, and a row of its own (docs/decisions/trusted-clock.md):

- The elapsed time of graces never runs too fast. While the machine runs, its count of the time
  since its start says what has passed, whichever process asks. Nothing says for how long a machine
  was off: of that time no more counts than the clock says, and no more than ``OFF_MAX_NS``. A
  machine may also have been started before the stored moment, because the database was moved to it.
  So after another start no more counts than the clock says in all.
- The known time of ages follows the clock, as far as time is known to have passed. A step ahead of
  up to a day is only made up for at twice the speed of time, and a larger one not at all: a person
  confirms such a clock. After a start of the machine it is not known how long it was off, and a day
  is believed. A clock that went back is followed at once, because that makes checkpoints younger.

At the first look the newest completion of a checkpoint takes the place of a stored known time. What
was stored is repaired where it cannot be right: a time of a clock that was not set counts as no
look, and one before the first completion of the catalogue moves up to that, if the clock agrees.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gateway.common.types import FIRST_NS

NS = 1_000_000_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PART = re.compile(r"\.([0-9]+)")
"""The part of a second in a time. A datetime has only its first six digits."""


def now_ns() -> int:
    """Return nanoseconds since 1970."""
    return time.time_ns()


def iso(time_ns: int) -> str:
    """Return a stored time as ISO 8601, in seconds and in UTC."""
    return datetime.fromtimestamp(time_ns // NS, UTC).isoformat()


def rfc3339(time_ns: int) -> str:
    """Return a time as RFC 3339, in UTC and to the nanosecond: 2026-11-23T09:30:00.123456789Z."""
    seconds, part_ns = divmod(time_ns, NS)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{part_ns:09}Z"


def nanoseconds_of(text: str) -> int:
    """Return nanoseconds since 1970 of a time as RFC 3339 or ISO 8601 has it. ``rfc3339`` is the
    inverse. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    part = _PART.search(text)
    seconds = int(moment.replace(microsecond=0).timestamp())
    return seconds * NS + (int(part[1][:9].ljust(9, "0")) if part else 0)


def is_ahead(time_ns: int, most_ns: int) -> bool:
    """Return whether a stored time is in the future.

    A time further ahead than ``most_ns`` was stored before the clock went back. It counts as past.

    Args:
        most_ns: how far ahead of now the time can have been set.
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


OFF_MAX_NS = 3600 * NS
"""So much of a grace may be lost to a clock that jumps while the machine is off."""
BELIEVED_NS = 86_400 * NS
"""A clock that is further ahead of the known time is not believed."""
SAVE_NS = 600 * NS
"""The known time is stored so often. It grows by the time that has passed, stored or not."""


class ClockReading(NamedTuple):
    """The clocks of the machine at one moment."""

    clock_ns: int
    boot: str
    """Id of the start of the machine."""
    uptime_ns: int
    """The time since then, with the time in which the machine slept."""


class ElapsedTime(NamedTuple):
    """The row of ``elapsed_time``: the elapsed time at a reading of the clocks."""

    elapsed_ns: int
    """Only differences have a meaning."""
    boot: str
    uptime_ns: int
    clock_ns: int


class KnownTime(NamedTuple):
    """The row of ``known_time``: the known time at a reading of the clocks."""

    known_ns: int
    boot: str
    uptime_ns: int


class TrustedTime(NamedTuple):
    """What the clocks and the stored known time say of how late it is."""

    now_ns: int
    """The time to which ages are counted."""
    ahead_ns: int
    """How far ahead of it the clock is, if that is more than is believed. Otherwise 0."""
    row: KnownTime
    """The row that is to be stored."""
    is_repaired: bool = False
    """Whether what was stored could not be right."""


class Completions(NamedTuple):
    """The times of the catalogue that a clock that was set has told. None: there are none."""

    first_ns: int | None = None
    last_ns: int | None = None


NONE = Completions()


def reading() -> ClockReading:
    """Read the clocks of the machine.

    Raises:
        OSError: The machine does not say when it was started.
    """
    return ClockReading(now_ns(), boot_id(), uptime_ns())


def elapsed_time(read: ClockReading, stored: ElapsedTime | None) -> ElapsedTime:
    """Return the elapsed time, to be stored.

    Args:
        read: The clocks now.
        stored: The row, or None if nothing was stored yet.
    """
    if stored is None:
        passed_ns = 0
    elif stored.boot == read.boot:
        passed_ns = max(0, read.uptime_ns - stored.uptime_ns)
    else:
        by_clock_ns = max(0, read.clock_ns - stored.clock_ns)
        passed_ns = min(by_clock_ns, read.uptime_ns + OFF_MAX_NS)
    before_ns = 0 if stored is None else stored.elapsed_ns
    return ElapsedTime(before_ns + passed_ns, read.boot, read.uptime_ns, read.clock_ns)


def trusted_time(
    read: ClockReading, stored: KnownTime | None, times: Completions = NONE
) -> TrustedTime:
    """Return how late it is.

    Args:
        read: The clocks now.
        stored: The row, or None at the first look.
        times: Those of the catalogue.
    """
    known = _repaired(read, stored, times)
    trusted = _trusted_time(read, known, times.last_ns)
    return trusted._replace(is_repaired=known != stored)


def _repaired(read: ClockReading, stored: KnownTime | None, times: Completions) -> KnownTime | None:
    if stored is None or stored.known_ns < FIRST_NS:
        return None
    # The clock may have been ahead during all of the saves.
    least_ns = min(times.first_ns or 0, read.clock_ns)
    return stored._replace(known_ns=max(stored.known_ns, least_ns))


def _trusted_time(
    read: ClockReading, known: KnownTime | None, newest_ns: int | None
) -> TrustedTime:
    fresh = KnownTime(read.clock_ns, read.boot, read.uptime_ns)
    if known is None:
        passed_ns, fast_ns = (read.clock_ns if newest_ns is None else newest_ns), BELIEVED_NS
    elif known.boot == read.boot and read.uptime_ns >= known.uptime_ns:
        since_ns = read.uptime_ns - known.uptime_ns
        passed_ns, fast_ns = known.known_ns + since_ns, since_ns
    else:
        passed_ns, fast_ns = known.known_ns + read.uptime_ns, BELIEVED_NS
    ahead_ns = read.clock_ns - passed_ns
    if ahead_ns > BELIEVED_NS:
        return TrustedTime(passed_ns, ahead_ns, fresh._replace(known_ns=passed_ns))
    now_ns = min(read.clock_ns, passed_ns + fast_ns)
    if known is not None and now_ns < known.known_ns:
        return TrustedTime(now_ns, 0, known)
    return TrustedTime(now_ns, 0, fresh._replace(known_ns=now_ns))


def is_due(known: KnownTime | None, found: TrustedTime) -> bool:
    """Return whether the row of the known time must be stored."""
    if known is None or found.is_repaired or known.boot != found.row.boot:
        return known != found.row
    return found.row.uptime_ns - known.uptime_ns >= SAVE_NS
