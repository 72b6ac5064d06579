"""The state of the whole gateway: the facts of ``spillway status``.

They come from the database, the disk and the files in run/. No process is asked, so they can be had
while the gateway is down.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway import clock, state
from gateway.control import (
    backlog,
    bucket,
    cached,
    checkpoints,
    limits,
    reports,
    retention,
    sharednames,
    trash,
)
from gateway.control.backlog import Held, Oldest, Stuck, Unsettled
from gateway.control.bucket import Bucket, Reachability
from gateway.control.cached import Cache, Counts
from gateway.control.checkpoints import Catalogue
from gateway.control.limits import Limited
from gateway.control.reports import DrainReport, SpaceReport
from gateway.control.retention import RetentionSummary
from gateway.control.sharednames import SharedName
from gateway.control.trash import TrashSummary
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.opening import opened, reading
from gateway.errors import UserError
from gateway.namespace import trouble
from gateway.promotion import store as promotions
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import shown
from gateway.trash.trash import Trash

STUCK_SHOWN = 5
FAILING_SECONDS = 86400
"""For so long after it lost a local copy, a disk is one that a person must look at."""
DESCRIPTORS_SECONDS = 600
"""For so long after it had no descriptor for a data file, the NFS server is said to lack them."""
UNITS = "units of systemd"
"""The phase of ``up`` where each process is a service of its own."""


@dataclass(frozen=True, slots=True)
class Process(Model):
    """A process of the gateway."""

    alive: bool
    pid: int | None
    phase: str | None = field(metadata={"examples": ["ready"]})
    restarts: int = 0
    last_exit: str = ""
    running_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Dirty(Model):
    """What only this gateway has."""

    files: int
    bytes: int
    open_for_writing_files: int
    open_for_writing_bytes: int
    oldest: Oldest | None


@dataclass(frozen=True, slots=True)
class StuckFiles(Model):
    """The files that need a person."""

    files: int
    first: list[Stuck]


@dataclass(frozen=True, slots=True)
class Queued(Model):
    """What the drain has to do about objects."""

    deletions: int
    moves: int


@dataclass(frozen=True, slots=True)
class LostCopy(Model):
    """A local copy that the disk lost."""

    path: str
    reason: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class LostCopies(Model):
    """Local copies that the disk lost, of files that the bucket has."""

    files: int
    last: LostCopy | None
    is_recent: bool
    """Whether the last was lost in the last 24 hours."""


@dataclass(frozen=True, slots=True)
class Disk(Model):
    """The local disk."""

    path: str = field(metadata={"examples": ["/var/lib/spillway"]})
    total_bytes: int
    used_bytes: int
    free_bytes: int
    lost_copies: LostCopies
    has_descriptors: bool
    """Whether the NFS server had a descriptor for each file lately."""
    other_bytes: int | None
    """Used, and not by bytes of files. Null before files are counted."""


@dataclass(frozen=True, slots=True)
class Status(Model):
    """The state of the gateway. What ends in _ns is nanoseconds since 1970."""

    healthy: bool
    """Whether no person must act."""
    config: str
    data_dir: str
    processes: dict[str, Process]
    bucket: Bucket
    drain: DrainReport | None
    dirty: Dirty
    stuck: StuckFiles
    held: Held
    queued: Queued
    unsettled: Unsettled
    cache: Cache
    catalogue: Catalogue
    retention: RetentionSummary
    trash: TrashSummary
    promotions: dict[str, int]
    """Their number by state."""
    connections: Limited
    """TCP connections of clients. Above `nfs.max_connections` one is closed at once."""
    threads: Limited
    """Threads that answer calls, of `nfs.threads`, or did in the last half minute."""
    descriptors: Limited
    """Descriptors of the process of the NFS server. Each file that a client has open has one."""
    shared_names: list[SharedName]
    disk: Disk
    space: SpaceReport | None
    """None: the NFS server does not run."""


def gather(settings: Settings) -> Status:
    """Return all, also what takes long: the bucket is asked, and files are counted.

    Raises SchemaError, UserError.
    """
    with opened(settings.database_url) as database:
        quick = gather_quickly(settings, database)
        probe = bucket.probe(settings)
        with reading(database) as session:
            return asked(counted(quick, cached.count(session)), probe)


def asked(status: Status, probe: Reachability) -> Status:
    """Return a status with what the bucket answered."""
    found = replace(status.bucket, reachable=probe.reachable, error=probe.error)
    return replace(status, bucket=found, healthy=status.healthy and probe.reachable)


def counted(status: Status, counts: Counts) -> Status:
    """Return a status with the files that were counted."""
    other_bytes = None
    if counts.resident is not None:
        # The row of a file that is being written has the bytes of its last close.
        ours = counts.resident.bytes + status.dirty.open_for_writing_bytes
        other_bytes = max(0, status.disk.used_bytes - ours)
    cache = replace(status.cache, resident=counts.resident, absent=counts.absent)
    return replace(status, disk=replace(status.disk, other_bytes=other_bytes), cache=cache)


def gather_quickly(settings: Settings, database: Database) -> Status:
    """Return what is had at once: the bucket is not asked, and files are not counted. Raises
    UserError."""
    drain = reports.of_drain(settings)
    is_draining = drain is not None and drain.alive
    with reading(database) as session:
        withheld = backlog.held(settings, session, is_draining)
        waiting = backlog.measure(settings, session)
        cache = cached.gather(settings, session)
        catalogue = checkpoints.gather(settings, session)
        policies = retention.gather(session)
        promoted = Counter(one.state for one in promotions.every(session))
        trashed = trash.summary(Trash(settings, database))
        lost = _lost_copies(settings, session)
        configured = bucket.model(settings, session)
    processes = _processes(settings)
    alive = all(one.alive for one in processes.values()) and serves(processes)
    # Credentials that may list but not write pass a probe. Only the drain notices.
    refused = drain is not None and drain.alive and drain.bucket.state == "refused"
    space = reports.of_space(settings) if processes["ganesha"].alive else None
    full = space is not None and space.level == "full"
    is_well = not refused and not full and not waiting.stuck and not cache.damaged
    is_well = is_well and not withheld.files and not lost.is_recent
    has_descriptors = _has_descriptors(settings)
    shared = sharednames.gather(settings)
    used = limits.gather(settings)
    return Status(
        healthy=alive and is_well and has_descriptors and not catalogue.alarms and not shared,
        config=str(settings.source),
        data_dir=str(settings.data_dir),
        processes=processes,
        bucket=configured,
        drain=drain,
        dirty=_dirty(waiting),
        stuck=StuckFiles(len(waiting.stuck), waiting.stuck[:STUCK_SHOWN]),
        held=withheld,
        queued=Queued(waiting.deletions, waiting.moves),
        unsettled=waiting.unsettled,
        cache=cache,
        catalogue=catalogue,
        retention=policies,
        trash=trashed,
        promotions={str(one): promoted[one] for one in promotions.State},
        connections=used.connections,
        threads=used.threads,
        descriptors=used.descriptors,
        shared_names=shared,
        disk=_disk(settings, lost, has_descriptors),
        space=space,
    )


def _dirty(waiting: backlog.Backlog) -> Dirty:
    return Dirty(
        files=waiting.dirty_files,
        bytes=waiting.dirty_bytes,
        open_for_writing_files=waiting.open_files,
        open_for_writing_bytes=waiting.open_bytes,
        oldest=waiting.oldest,
    )


def _processes(settings: Settings) -> dict[str, Process]:
    up = state.read(settings, state.UP)
    supervisor_alive = state.is_supervised(up)
    found = {
        "up": Process(
            alive=supervisor_alive,
            pid=up.get("pid") if up is not None and supervisor_alive else None,
            phase=_up_phase(up) if supervisor_alive else "stopped",
        )
    }
    entries = state.children(up)
    names = ("ganesha", "drain", "cache", "checkpoints")
    for name in (*names, "admin") if settings.admin.enabled else names:
        entry = entries.get(name, {})
        lives = state.alive(entry)
        found[name] = Process(
            alive=lives,
            pid=entry.get("pid") if lives else None,
            # The last report of a dead supervisor does not tell the state of its children.
            phase=entry.get("phase", "stopped") if supervisor_alive else "stopped",
            restarts=entry.get("restarts", 0) if supervisor_alive else 0,
            last_exit=entry.get("last_exit", "") if supervisor_alive else "",
            running_seconds=age_seconds(entry.get("started_ns")) if lives else None,
        )
    return found


def serves(processes: Mapping[str, Process]) -> bool:
    """Return whether the NFS server was seen to serve since its start."""
    return processes["ganesha"].phase == "ready"


def _up_phase(up: dict[str, Any] | None) -> str | None:
    if up is None or state.is_of_services(up):
        return UNITS
    return up.get("state")


def age_seconds(since_ns: Any) -> float | None:
    """Return the time since a moment of a report, or None if it is no moment."""
    if not isinstance(since_ns, int) or since_ns <= 0:
        return None
    return round(max(0, clock.now_ns() - since_ns) / clock.NS, 1)


def _lost_copies(settings: Settings, session: Session) -> LostCopies:
    """Return how many local copies the disk has lost of files that the bucket has, and the last."""
    report = state.read(settings, trouble.REPORT) or {}
    last = report.get("last_lost") or {}
    seconds = age_seconds(last.get("at_ns"))
    if seconds is None:
        return LostCopies(files=0, last=None, is_recent=False)
    path = backlog.path_in_export(session, last["ino"], settings.nfs.export)
    return LostCopies(
        files=report["lost_copies"],
        last=LostCopy(path, shown(str(last["reason"])), seconds),
        is_recent=seconds < FAILING_SECONDS,
    )


def _has_descriptors(settings: Settings) -> bool:
    """Return whether the NFS server had descriptors for all data files lately."""
    report = state.read(settings, trouble.REPORT) or {}
    seconds = age_seconds(report.get("refused_ns"))
    return seconds is None or seconds > DESCRIPTORS_SECONDS


def _disk(settings: Settings, lost: LostCopies, has_descriptors: bool) -> Disk:
    """Return what is known of the disk of the data files, which may be another than the one of the
    data directory."""
    path = settings.data_dir
    try:
        if settings.files_dir.is_dir() and settings.files_dir.stat().st_dev != path.stat().st_dev:
            path = settings.files_dir
        found = os.statvfs(path)
    except OSError as exc:
        raise UserError(
            f"cannot look at {path}: {exc.strerror}: mount its disk or correct gateway.data_dir"
        ) from None
    total_bytes = found.f_blocks * found.f_frsize
    return Disk(
        path=str(path),
        total_bytes=total_bytes,
        used_bytes=total_bytes - found.f_bfree * found.f_frsize,
        # The blocks that are reserved for root do not count.
        free_bytes=found.f_bavail * found.f_frsize,
        lost_copies=lost,
        has_descriptors=has_descriptors,
        other_bytes=None,
    )
