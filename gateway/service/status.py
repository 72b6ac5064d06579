"""Service for the state of the whole gateway: the facts of ``spillway status``.

They come from the database, the disk and the files in run/. No process is asked, so they can be had
while the gateway is down. The parts are processes, the backlog of the drain, the local disk as a
cache, and what the NFS server uses of its connections, threads and descriptors: Ganesha closes the
connection that is one too many, and lets calls wait for a thread, without a line in its log.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import and_, exists, func, select, tuple_

from gateway.cache import eviction
from gateway.cache.evictor import REPORT, WriteBurst
from gateway.common import clock
from gateway.common.errors import UserError
from gateway.common.models import Model
from gateway.common.text import encoded, shown, text_of
from gateway.common.units import duration
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db import drain_models, journal, models
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.schema import opened, reading
from gateway.db.statements import IS_ABSENT, IS_DIRTY, IS_REGULAR, IS_RESIDENT, inode
from gateway.drain import statements as own
from gateway.drain.admission.retries import FOR_GOOD, JobFailure, failures, needs_person
from gateway.drain.paths import file_of
from gateway.lifecycle.promotion import store as promotions
from gateway.lifecycle.trash import rows as trash_rows
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import lookup, server_reports
from gateway.namespace.data_files import DataFiles
from gateway.namespace.lookup import way_up
from gateway.service import (
    bucket,
    checkpoints,
    clients,
    copied_names,
    deliveries,
    reports,
    scrub,
    trash,
)
from gateway.service import policies as retention
from gateway.service.bucket import Bucket, Reachability
from gateway.service.checkpoints import CatalogueStatus
from gateway.service.clients import SharedName
from gateway.service.copied_names import CopiedNames, DrillStatus
from gateway.service.deliveries import DeliveryStatus
from gateway.service.policies import RetentionSummary
from gateway.service.reports import (
    DamagedFile,
    DrainReport,
    HydratorReport,
    SpaceReport,
    age_seconds,
)
from gateway.service.scrub import ScrubStatus
from gateway.service.trash import TrashSummary

NEAR = 0.9
"""The share of a limit from which on a person is told."""
THREADS_REMEDY = (
    "find what they wait for, the disk or the database, or raise nfs.threads and restart the NFS "
    "server"
)
DESCRIPTORS_REMEDY = "raise LimitNOFILE of the NFS server, and restart it"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class Limited(Model):
    """What the NFS server uses of what it may have. Null: not known, as while it does not run."""

    open: int | None
    most: int | None
    near: bool
    """Whether nine of ten are in use."""


class Limits(NamedTuple):
    """What the NFS server uses."""

    connections: Limited
    threads: Limited
    descriptors: Limited


def gather_limits(settings: Settings) -> Limits:
    """Gather what is used and what the limits are."""
    report = datadir.read(settings, server_reports.USED_REPORT)
    lives = datadir.alive(report)
    reported = report if report is not None and lives else {}
    counts = [_count(table, settings.nfs.port) for table in _TABLES]
    known = [count for count in counts if count is not None]
    # The kernel counts 0 where no server is, too.
    connections = sum(known) if known and (lives or any(known)) else None
    return Limits(
        connections=_limited({"open": connections, "most": settings.nfs.max_connections}),
        threads=_limited(reported.get("threads")),
        descriptors=_limited(reported.get("descriptors")),
    )


def _limited(reported: Any) -> Limited:
    limits = reported if isinstance(reported, dict) else {}
    used_up, most = limits.get("open"), limits.get("most")
    is_near = used_up is not None and most is not None and used_up >= NEAR * most
    return Limited(open=used_up, most=most, near=is_near)


def _count(table: Path, port: int) -> int | None:
    """Count the established connections to a port in a table of the kernel (proc(5))."""
    suffix = f":{port:04X}"
    try:
        rows = (line.split(maxsplit=4) for line in table.read_text().splitlines()[1:])
    except OSError:
        return None  # a kernel without IPv6
    return sum(row[1].endswith(suffix) and row[3] == _ESTABLISHED for row in rows)


_DEPTH_MAX = 4096

_inode: Any = models.InodeTable.__table__
_object: Any = drain_models.ObjectTable.__table__
_indeterminate: Any = drain_models.IndeterminateWriteTable.__table__
_DIRTY = and_(*IS_DIRTY, _inode.c.nlink > 0)
_SEALED = and_(_DIRTY, _inode.c.write_open == 0)
_OLDEST_AT_ONCE = 100

SEALED = Statement(select(func.count(), func.coalesce(func.sum(_inode.c.size), 0)).where(_SEALED))
WRITING = Statement(select(_inode.c.ino, _inode.c.epoch).where(_DIRTY, _inode.c.write_open == 1))
OLDEST = Statement(
    select(_inode.c.drain_after_ns, _inode.c.ino, _inode.c.size, _inode.c.mtime_ns)
    .where(
        _SEALED,
        tuple_(_inode.c.drain_after_ns, _inode.c.ino) > tuple_(b("after_ns"), b("after_ino")),
    )
    .order_by(_inode.c.drain_after_ns, _inode.c.ino)
    .limit(b("most"))
)
DELETIONS = Statement(select(func.count()).select_from(drain_models.TombstoneTable.__table__))
MOVES = Statement(select(func.count()).select_from(drain_models.RekeyTable.__table__))
UNSETTLED = Statement(
    select(func.count(), func.max(_indeterminate.c.check_after_ns)).where(
        exists().where(_object.c.key == _indeterminate.c.key)
    )
)


@dataclass(frozen=True, slots=True)
class Oldest(Model):
    """The file that has waited longest for the bucket."""

    path: str
    """Path as clients see it."""
    age_seconds: float
    """Time since the drain may take it, or since the last write if a client has it open."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Stuck(Model):
    """A file, or an object without a file, that needs a person, or fails for long."""

    path: str
    """Path as clients see it. A job about no file has its id here."""
    reason: str
    """Reason, with what to do."""


