"""Measures what the bucket does not have yet, by the namespace's database. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import and_, exists, func, select, tuple_

from gateway import clock, state
from gateway.data.layout import DataFiles
from gateway.db import drainmodels, models
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import IS_DIRTY
from gateway.drain import statements as own
from gateway.drain.admission.retries import FOR_GOOD, Failure, failures, needs_person
from gateway.drain.paths import file_of
from gateway.escapes import encoded, text_of
from gateway.namespace import lookup
from gateway.namespace.lookup import way_up
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import shown
from gateway.trash import rows as trash_rows
from gateway.units import duration

_DEPTH_MAX = 4096

_inode: Any = models.Inode.__table__
_object: Any = drainmodels.Object.__table__
_doubt: Any = drainmodels.Doubt.__table__
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
DELETIONS = Statement(select(func.count()).select_from(drainmodels.Tombstone.__table__))
MOVES = Statement(select(func.count()).select_from(drainmodels.Rekey.__table__))
UNSETTLED = Statement(
    select(func.count(), func.max(_doubt.c.look_ns)).where(
        exists().where(_object.c.key == _doubt.c.key)
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
class Held(Model):
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
    oldest = _oldest(session, any(one.dirty_files for one in trashed))
    if oldest is not None:
        drain_after_ns, ino, size_bytes, mtime_ns = oldest
        since_ns = drain_after_ns or mtime_ns
    elif writing:
        ino, size_bytes, written_ns = min(writing, key=lambda row: row[2] or now_ns)
        since_ns = written_ns or now_ns
    found = None
    if oldest is not None or writing:
        age_seconds = max(0.0, (now_ns - since_ns) / clock.NS)
        found = Oldest(path_in_export(session, ino, export), age_seconds, size_bytes)
    open_bytes = sum(size for _ino, size, _mtime_ns in writing)
    ((deletions,),), ((moves,),) = session.all(DELETIONS), session.all(MOVES)
    return Backlog(
        dirty_files=sealed_files + len(writing) - sum(one.dirty_files for one in trashed),
        # On PostgreSQL the sum is a Decimal, which JSON does not know.
        dirty_bytes=int(sealed_bytes) + open_bytes - sum(one.dirty_size for one in trashed),
        open_files=len(writing),
        open_bytes=open_bytes,
        deletions=deletions,
        moves=moves,
        unsettled=_unsettled(session, now_ns),
        oldest=found,
        stuck=_stuck(session, export),
    )


def held(settings: Settings, session: Session, is_draining: bool) -> Held:
    """Return what hold patterns keep from the bucket for long, the oldest first. The drain counts
    it, since it reads all names from time to time. Args: is_draining, whether it runs."""
    report = state.read(settings, state.DRAIN) if is_draining else None
    found = (report or {}).get("held") or {"files": 0, "bytes": 0, "first": []}
    now_ns = clock.now_ns()
    first = [
        HeldFile(
            path_in_export(session, one["ino"], settings.nfs.export),
            max(0.0, (now_ns - one["sealed_ns"]) / clock.NS),
            one["bytes"],
        )
        for one in found["first"]
        if file_of(session, one["ino"]) is not None
    ]
    return Held(found["files"], found["bytes"], first)


def _unsettled(session: Session, now_ns: int) -> Unsettled:
    ((count, last_ns),) = session.all(UNSETTLED)
    return Unsettled(count, max(0.0, (last_ns - now_ns) / clock.NS) if count else None)


def _oldest(session: Session, has_trash: bool) -> Sequence[Any] | None:
    """Return the file that was sealed first, of those that are to be drained. Parameters:
    has_trash, whether some are in the trash."""
    after_ns, after_ino, most = -1, 0, _OLDEST_AT_ONCE if has_trash else 1
    while rows := session.all(OLDEST, after_ns=after_ns, after_ino=after_ino, most=most):
        for row in rows:
            if not (has_trash and lookup.is_trashed(session, row[1])):
                return row
        after_ns, after_ino = rows[-1][:2]
    return None


def _stuck(session: Session, export: str) -> list[Stuck]:
    found = [
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
        found.append(Stuck(path, shown(_reason(failure))))
    return found


def _reason(failure: Failure) -> str:
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
        found = files.path(ino, epoch).stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def path_in_export(session: Session, ino: int, export: str) -> str:
    """One path of an inode, from the export down. An inode that lost its name is ``?``."""
    # A database that is damaged may have a circle of directories.
    steps = list(islice(way_up(session, ino), _DEPTH_MAX))
    names = [text_of(name) for _at, _parent, name in steps]
    if (steps[-1][1] if steps else ino) != models.ROOT_INO:
        names.append("?")
    return "/".join([export, *reversed(names)])
