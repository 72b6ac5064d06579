"""The local disk as a cache: the files on it and not, and what the hydrator does."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from gateway.cache import room
from gateway.cache.growth import REPORT, Growth
from gateway.control import reports
from gateway.control.reports import DamagedFile, HydratorReport
from gateway.db import journal
from gateway.db.compiled import Session, Statement
from gateway.db.statements import IS_ABSENT, IS_REGULAR, IS_RESIDENT, inode
from gateway.serialize import Model
from gateway.settings import Settings

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
class Counts(Model):
    """Where the bytes of files are."""

    resident: Counted | None
    """On the disk. None: not counted yet."""
    absent: Counted | None
    """Only in the bucket. None: not counted yet."""


NOT_COUNTED = Counts(None, None)


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


def count(session: Session) -> Counts:
    """Return how many files are on the disk, and how many only in the bucket, with their bytes.

    It reads every inode: 0.4 s for a million. Raises TryAgain.
    """
    counts = session.one(COUNTS)
    # On PostgreSQL the sums are Decimals, which JSON does not know.
    resident, resident_bytes, absent, absent_bytes = map(int, counts or (0, 0, 0, 0))
    return Counts(Counted(resident, resident_bytes), Counted(absent, absent_bytes))


def gather(settings: Settings, session: Session) -> Cache:
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
    last day, for which room is kept. None: nothing is evicted because of the disk, or it cannot be
    looked at."""
    try:
        found = room.look(settings)
    except OSError:
        return None
    saved_bytes = Growth(settings.run_dir / REPORT).largest_bytes
    now = room.marks(settings, found, saved_bytes)
    if now.start >= found.total:
        return None
    return EvictionMarks(
        above=now.start / found.total,
        down_to=now.target / found.total,
        used=found.used / found.total,
        saved_bytes=saved_bytes,
        is_early=now.start < found.high,
    )