@dataclass(frozen=True, slots=True)
class HeldFile(Model):
    """A file with a name that a hold pattern holds."""

    path: str
    """Path as clients see it."""
    age_seconds: float
    """Time since it was closed."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class HeldFiles(Model):
    """What hold patterns have kept from the bucket for over an hour."""

    files: int
    bytes: int
    first: list[HeldFile]
    """The oldest of them."""


@dataclass(frozen=True, slots=True)
class Unsettled(Model):
    """The objects of files whose request got no answer, so the store may still carry it out. These
    files are not durable until the drain has looked at their keys once more."""

    objects: int
    last_seconds: float | None = field(metadata={"examples": [170.5]})
    """Time until the drain looks at the last of them."""


class Backlog(NamedTuple):
    """Everything that the bucket does not have yet."""

    dirty_files: int
    dirty_bytes: int
    open_files: int
    """The number of dirty files that a client has open for writing."""
    open_bytes: int
    deletions: int
    """The number of objects still to be deleted, because their files were deleted."""
    moves: int
    """The number of renamed files and directories whose objects may have the old key."""
    unsettled: Unsettled
    oldest: Oldest | None
    stuck: list[Stuck]


def measure(settings: Settings, session: Session) -> Backlog:
    """Measure by the database and, for files that are being written, by their data files.

    Raises TryAgain.
    """
    now_ns = clock.now_ns()
    export, files = settings.nfs.export, DataFiles(settings.files_dir)
    ((sealed_files, sealed_bytes),) = session.all(SEALED)
    writing = [(ino, *_on_disk(files, ino, epoch)) for ino, epoch in session.all(WRITING)]
    # What is in the trash is not sent.
    trashed = trash_rows.totals(session).values()
    oldest = _oldest(session, any(totals.dirty_files for totals in trashed))
    if oldest is not None:
        drain_after_ns, ino, size_bytes, mtime_ns = oldest
        since_ns = drain_after_ns or mtime_ns
    elif writing:
        ino, size_bytes, written_ns = min(writing, key=lambda row: row[2] or now_ns)
        since_ns = written_ns or now_ns
    oldest_file = None
    if oldest is not None or writing:
        age_seconds = max(0.0, (now_ns - since_ns) / clock.NS)
        oldest_file = Oldest(path_in_export(session, ino, export), age_seconds, size_bytes)
    open_bytes = sum(size for _ino, size, _mtime_ns in writing)
    ((deletions,),), ((moves,),) = session.all(DELETIONS), session.all(MOVES)
    return Backlog(
        dirty_files=sealed_files + len(writing) - sum(totals.dirty_files for totals in trashed),
        # On PostgreSQL the sum is a Decimal, which JSON does not know.
        dirty_bytes=int(sealed_bytes) + open_bytes - sum(totals.dirty_size for totals in trashed),
        open_files=len(writing),
        open_bytes=open_bytes,
        deletions=deletions,
        moves=moves,
        unsettled=_unsettled(session, now_ns),
        oldest=oldest_file,
        stuck=_stuck(session, export),
    )


def held(settings: Settings, session: Session, is_draining: bool) -> HeldFiles:
    """Return what hold patterns keep from the bucket for long, the oldest first. The drain counts
    it, since it reads all names from time to time. Args: is_draining, whether it runs."""
    report = datadir.read(settings, datadir.DRAIN) if is_draining else None
    held_files = (report or {}).get("held") or {"files": 0, "bytes": 0, "first": []}
    now_ns = clock.now_ns()
    first = [
        HeldFile(
            path_in_export(session, file["ino"], settings.nfs.export),
            max(0.0, (now_ns - file["sealed_ns"]) / clock.NS),
            file["bytes"],
        )
        for file in held_files["first"]
        if file_of(session, file["ino"]) is not None
    ]
    return HeldFiles(held_files["files"], held_files["bytes"], first)


def _unsettled(session: Session, now_ns: int) -> Unsettled:
    ((count, last_ns),) = session.all(UNSETTLED)
    return Unsettled(count, max(0.0, (last_ns - now_ns) / clock.NS) if count else None)


def _oldest(session: Session, has_trash: bool) -> Sequence[Any] | None:
    """Return the file that was sealed first, of those that are to be drained.

    Args:
        has_trash: whether some are in the trash.
    """
    after_ns, after_ino, most = -1, 0, _OLDEST_AT_ONCE if has_trash else 1
    while rows := session.all(OLDEST, after_ns=after_ns, after_ino=after_ino, most=most):
        for row in rows:
            if not (has_trash and lookup.is_trashed(session, row[1])):
                return row
        after_ns, after_ino = rows[-1][:2]
    return None


def _stuck(session: Session, export: str) -> list[Stuck]:
    stuck_items = [
        Stuck(
            path_in_export(session, ino, export), shown(f"{reason}: write it again, or delete it")
        )
        for ino, reason in session.all(own.DAMAGED)
        if file_of(session, ino) is not None and not lookup.is_trashed(session, ino)
    ]
    for job, failure in failures(session):
        if not (needs_person(failure.tries, failure.error) or failure.is_lasting):
            continue
        if job.file and file_of(session, job.file) is None:
            continue
        path = path_in_export(session, job.file, export) if job.file else encoded(str(job))
        stuck_items.append(Stuck(path, shown(_reason(failure))))
    return stuck_items


def _reason(failure: JobFailure) -> str:
    """Return why a job is stuck, and what to do."""
    if not failure.is_lasting:
        return failure.error.removeprefix(FOR_GOOD)
    seconds = (failure.next_ns - failure.since_ns) / clock.NS
    return (
        f"tried for {duration(seconds)} ({failure.tries} times): "
        f"{failure.error.removeprefix(FOR_GOOD)}"
    )


def _on_disk(files: DataFiles, ino: int, epoch: int) -> tuple[int, int]:
    """Return size in bytes and time of the last write. Both are 0 before the first write."""
    try:
        stat = files.path(ino, epoch).stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def path_in_export(session: Session, ino: int, export: str) -> str:
    """One path of an inode, from the export down. An inode that lost its name is ``?``."""
    # A database that is damaged may have a circle of directories.
    steps = list(islice(way_up(session, ino), _DEPTH_MAX))
    names = [text_of(name) for _at, _parent, name in steps]
    if (steps[-1][1] if steps else ino) != models.ROOT_INO:
        names.append("?")
    return "/".join([export, *reversed(names)])


COUNTS = Statement(
    # GROUP BY would make SQLite sort all rows: 1.2 s for a million of them instead of 0.4 s.
    select(
        func.count().filter(IS_RESIDENT),
        func.coalesce(func.sum(inode.c.used).filter(IS_RESIDENT), 0),
        func.count().filter(IS_ABSENT),
        func.coalesce(func.sum(inode.c.size).filter(IS_ABSENT), 0),
    ).where(IS_REGULAR, inode.c.nlink > 0)
)


@dataclass(frozen=True, slots=True)
class Counted(Model):
    """Files and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ResidencyCounts(Model):
    """Where the bytes of files are."""

    resident: Counted | None
    """On the disk. None: not counted yet."""
    absent: Counted | None
    """Only in the bucket. None: not counted yet."""


