"""Record of the last drill, kept in run/, and when the next one is due.

A file is enough: a namespace that is restored has had no drill, and the report has texts and lists.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from gateway.common import clock, files
from gateway.common.models import Model, Nanoseconds, from_json, to_json
from gateway.config import datadir
from gateway.config.settings import Settings

DAY_NS = 86_400 * clock.NS
LATE_FACTOR = 2
"""No drill for so many times the time in which one is due is late."""
SLACK_NS = 60 * clock.NS
"""A clock that is corrected by this much was not set back."""


@dataclass(frozen=True, slots=True)
class DrillDifference(Model):
    """A file that differs, or whose object does."""

    path: str = field(metadata={"examples": ["run7/step100/__0_0.distcp"]})
    """Path below the export."""
    what: str = field(metadata={"examples": ["inode: size"]})
    """What differs."""


@dataclass(frozen=True, slots=True)
class DrillReport(Model):
    """What a drill found."""

    began_ns: Nanoseconds
    ended_ns: Nanoseconds
    is_ok: bool
    """Whether the bucket brings everything back."""
    as_of_ns: Nanoseconds | None
    """The restored names were those of this time. None: none could be restored."""
    files: int
    """Files and directories that were compared."""
    changed: int
    """Those that changed meanwhile, and rows of lists that did. They were not compared."""
    differing: int
    """Those that differ, or whose object does."""
    first: list[DrillDifference]
    """The first of them."""
    objects: int
    """Objects that the bucket was asked for."""
    problems: list[str] = field(metadata={"examples": [["2 rows of pin differ"]]})
    """What was wrong with the copy itself, for people."""
    compare_seconds: float = field(metadata={"examples": [41.5]})
    """The time that the comparison took."""
    restore_seconds: float | None = field(metadata={"examples": [95.2]})
    """The time that a restore would take, without the wait for the former gateway."""

    @property
    def seconds(self) -> float:
        """The time that the whole drill took."""
        return max(0.0, (self.ended_ns - self.began_ns) / clock.NS)

    @property
    def files_per_second(self) -> float:
        """How fast files were compared."""
        return self.files / self.compare_seconds if self.compare_seconds else 0.0


@dataclass(frozen=True, slots=True)
class DrillRecord(Model):
    """The file."""

    since_ns: Nanoseconds
    """Since when drills are made, or the clock was set back."""
    last: DrillReport | None = None
    error: str = ""
    """Why the last try could not be made. Empty: it could."""


def read(settings: Settings) -> DrillRecord | None:
    """Return the record, or None if there is none."""
    found = datadir.read(settings, datadir.DRILL)
    try:
        return None if found is None else from_json(DrillRecord, found)
    except (KeyError, TypeError, ValueError):
        return None  # of another version: the next drill writes it again


def ended(settings: Settings, report: DrillReport) -> None:
    """Record a drill, durably. Raises OSError."""
    record = read(settings) or DrillRecord(report.began_ns)
    _write(settings, replace(record, last=report, error=""))


def failed(settings: Settings, error: str) -> None:
    """Record why a drill could not be made. Raises OSError."""
    _write(settings, replace(begun(settings), error=error))


def begun(settings: Settings) -> DrillRecord:
    """Return the record. If there is none, or it began in the future, it begins now. Raises
    OSError."""
    record, now_ns = read(settings), clock.now_ns()
    if record is not None and record.since_ns <= now_ns + SLACK_NS:
        return record
    record = replace(record or DrillRecord(now_ns), since_ns=now_ns)
    _write(settings, record)
    return record


def _write(settings: Settings, record: DrillRecord) -> None:
    text = json.dumps(to_json(record), indent=1) + "\n"
    files.replace(settings.run_dir / datadir.DRILL, text, 0o644)


def is_due(days: float, last: DrillReport | None) -> bool:
    """Return whether a drill is to begin.

    Args:
        days: every how many days one begins. 0: never.
        last: the last one.
    """
    if not days or last is None:
        return days > 0
    # One that began in the future did so before the clock went back.
    age_ns = clock.now_ns() - last.began_ns
    return age_ns < -SLACK_NS or age_ns >= days * DAY_NS


def is_late(days: float, record: DrillRecord | None) -> bool:
    """Return whether there was no drill for too long, or whether it is not known for how long.

    Args:
        days: every how many days one begins. 0: never.
        record: what is recorded. None: nothing yet.
    """
    if not days or record is None:
        return False
    since_ns = record.since_ns if record.last is None else record.last.ended_ns
    age_ns = clock.now_ns() - since_ns
    return age_ns < -SLACK_NS or age_ns > LATE_FACTOR * days * DAY_NS
