"""The checkpoints of the catalogue: pages of lists, in some order, and their counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, func, literal_column, select, tuple_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean

from gateway import clock, state
from gateway.checkpoints.catalogue import catalogue_of
from gateway.checkpoints.facts import State
from gateway.checkpoints.risk import summarize
from gateway.checkpoints.shown import ARCHIVED, CATALOGUED, SHOWN
from gateway.control import runs
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.statements import catalogue, checkpoint, manifest, promotion
from gateway.manifests import rows
from gateway.objectstore.keys import key_of
from gateway.settings import Settings
from gateway.text import Text, printable
from gateway.types import Extent, Kind

_LAST = literal_column(str((1 << 63) - 1), BigInteger)
"""Takes the place of a step or time that there is not: it comes after all others."""
_NAMES = (
    *("ino", "path", "run", "step", "rule", "reason", "files", "size"),
    *("dirty_files", "dirty_size", "complete_ns", "durable_ns", "evidence", "storage_class"),
    "grade",
)
_MANIFEST = (
    select(func.min(manifest.c.key))
    .where(
        manifest.c.ino == checkpoint.c.ino,
        manifest.c.evidence == checkpoint.c.evidence,
        manifest.c.etag.is_not(None),
    )
    .scalar_subquery()
)
ARCHIVED_COUNT = Statement(
    select(func.count()).where(
        checkpoint.c.storage_class.is_not(None),
        checkpoint.c.state == literal_column(f"'{State.DURABLE}'"),
    )
)
IS_MADE = Statement(select(catalogue.c.id))
PROMOTIONS = Statement(
    select(promotion.c.name).where(promotion.c.ino == b("ino")).order_by(promotion.c.name)
)
PAGE = 1000


class Sort(StrEnum):
    """The order of a list. All lists end with the inode, so that no two rows have one place."""

    RUN = "run"
    """Sorts by run, step and path. Those without a step are the last of their run."""
    COMPLETE = "complete"
    """Sorts by the time of completion. Those that are not complete count as the newest."""
    SIZE = "size"


_STEP = func.coalesce(checkpoint.c.step, _LAST)
_COMPLETE = func.coalesce(checkpoint.c.complete_ns, _LAST)
_KEYS: dict[Sort, tuple[Any, ...]] = {
    Sort.RUN: (checkpoint.c.run, _STEP, checkpoint.c.path, checkpoint.c.ino),
    Sort.COMPLETE: (_COMPLETE, checkpoint.c.ino),
    Sort.SIZE: (checkpoint.c.size, checkpoint.c.ino),
}
_KINDS: dict[Sort, tuple[type, ...]] = {
    Sort.RUN: (bytes, int, bytes, int),
    Sort.COMPLETE: (int, int),
    Sort.SIZE: (int, int),
}
Key = tuple[Any, ...]
"""The place of a row in a list."""


class Wanted(NamedTuple):
    """What a list has: all that is given must hold. None: any."""

    ino: int | None = None
    run: bytes | None = None
    state: str | None = None
    """One of ``CATALOGUED``."""
    rule: str | None = None
    text: bytes | None = None
    """Part of the path."""


class Row(NamedTuple):
    """A row of a list."""

    key: Key
    facts: dict[str, Any]


class _Contains(FunctionElement[bool]):
    """Whether bytes contain other bytes."""

    inherit_cache = True
    type = Boolean()


@compiles(_Contains, "sqlite")
def _(element: _Contains, compiler: Any, **how: Any) -> str:
    return f"instr({compiler.process(element.clauses, **how)}) > 0"


@compiles(_Contains, "postgresql")
def _(element: _Contains, compiler: Any, **how: Any) -> str:
    whole, part = (compiler.process(clause, **how) for clause in element.clauses)
    return f"position({part} in {whole}) > 0"


_CONDITIONS = {
    "ino": checkpoint.c.ino == b("ino"),
    "run": checkpoint.c.run == b("run"),
    "state": b("state") == SHOWN,
    "rule": checkpoint.c.rule == b("rule"),
    "text": _Contains(checkpoint.c.path, b("text")),
}


@cache
def _statement(
    sort: Sort, is_descending: bool, wanted: tuple[str, ...], is_first: bool
) -> Statement:
    """Return the statement of a page. Parameters: wanted, the names of the conditions; is_first,
    whether it is the first page."""
    columns = _KEYS[sort]
    # A place is compared as a row of values, so that an index can find it.
    place, after = tuple_(*columns), tuple_(*(b(f"after_{at}") for at in range(len(columns))))
    conditions = [_CONDITIONS[name] for name in wanted]
    if not is_first:
        conditions.append(place < after if is_descending else place > after)
    order = [column.desc() if is_descending else column for column in columns]
    # SQLite would find the manifest of every row before it sorts them.
    picked = select(checkpoint.c.ino).where(*conditions).order_by(*order).limit(b("most"))
    page = picked.subquery("page")
    return Statement(
        select(*columns, *(checkpoint.c[name] for name in _NAMES), SHOWN, _MANIFEST)
        .select_from(page.join(checkpoint, checkpoint.c.ino == page.c.ino))
        .order_by(*order)
    )


def page(
    session: Session,
    settings: Settings,
    most: int,
    *,
    wanted: Wanted = Wanted(),  # noqa: B008
    sort: Sort = Sort.RUN,
    is_descending: bool = False,
    after: Key | None = None,
    text: Text = printable,
) -> list[Row]:
    """Return the next checkpoints of a list.

    Parameters: most, of them; wanted; sort, with its direction; after, the key of the last row
    before; text, of names. Raises TryAgain.
    """
    given = {name: value for name, value in wanted._asdict().items() if value is not None}
    statement = _statement(sort, is_descending, tuple(given), after is None)
    places = {f"after_{at}": value for at, value in enumerate(after or ())}
    now_ns = clock.now_ns()
    count = len(_KEYS[sort])
    return [
        Row(tuple(row[:count]), _facts(settings, row[count:], now_ns, text))
        for row in session.all(statement, **given, **places, most=most)
    ]


def every(
    session: Session,
    settings: Settings,
    wanted: Wanted = Wanted(),  # noqa: B008
    sort: Sort = Sort.RUN,
    is_descending: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the facts about all checkpoints of a list, by run and step if nothing else is said.
    Raises TryAgain."""
    after = None
    how: dict[str, Any] = {"wanted": wanted, "sort": sort, "is_descending": is_descending}
    while rows := page(session, settings, PAGE, after=after, **how):
        yield from (row.facts for row in rows)
        after = rows[-1].key