NOT_COUNTED = ResidencyCounts(None, None)


@dataclass(frozen=True, slots=True)
class EvictionMarks(Model):
    """The shares of the disk between which files are evicted now."""

    above: float
    down_to: float
    used: float
    saved_bytes: int
    """The largest save of the last day: so much is kept free."""
    is_early: bool
    """Whether that makes it begin below `evict_from`."""


@dataclass(frozen=True, slots=True)
class Cache(Model):
    """The local disk as a cache."""

    evicting: EvictionMarks | None
    """None: nothing because of the disk."""
    evict_from: float
    """The share from which on files are evicted, as configured."""
    evict_to: float
    hydrator: HydratorReport | None
    dropped_readers: list[str]
    resident: Counted | None
    """On the disk. None: not counted yet."""
    absent: Counted | None
    """Only in the bucket. None: not counted yet."""

    @property
    def damaged(self) -> list[DamagedFile]:
        """The files that could not be fetched."""
        return [] if self.hydrator is None else self.hydrator.damaged


def count(session: Session) -> ResidencyCounts:
    """Return how many files are on the disk, and how many only in the bucket, with their bytes.

    It reads every inode: 0.4 s for a million. Raises TryAgain.
    """
    counts = session.one(COUNTS)
    # On PostgreSQL the sums are Decimals, which JSON does not know.
    resident, resident_bytes, absent, absent_bytes = map(int, counts or (0, 0, 0, 0))
    return ResidencyCounts(Counted(resident, resident_bytes), Counted(absent, absent_bytes))


