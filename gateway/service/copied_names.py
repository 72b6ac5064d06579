"""Service for the copy of the names in the bucket: how old it is, and whether the last drill of a
restore brought everything back."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.common import clock
from gateway.common.models import Model
from gateway.common.text import shown
from gateway.config.settings import Settings
from gateway.recovery import drill_record
from gateway.recovery.drill_record import DrillReport
from gateway.service import reports
from gateway.service.reports import age_seconds

STARTING_SECONDS, BASE_SECONDS = 60.0, 3600.0
"""How long a process that started, and the first base of a large namespace, may take."""


@dataclass(frozen=True, slots=True)
class CopiedNames(Model):
    """The copy of the names in the bucket: what a loss of this gateway would cost."""

    enabled: bool
    """Whether `recovery.names_in_bucket` is on."""
    age_seconds: float | None = field(metadata={"examples": [3.2]})
    """The bucket has every name as it was so long ago. None: it has none yet."""
    waiting: int
    """Changes that are read and not in the bucket."""
    base_age_seconds: float | None = field(metadata={"examples": [86400.0]})
    """Time since the newest base was whole. None: there is none."""
    base_inodes: int
    """Inodes of the base that is being made. 0: none is."""
    error: str = field(metadata={"examples": [""]})
    """Why nothing is copied now. Empty: nothing is wrong."""
    is_late: bool
    """Whether the names in the bucket are older than a person should accept."""


@dataclass(frozen=True, slots=True)
class DrillStatus(Model):
    """The drill of a restore."""

    every_days: float
    """Every so many days one is made. 0: never."""
    last: DrillReport | None
    """None: none was made yet."""
    age_seconds: float | None = field(metadata={"examples": [86400.0]})
    """Time since the last one. None: there is none, or the clock was set back since."""
    error: str = field(metadata={"examples": [""]})
    """Why the last try could not be made. Empty: it could."""
    is_late: bool
    """Whether none was made for twice the time in which one is due."""

    @property
    def is_failed(self) -> bool:
        """Whether the last one found that not everything comes back."""
        return self.last is not None and not self.last.is_ok


def copied(settings: Settings, running_seconds: float | None) -> CopiedNames:
    """Return how far the copy of the names is.

    Args:
        settings: of the gateway.
        running_seconds: for how long its process has run. None: it does not.
    """
    report = reports.of_names(settings)
    age = age_seconds(report.copied_ns)
    limit = settings.recovery.late_seconds
    enabled, running = settings.recovery.names_in_bucket, running_seconds or 0.0
    is_without = age is None or report.base_ns is None
    patience = max(limit, BASE_SECONDS) if report.base_inodes else limit
    # The report of the process before tells nothing of one that has just started.
    is_starting = running_seconds is not None and running <= STARTING_SECONDS
    # A time in the future was noted before the clock was set back: nothing says how old it is.
    ahead_seconds = ((report.copied_ns or 0) - clock.now_ns()) / clock.NS
    is_old = age is not None and not is_starting and max(age, ahead_seconds) > limit
    return CopiedNames(
        enabled=enabled,
        age_seconds=age,
        waiting=report.waiting,
        base_age_seconds=age_seconds(report.base_ns),
        base_inodes=report.base_inodes,
        error=shown(report.error),
        is_late=enabled and (is_old or (is_without and running > patience)),
    )


def drilled(settings: Settings) -> DrillStatus:
    """Return what the last drill found."""
    record = drill_record.read(settings)
    last = None if record is None else record.last
    is_on = settings.recovery.names_in_bucket
    days = settings.recovery.drill_days if is_on else 0.0
    is_ahead = last is not None and last.ended_ns > clock.now_ns() + drill_record.SLACK_NS
    return DrillStatus(
        every_days=days,
        last=last,
        age_seconds=None if last is None or is_ahead else age_seconds(last.ended_ns),
        error="" if record is None else shown(record.error),
        is_late=drill_record.is_late(days, record),
    )
