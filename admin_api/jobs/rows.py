"""Rows of jobs in the admin API's own database."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import func, insert, or_, select, tuple_, update

from admin_api.store import JobTable
from gateway.common.errors import UserError
from gateway.common.text import shown
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.service.jobs import Job, missing

WAITING, RUNNING, DONE = "waiting", "running", "done"
FAILED, CANCELLED, INTERRUPTED = "failed", "cancelled", "interrupted"
STATES = (WAITING, RUNNING, DONE, FAILED, CANCELLED, INTERRUPTED)

NEWEST = ((1 << 63) - 1, "~")
"""The place before the first page."""

_job: Any = JobTable.__table__
_UNENDED = _job.c.ended_ns.is_(None)
_SELECT = select(*_job.c)
_PAGE = (
    _SELECT.where(or_(b("state").is_(None), _job.c.state == b("state")))
    .where(or_(b("kind").is_(None), _job.c.kind == b("kind")))
    .where(tuple_(_job.c.created_ns, _job.c.id) < tuple_(b("before_ns"), b("before_id")))
    .order_by(_job.c.created_ns.desc(), _job.c.id.desc())
    .limit(b("most"))
)
INSERT = Statement(insert(_job))
GET = Statement(_SELECT.where(_job.c.id == b("id")))
PAGE = Statement(_PAGE)
LEFT = Statement(_SELECT.where(_UNENDED).order_by(_job.c.created_ns, _job.c.id))
COUNT = Statement(select(func.count()).where(_job.c.state == WAITING))
RUN = Statement(
    update(_job)
    .where(_job.c.id == b("the_id"), _UNENDED)
    .values(state=RUNNING, text=b("new_text"), updated_ns=b("now_ns"))
)
PROGRESS = Statement(
    update(_job)
    .where(_job.c.id == b("the_id"))
    .values(done=b("new_done"), total=b("new_total"), text=b("new_text"), updated_ns=b("now_ns"))
)
END = Statement(
    update(_job)
    .where(_job.c.id == b("the_id"), _UNENDED)
    .values(
        state=b("new_state"),
        text=b("new_text"),
        result=b("new_result"),
        problem=b("new_problem"),
        updated_ns=b("now_ns"),
        ended_ns=b("now_ns"),
    )
)
CANCEL = Statement(update(_job).where(_job.c.id == b("the_id"), _UNENDED).values(cancel_asked=1))


class JobRow(NamedTuple):
    """A row, in the order of ``admin_api.store.Job``."""

    id: str
    kind: str
    arguments: str
    state: str
    done: int
    total: int | None
    text: str
    asked_by: str
    token_id: str
    request_id: str
    created_ns: int
    updated_ns: int
    ended_ns: int | None
    cancel_asked: int
    result: str | None
    problem: str | None


def model(row: JobRow) -> Job:
    """Return what people and programs are told of a job."""
    columns = row._asdict()
    del columns["token_id"]
    for name in ("arguments", "result", "problem"):
        columns[name] = None if columns[name] is None else json.loads(columns[name])
    return Job(**{**columns, "cancel_asked": bool(row.cancel_asked)})


def get(session: Session, id: str) -> JobRow | None:
    """Return a job, or None."""
    row = session.one(GET, id=id)
    return None if row is None else JobRow(*row)


def page(
    session: Session,
    most: int,
    before: tuple[int, str],
    state: str | None = None,
    kind: str | None = None,
) -> list[JobRow]:
    """Return jobs, the newest first.

    Args:
        before: creation and id of the last one before.
        state, kind: those, or None for all.
    """
    before_ns, before_id = before
    rows = session.all(
        PAGE, most=most, before_ns=before_ns, before_id=before_id, state=state, kind=kind
    )
    return [JobRow(*row) for row in rows]


def left(session: Session) -> list[JobRow]:
    """Return the jobs that have not ended, the oldest first."""
    return [JobRow(*row) for row in session.all(LEFT)]


def waiting(session: Session) -> int:
    """Return the number of jobs that wait for their turn."""
    row = session.one(COUNT)
    return 0 if row is None else int(row[0])


class LocalJobs:
    """The jobs of this machine's gateway (``gateway.service.jobs.Jobs``).

    Args:
        store: the admin API's own database.
    """

    def __init__(self, store: Database) -> None:
        self._store = store

    def every(self, most: int, state: str | None = None, kind: str | None = None) -> list[Job]:
        with self._store.reading() as session:
            return [model(row) for row in page(session, most, NEWEST, state, kind)]

    def get(self, id: str) -> Job:
        with self._store.reading() as session:
            row = get(session, id)
        if row is None:
            raise missing(id)
        return model(row)

    def cancel(self, id: str) -> Job:
        raise UserError(
            "a job is ended by the admin API that runs it: spillway --gateway "
            f"http://127.0.0.1:8780 jobs cancel {shown(id)}"
        )