def gather_cache(settings: Settings, session: Session) -> Cache:
    """Return what needs no counting. Raises TryAgain."""
    return Cache(
        evicting=evicting(settings),
        evict_from=settings.cache.evict_from,
        evict_to=settings.cache.evict_to,
        hydrator=reports.of_hydrator(settings),
        dropped_readers=journal.dropped(session),
        resident=None,
        absent=None,
    )


def evicting(settings: Settings) -> EvictionMarks | None:
    """Return between which shares of the disk files are evicted now, and the largest save of the
    last day, for which space is kept. None: nothing is evicted because of the disk, or it cannot be
    looked at."""
    try:
        space = eviction.look(settings)
    except OSError:
        return None
    saved_bytes = WriteBurst(settings.run_dir / REPORT).largest_bytes
    now = eviction.marks(settings, space, saved_bytes)
    if now.start >= space.total:
        return None
    return EvictionMarks(
        above=now.start / space.total,
        down_to=now.target / space.total,
        used=space.used / space.total,
        saved_bytes=saved_bytes,
        is_early=now.start < space.high,
    )


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
class DrainWork(Model):
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
    """The state of the gateway."""

    healthy: bool
    """Whether no person must act."""
    config: str
    data_dir: str
    processes: dict[str, Process]
    bucket: Bucket
    drain: DrainReport | None
    dirty: Dirty
    names: CopiedNames
    drill: DrillStatus
    stuck: StuckFiles
    held: HeldFiles
    queued: DrainWork
    unsettled: Unsettled
    cache: Cache
    scrub: ScrubStatus
    catalogue: CatalogueStatus
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
    deliveries: dict[str, DeliveryStatus] = field(default_factory=dict)
    """How far receivers of webhooks are, and of the audit log (`audit_export`)."""


