"""What `spillway status` says of the local disk as a cache: files on it and not, the hydrator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import func, select

from gateway import state
from gateway.db import journal
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.db.statements import IS_ABSENT, IS_REGULAR, IS_RESIDENT, inode
from gateway.errors import NamespaceError, UserError
from gateway.settings import Settings
from gateway.text import shown
from gateway.units import size

DAMAGED_SHOWN = 5
REMEDY = "make the uploaded version of its object readable again, or delete the file"

COUNTS = Statement(
    # GROUP BY would make SQLite sort all rows: 1.2 s for a million of them instead of 0.4 s.
    select(
        func.count().filter(IS_RESIDENT),
        func.coalesce(func.sum(inode.c.used).filter(IS_RESIDENT), 0),
        func.count().filter(IS_ABSENT),
        func.coalesce(func.sum(inode.c.size).filter(IS_ABSENT), 0),
    ).where(IS_REGULAR, inode.c.nlink > 0)
)


def gather(settings: Settings) -> dict[str, Any]:
    """Return the facts. Raises UserError."""
    database = Database(settings.database_url)
    try:
        with database.reader() as connection:
            session = Session(connection, database.dialect)
            counts = session.one(COUNTS)
            dropped = journal.dropped(session)
    except NamespaceError as exc:
        raise UserError(f"cannot read the database {database.url}: {exc}") from None
    finally:
        database.close()
    # On PostgreSQL the sums are Decimals, which JSON does not know.
    resident, resident_bytes, absent, absent_bytes = map(int, counts or (0, 0, 0, 0))
    report = state.read(settings, state.CACHE)
    return {
        "resident": {"files": resident, "bytes": resident_bytes},
        "absent": {"files": absent, "bytes": absent_bytes},
        "evict_from": settings.cache.evict_from,
        "evict_to": settings.cache.evict_to,
        "hydrator": None if report is None else {**report, "alive": state.alive(report)},
        "dropped_readers": dropped,
    }


def damaged(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the files that the hydrator could not fetch, from the facts of ``gather``."""
    found = (facts["hydrator"] or {}).get("damaged")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def lines(facts: dict[str, Any], used_share: float) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line, for a person.

    Parameters: facts, of ``gather``; used_share, of the disk.
    """
    here, away = facts["resident"], facts["absent"]
    text = f"{here['files']:,} files, {size(here['bytes'])}"
    if away["files"]:
        text += f"; only in the bucket: {away['files']:,} files, {size(away['bytes'])}"
    yield "on the disk", text
    yield (
        "evicting",
        f"from {100 * facts['evict_from']:.0f} % of the disk down to "
        f"{100 * facts['evict_to']:.0f} %; {100 * used_share:.0f} % are used",
    )
    yield "fetching", _fetching(facts["hydrator"])
    found = damaged(facts)
    for one in found[:DAMAGED_SHOWN]:
        what, why = shown(str(one.get("path"))), shown(str(one.get("reason")))
        yield "damaged", f"{what}: {why}: {REMEDY}"
    if len(found) > DAMAGED_SHOWN:
        yield "damaged", f"and {len(found) - DAMAGED_SHOWN} more: spillway status --json"
    for name in facts["dropped_readers"]:
        yield "journal", f"reader {shown(name)} fell behind and must read everything again"


def _fetching(report: dict[str, Any] | None) -> str:
    if report is None:
        return "the hydrator has not reported yet"
    if not report["alive"]:
        return "stopped"
    texts = [f"{report['files']} files" if report.get("files") else "no file"]
    if report.get("thawing_files"):
        texts.append(f"{report['thawing_files']} objects are asked back from the archive")
    if report.get("has_room") is False:
        texts.append("only what clients wait for: the disk is short of room")
    bucket, counters = report.get("bucket"), report.get("counters")
    if isinstance(bucket, dict) and bucket.get("error"):
        texts.append(shown(str(bucket["error"])))
    if isinstance(counters, dict):
        texts += [f"{shown(str(name)).replace('_', ' ')} {n}" for name, n in counters.items() if n]
    return ", ".join(texts)