def kinds_of(sort: Sort) -> tuple[type, ...]:
    """Return the types of the values of a key."""
    return _KINDS[sort]


def promotions(session: Session, ino: int) -> list[str]:
    """Return the names of the promotions of a checkpoint."""
    return [name for (name,) in session.all(PROMOTIONS, ino=ino)]


def members(
    settings: Settings, database: Database, ino: int, most: int, text: Text = printable
) -> list[dict[str, Any]]:
    """Return the first files of a checkpoint by name, as its manifest has them.

    Parameters: most, of them; text, of names. Raises TryAgain.
    """
    known = catalogue_of(settings, database)
    with known.viewing() as view:
        row = known.row(view, ino)
        if row is None:
            return []
        above = row.path.rpartition(b"/")[0] if row.extent == Extent.FILE else row.path
        each = rows.members(view.session, row, view.rules)
        return [
            {
                "name": text(one.path),
                "path": f"{settings.nfs.export}/{text(b'/'.join(filter(None, (above, one.path))))}",
                "size_bytes": one.size,
                "in_bucket": "other" if one.stored is None else "present",
            }
            for one in islice((one for one in each if one.kind == Kind.REGULAR), most)
        ]


def place(settings: Settings, path: bytes) -> str:
    """Return the address in the bucket of what has a path, as the tools of S3 take it."""
    parts = path.removeprefix(settings.nfs.export.encode()).strip(b"/").split(b"/")
    return f"s3://{settings.bucket.name}/{key_of(settings.bucket.prefix, parts)}"


def is_made(session: Session) -> bool:
    """Return whether the catalogue has all checkpoints."""
    return session.one(IS_MADE) is not None


def _facts(settings: Settings, row: Sequence[Any], now_ns: int, text: Text) -> dict[str, Any]:
    one = dict(zip((*_NAMES, "state", "manifest"), row, strict=True))
    one["run"] = text(bytes(one["run"]))
    one["path"] = f"{settings.nfs.export}/{text(bytes(one['path']))}"
    one["size_bytes"], one["dirty_bytes"] = one.pop("size"), one.pop("dirty_size")
    complete_ns = one["complete_ns"]
    age_ns = None if complete_ns is None else max(0, now_ns - complete_ns)
    one["age_seconds"] = None if age_ns is None else round(age_ns / clock.NS, 1)
    return one


def gather(settings: Settings, session: Session) -> dict[str, Any]:
    """Return the facts for ``spillway status``. Raises TryAgain."""
    found = summarize(session)
    ((archived,),) = session.all(ARCHIVED_COUNT)
    counts = dict.fromkeys(CATALOGUED, 0) | found.states | {ARCHIVED: archived}
    counts[State.DURABLE] -= archived
    facts = runs.facts_of(settings, found.risks)
    at_risk = sorted(
        (one for one in facts if one["at_risk_seconds"] or one["at_risk_bytes"]),
        key=lambda one: (one["alarm"] is None, -one["at_risk_seconds"]),
    )
    alarms = sum(one["alarm"] is not None for one in facts)
    return {
        "is_made": is_made(session),
        "runs": found.runs,
        "checkpoints": counts,
        "at_risk": at_risk,
        "alarms": alarms,
        "unrecognised": state.read(settings, state.UNRECOGNISED),
    }
