"""The local disk as a cache: the files on it and not, and what the hydrator does."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from gateway import state
from gateway.cache import room
from gateway.cache.growth import REPORT, Growth
from gateway.db import journal
from gateway.db.compiled import Session, Statement
from gateway.db.statements import IS_ABSENT, IS_REGULAR, IS_RESIDENT, inode
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


def count(session: Session) -> dict[str, Any]:
    """Return how many files are on the disk, and how many only in the bucket, with their bytes.

    It reads every inode: 0.4 s for a million. Raises TryAgain.
    """
    counts = session.one(COUNTS)
    # On PostgreSQL the sums are Decimals, which JSON does not know.
    resident, resident_bytes, absent, absent_bytes = map(int, counts or (0, 0, 0, 0))
    return {
        "resident": {"files": resident, "bytes": resident_bytes},
        "absent": {"files": absent, "bytes": absent_bytes},
    }


def gather(settings: Settings, session: Session) -> dict[str, Any]:
    """Return the facts that need no counting. Raises TryAgain."""
    report = state.read(settings, state.CACHE)
    return {
        "evicting": evicting(settings),
        "evict_from": settings.cache.evict_from,
        "evict_to": settings.cache.evict_to,
        "hydrator": None if report is None else {**report, "alive": state.alive(report)},
        "dropped_readers": journal.dropped(session),
    }


def evicting(settings: Settings) -> dict[str, Any] | None:
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
    return {
        "above": now.start / found.total,
        "down_to": now.target / found.total,
        "used": found.used / found.total,
        "saved_bytes": saved_bytes,
        "is_early": now.start < found.high,
    }


def damaged(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the files that the hydrator could not fetch, from the facts of ``gather``."""
    return _files(facts, "damaged")


def thawing(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the files whose objects are on their way back from an archive, in the same way."""
    return _files(facts, "thawing")


def _files(facts: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = (facts["hydrator"] or {}).get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