def gather(settings: Settings) -> Status:
    """Return all, also what takes long: the bucket is asked, and files are counted.

    Raises SchemaError, UserError.
    """
    with opened(settings.database_url) as database:
        quick = gather_quickly(settings, database)
        probe = bucket.probe(settings)
        with reading(database) as session:
            return asked(counted(quick, count(session)), probe)


def asked(status: Status, probe: Reachability) -> Status:
    """Return a status with what the bucket answered."""
    answer = replace(status.bucket, reachable=probe.reachable, error=probe.error)
    return replace(status, bucket=answer, healthy=status.healthy and probe.reachable)


def counted(status: Status, counts: ResidencyCounts) -> Status:
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
        withheld = held(settings, session, is_draining)
        waiting = measure(settings, session)
        cache = gather_cache(settings, session)
        catalogue = checkpoints.gather(settings, session)
        policies = retention.gather(session)
        promoted = Counter(row.state for row in promotions.every(session))
        trashed = trash.summary(Trash(settings, database))
        lost = _lost_copies(settings, session)
        configured = bucket.model(settings, session)
        scrubbed = scrub.gather(settings, session)
    processes = _processes(settings)
    alive = all(process.alive for process in processes.values()) and serves(processes)
    # Credentials that may list but not write pass a probe. Only the drain notices.
    refused = drain is not None and drain.alive and drain.bucket.state == "refused"
    space = reports.of_space(settings) if processes["ganesha"].alive else None
    full = space is not None and space.level == "full"
    is_well = not refused and not full and not waiting.stuck and not cache.damaged
    is_well = is_well and not withheld.files and not lost.is_recent and not scrubbed.damaged
    has_descriptors = _has_descriptors(settings)
    shared = clients.gather_shared_names(settings)
    used = gather_limits(settings)
    names = copied_names.copied(settings, processes["recovery"].running_seconds)
    drill = copied_names.drilled(settings)
    is_well = is_well and not names.is_late and not drill.is_failed
    return Status(
        healthy=alive and is_well and has_descriptors and not catalogue.alarms and not shared,
        config=str(settings.source),
        data_dir=str(settings.data_dir),
        processes=processes,
        bucket=configured,
        drain=drain,
        dirty=_dirty(waiting),
        names=names,
        drill=drill,
        stuck=StuckFiles(len(waiting.stuck), waiting.stuck[:STUCK_SHOWN]),
        held=withheld,
        queued=DrainWork(waiting.deletions, waiting.moves),
        unsettled=waiting.unsettled,
        cache=cache,
        scrub=scrubbed,
        catalogue=catalogue,
        retention=policies,
        trash=trashed,
        promotions={str(state): promoted[state] for state in promotions.PromotionState},
        connections=used.connections,
        threads=used.threads,
        descriptors=used.descriptors,
        shared_names=shared,
        disk=_disk(settings, lost, has_descriptors),
        space=space,
        deliveries=deliveries.gather(settings),
    )


