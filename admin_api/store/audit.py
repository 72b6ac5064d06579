"""The audit log: who changed what, when and from where, and who was refused."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import func, insert, select, update

from admin_api.store import models
from gateway import clock
from gateway.control.records import RecordedCall
from gateway.db.compiled import Session, Statement, b

_audit: Any = models.Audit.__table__

LAST = (1 << 63) - 1
"""The largest number that a column can have."""


class Origin(NamedTuple):
    """A call as the audit names it."""

    who: str
    """The name of the token, or of the user of a command. Empty if it is not known."""
    token_id: str | None
    address: str
    request_id: str
    method: str
    path: str
    asked: str | None = None
    """JSON: its parameters, without secrets."""


class Outcome(NamedTuple):
    """How a call ended."""

    status: int
    detail: str | None = None
    before: str | None = None
    """JSON."""
    after: str | None = None
    """JSON."""


class Entry(NamedTuple):
    """A row of ``audit``: see admin_api.store.models."""

    id: int
    at_ns: int
    who: str
    token_id: str | None
    address: str
    request_id: str
    method: str
    path: str
    status: int | None
    before: str | None
    after: str | None
    detail: str | None
    asked: str | None


_BEGIN = Statement(
    insert(_audit)
    .values({name: b(name) for name in ("at_ns", *Origin._fields)})
    .returning(_audit.c.id)
)
_COMPLETE = Statement(
    update(_audit)
    .where(_audit.c.id == b("entry"))
    .values({name: b(f"its_{name}") for name in Outcome._fields})
)
_LIST = (
    select(*(_audit.c[name] for name in Entry._fields))
    .where(
        _audit.c.id < b("below"),
        _audit.c.at_ns >= b("since"),
        _audit.c.at_ns < b("until"),
        func.substr(_audit.c.path, 1, func.length(b("below_path"))) == b("below_path"),
    )
    .order_by(_audit.c.id.desc())
    .limit(b("most"))
)
_ALL = Statement(_LIST)
_BY_WHO = Statement(_LIST.where((_audit.c.who == b("by")) | (_audit.c.token_id == b("by"))))


def begin(session: Session, origin: Origin) -> int:
    """Add a call that is about to begin. Returns the id of its entry."""
    row = session.one(_BEGIN, at_ns=clock.now_ns(), **origin._asdict())
    assert row is not None
    found: int = row[0]
    return found


def complete(session: Session, entry_id: int, outcome: Outcome) -> None:
    """Say how a call ended."""
    values = {f"its_{name}": value for name, value in outcome._asdict().items()}
    session.run(_COMPLETE, entry=entry_id, **values)


def add(session: Session, origin: Origin, outcome: Outcome) -> None:
    """Add a call that has ended."""
    complete(session, begin(session, origin), outcome)


def listed(
    session: Session,
    *,
    most: int,
    who: str | None = None,
    path: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    below_id: int | None = None,
) -> list[Entry]:
    """Return entries, the newest first.

    Parameters: most, how many at most; who, the name or the id of a token, or None for all; path,
    with which the paths begin; since and until, the first moment and the one after the last;
    below_id, the id that the entries are before.
    """
    values = {
        "below_path": path,
        "since": 0 if since is None else _stored(since),
        "until": LAST if until is None else _stored(until),
        "below": LAST if below_id is None else max(0, min(below_id, LAST)),
        "most": most,
    }
    if who is not None:
        return [Entry(*row) for row in session.all(_BY_WHO, **values, by=who)]
    return [Entry(*row) for row in session.all(_ALL, **values)]


def _stored(moment: datetime) -> int:
    """Return a moment as the column has it. One that it cannot have becomes the nearest one."""
    return max(0, min(int(moment.timestamp()) * clock.NS, LAST))


def model(entry: Entry) -> RecordedCall:
    """Return an entry as people and scripts see it."""
    found = entry._asdict()
    at = clock.iso(found.pop("at_ns"))
    for name in ("before", "after", "asked"):
        found[name] = None if found[name] is None else json.loads(found[name])
    return RecordedCall(at=at, **found)
