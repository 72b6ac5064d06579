"""Models of the reports in run/, from the drain, the hydrator and the NFS server.

Their fields have defaults, because a process that just started has not filled all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.common import clock
from gateway.common.models import Model, Nanoseconds, from_json
from gateway.common.text import shown
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.namespace import server_reports


@dataclass(frozen=True, slots=True)
class ReportedBucket(Model):
    """The bucket, as a process sees it that works with it."""

    state: str = field(default="unknown", metadata={"examples": ["reachable"]})
    """unknown, reachable, unreachable or refused."""
    error: str | None = None
    since_ns: Nanoseconds | None = None
    taken: bool = False
    """Whether another gateway has it, or it is not known whose it is."""
    awaited: bool = False
    """Whether a copy of this gateway may still run, and is waited for a sign."""
    refused: list[str] = field(default_factory=list, metadata={"examples": [["upload"]]})
    """The kinds of jobs that were refused."""

    @property
    def outage(self) -> str | None:
        """Why the bucket cannot be used now, or None if it can as far as is known."""
        if self.state not in ("unreachable", "refused"):
            return None
        return f"the bucket is {self.state}: {shown(self.error or 'no reason known')}"


@dataclass(frozen=True, slots=True)
class RunningUpload(Model):
    """An upload that is under way."""

    key: str = field(metadata={"examples": ["jobs/llama-7b/step-1200/model.pt"]})
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class FailingJob(Model):
    """A job of the drain that failed, and is tried again."""

    job: str = field(metadata={"examples": ["upload 4711 jobs/llama-7b/step-1200/model.pt"]})
    tries: int
    error: str = field(metadata={"examples": ["503 SlowDown"]})


@dataclass(frozen=True, slots=True)
class DrainReport(Model):
    """The last report of the drain."""

    alive: bool
    """Whether it runs."""
    pid: int | None = None
    start_ticks: int | None = None
    """When its process started, as the kernel counts."""
    time_ns: Nanoseconds | None = None
    """When it was written."""
    state: str = field(default="unknown", metadata={"examples": ["running"]})
    bucket: ReportedBucket = field(default_factory=ReportedBucket)
    uploads: list[RunningUpload] = field(default_factory=list)
    bytes_per_second: int | None = None
    """What was sent in the last minute."""
    failures: list[FailingJob] = field(default_factory=list)
    """The latest."""
    failing: int | None = None
    """Jobs that wait for their next try."""
    counters: dict[str, int] = field(default_factory=dict)
    """Since its start."""
    answers: dict[str, int] = field(default_factory=dict)
    """Requests to the bucket by the status of their answer. none: no answer came."""
    waiting_files: int | None = None
    """Files that could be uploaded now."""
    oldest_sealed_ns: Nanoseconds | None = None
    restless_files: int = 0
    """Open files that are written without a pause, so that the bucket has nothing of them."""
    requests_at_once: int | None = None
    """How many may be under way now."""


@dataclass(frozen=True, slots=True)
class FetchedFile(Model):
    """A file whose bytes come back from the bucket."""

    ino: int
    path: str = field(metadata={"examples": ["jobs/llama-7b/step-1200/model.pt"]})
    """Below the export, for people."""
    done_bytes: int
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class DamagedFile(Model):
    """A file that could not be fetched."""

    path: str = field(metadata={"examples": ["jobs/llama-7b/step-1200/model.pt"]})
    """Below the export, for people."""
    reason: str = field(metadata={"examples": ["the object is not in the bucket"]})
    ino: int | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class RestoringFile(Model):
    """A file whose object is on its way back from an archive."""

    ino: int
    path: str = field(metadata={"examples": ["jobs/llama-7b/step-1200/model.pt"]})
    """Below the export, for people."""
    since_ns: Nanoseconds
    """When it was asked back."""
    tier: str = field(metadata={"examples": ["Standard"]})
    """How fast it comes."""
    expected_ns: Nanoseconds
    """The time until which it usually is back."""
    expires_ns: Nanoseconds | None = None
    """The time until which it is readable, if it is back and was not fetched yet."""


@dataclass(frozen=True, slots=True)
class HydratorReport(Model):
    """The last report of the hydrator."""

    alive: bool
    """Whether it runs."""
    pid: int | None = None
    start_ticks: int | None = None
    """When its process started, as the kernel counts."""
    time_ns: Nanoseconds | None = None
    """When it was written."""
    state: str = field(default="unknown", metadata={"examples": ["running"]})
    bucket: ReportedBucket = field(default_factory=ReportedBucket)
    counters: dict[str, int] = field(default_factory=dict)
    """Since its start."""
    answers: dict[str, int] = field(default_factory=dict)
    """Requests to the bucket by the status of their answer. none: no answer came."""
    files: int = 0
    """Files that are to be fetched."""
    waiting_files: int | None = None
    """Those of them that a client waits for."""
    has_room: bool = True
    """False: only what clients wait for is fetched, because the disk is short of room."""
    in_progress: list[FetchedFile] = field(default_factory=list)
    """The first of them."""
    damaged_files: int | None = None
    damaged: list[DamagedFile] = field(default_factory=list)
    """The first of them."""
    restoring_files: int | None = None
    restoring: list[RestoringFile] = field(default_factory=list)
    """The first of them."""
    server: bool | None = None
    """Whether the NFS server answers it."""
    evictor: dict[str, int] = field(default_factory=dict)
    """What the evictor counted since its start."""


@dataclass(frozen=True, slots=True)
class SpaceReport(Model):
    """The room for writers, as the NFS server reported it."""

    level: str = field(default="unknown", metadata={"examples": ["room"]})
    """room, slow (writers are slowed), full (nothing is accepted), or unknown."""
    since_ns: Nanoseconds | None = None
    headroom_bytes: int | None = None
    """Bytes until nothing more is accepted. None: not known yet."""
    dirty_limit_bytes: int = 0
    """0: only the size of the disk counts."""
    dirty_bytes: int | None = None
    """None: there is no limit of them."""
    writers: int | None = None


@dataclass(frozen=True, slots=True)
class NamesReport(Model):
    """The copy of the names in the bucket, as its process reported it."""

    copied_ns: Nanoseconds | None = None
    """The bucket has every name as it was then. None: it has none yet."""
    waiting: int = 0
    """Changes that are read and not in the bucket."""
    base_ns: Nanoseconds | None = None
    """When the newest base was whole. None: there is none."""
    base_inodes: int = 0
    """Inodes of the base that is being made. 0: none is."""
    error: str = ""
    """Why names or settings are not copied now."""


R = TypeVar("R", DrainReport, HydratorReport)


def age_seconds(since_ns: Any) -> float | None:
    """Return the time since a moment of a report, or None if it is no moment."""
    if not isinstance(since_ns, int) or since_ns <= 0:
        return None
    return round(max(0, clock.now_ns() - since_ns) / clock.NS, 1)


def of_drain(settings: Settings) -> DrainReport | None:
    """Return the last report of the drain, or None if there is none."""
    return _with_life(DrainReport, datadir.read(settings, datadir.DRAIN))


def of_hydrator(settings: Settings) -> HydratorReport | None:
    """Return the last report of the hydrator, or None if there is none."""
    return _with_life(HydratorReport, datadir.read(settings, datadir.CACHE))


def of_names(settings: Settings) -> NamesReport:
    """Return the last report of the copy of the names, with what is wrong with the settings beside
    them."""
    report = datadir.read(settings, datadir.RECOVERY) or {}
    names, beside = report.get("names"), report.get("settings") or {}
    if not names:
        return NamesReport()
    times = {name: names.get(name) or None for name in ("copied_ns", "base_ns")}
    error = names.get("error") or beside.get("error") or ""
    return from_json(NamesReport, {**names, **times, "error": error})


def of_space(settings: Settings) -> SpaceReport | None:
    """Return the last report of the room for writers, or None if there is none."""
    report = datadir.read(settings, server_reports.SPACE_REPORT)
    return None if report is None else from_json(SpaceReport, _without_zero(report))


def outage_of(report: DrainReport | None) -> str | None:
    """Return what a running drain says of the bucket, or None if it is well or none runs."""
    return report.bucket.outage if report is not None and report.alive else None


def _with_life(model: type[R], report: Mapping[str, Any] | None) -> R | None:
    if report is None:
        return None
    bucket = report.get("bucket")
    known = {"bucket": _without_zero(bucket)} if isinstance(bucket, Mapping) else {}
    return from_json(model, {**report, **known, "alive": datadir.alive(report)})


def _without_zero(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report in which it is not known since when what has not begun yet."""
    return {**report, "since_ns": report.get("since_ns") or None}