def _dirty(waiting: Backlog) -> Dirty:
    return Dirty(
        files=waiting.dirty_files,
        bytes=waiting.dirty_bytes,
        open_for_writing_files=waiting.open_files,
        open_for_writing_bytes=waiting.open_bytes,
        oldest=waiting.oldest,
    )


def _processes(settings: Settings) -> dict[str, Process]:
    up = datadir.read(settings, datadir.UP)
    supervisor_alive = datadir.is_supervised(up)
    processes = {
        "up": Process(
            alive=supervisor_alive,
            pid=up.get("pid") if up is not None and supervisor_alive else None,
            phase=_up_phase(up) if supervisor_alive else "stopped",
        )
    }
    entries = datadir.reported_children(up)
    names = ("ganesha", "drain", "cache", "checkpoints", "recovery")
    for name in (*names, "admin") if settings.admin.enabled else names:
        entry = entries.get(name, {})
        lives = datadir.alive(entry)
        processes[name] = Process(
            alive=lives,
            pid=entry.get("pid") if lives else None,
            # The last report of a dead supervisor does not tell the state of its children.
            phase=entry.get("phase", "stopped") if supervisor_alive else "stopped",
            restarts=entry.get("restarts", 0) if supervisor_alive else 0,
            last_exit=entry.get("last_exit", "") if supervisor_alive else "",
            running_seconds=age_seconds(entry.get("started_ns")) if lives else None,
        )
    return processes


def serves(processes: Mapping[str, Process]) -> bool:
    """Return whether the NFS server was seen to serve since its start."""
    return processes["ganesha"].phase == "ready"


def _up_phase(up: dict[str, Any] | None) -> str | None:
    if up is None or datadir.is_of_services(up):
        return UNITS
    return up.get("state")


def _lost_copies(settings: Settings, session: Session) -> LostCopies:
    """Return how many local copies the disk has lost of files that the bucket has, and the last."""
    report = datadir.read(settings, server_reports.DISK_REPORT) or {}
    last = report.get("last_lost") or {}
    seconds = age_seconds(last.get("at_ns"))
    if seconds is None:
        return LostCopies(files=0, last=None, is_recent=False)
    path = path_in_export(session, last["ino"], settings.nfs.export)
    return LostCopies(
        files=report["lost_copies"],
        last=LostCopy(path, shown(str(last["reason"])), seconds),
        is_recent=seconds < FAILING_SECONDS,
    )


def _has_descriptors(settings: Settings) -> bool:
    """Return whether the NFS server had descriptors for all data files lately."""
    report = datadir.read(settings, server_reports.DISK_REPORT) or {}
    seconds = age_seconds(report.get("refused_ns"))
    return seconds is None or seconds > DESCRIPTORS_SECONDS


def _disk(settings: Settings, lost: LostCopies, has_descriptors: bool) -> Disk:
    """Return what is known of the disk of the data files, which may be another than the one of the
    data directory."""
    path = settings.data_dir
    try:
        if settings.files_dir.is_dir() and settings.files_dir.stat().st_dev != path.stat().st_dev:
            path = settings.files_dir
        disk = os.statvfs(path)
    except OSError as exc:
        raise UserError(
            f"cannot look at {path}: {exc.strerror}: mount its disk or correct gateway.data_dir"
        ) from None
    total_bytes = disk.f_blocks * disk.f_frsize
    return Disk(
        path=str(path),
        total_bytes=total_bytes,
        used_bytes=total_bytes - disk.f_bfree * disk.f_frsize,
        # The blocks that are reserved for root do not count.
        free_bytes=disk.f_bavail * disk.f_frsize,
        lost_copies=lost,
        has_descriptors=has_descriptors,
        other_bytes=None,
    )
