"""Routes of records: the audit log, the history of figures, and the configuration.

The configuration can only be read. It is changed in its file, and takes effect at the next start.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from admin_api import audit, dashboard
from admin_api.access.authentication import Viewer
from admin_api.problems import Problem, ProblemCode, describe
from admin_api.requests import LIMIT, Cursor, Governed, Limit, Moment, Page, cursor_of, key_of
from gateway.common import clock
from gateway.service import configuration
from gateway.service.configuration import Configuration
from gateway.service.records import HistoryTable, RecordedCall

router = APIRouter(prefix="/audit", tags=["audit"])


@router.get("")
def list_audit(
    gateway: Governed,
    _who: Viewer,
    who: Annotated[str | None, Query(max_length=1000, description="Name or id of a token.")] = None,
    path: Annotated[str, Query(max_length=4096, description="With which the path begins.")] = "",
    since: Annotated[Moment | None, Query(description="RFC 3339.")] = None,
    until: Annotated[Moment | None, Query(description="RFC 3339.")] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[RecordedCall]:
    """List the calls that changed something and the refusals, the newest first."""
    key = key_of(cursor, int)
    with gateway.store.reading() as session:
        rows = audit.listed(
            session,
            most=limit + 1,
            who=who,
            path=path,
            since=since,
            until=until,
            below_id=None if key is None else key[0],
        )
    page = [audit.model(row) for row in rows[:limit]]
    return Page(items=page, next=cursor_of([page[-1].id]) if len(rows) > limit else None)


history_router = APIRouter(prefix="/history", tags=["history"])

STEPS_MAX = 2000
MINUTE = 60
HOUR_NS = 3600 * clock.NS
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)


@history_router.get("", responses=describe(422, 503))
def read_history(
    gateway: Governed,
    _viewer: Viewer,
    since: Annotated[
        Moment | None, Query(alias="from", description="Default: an hour before `to`.")
    ] = None,
    until: Annotated[Moment | None, Query(alias="to", description="Default: now.")] = None,
    step: Annotated[int, Query(ge=MINUTE, le=31 * 86_400, description="Seconds.")] = MINUTE,
) -> HistoryTable:
    """Read the figures of the dashboard, of which a sample a minute is kept.

    Of rates a step has the mean, of what may be too much the most. Samples are kept for
    `admin.history_days`.
    """
    to_ns = clock.now_ns() if until is None else _ns(until)
    from_ns = to_ns - HOUR_NS if since is None else _ns(since)
    if to_ns <= from_ns:
        raise Problem(ProblemCode.INVALID_REQUEST, "from: it is not before `to`")
    if (to_ns - from_ns) // (step * clock.NS) > STEPS_MAX:
        raise Problem(
            ProblemCode.INVALID_REQUEST,
            f"step: that would be more than {STEPS_MAX} rows: make it longer",
        )
    with gateway.store.reading() as session:
        return dashboard.model(session, from_ns, to_ns, step)


def _ns(moment: datetime) -> int:
    return int(min(max(moment, _FIRST), _LAST).timestamp()) * clock.NS


configuration_router = APIRouter(prefix="/configuration", tags=["configuration"])


@configuration_router.get("")
def read_configuration(gateway: Governed, _viewer: Viewer) -> Configuration:
    """Read the configuration, as this process read it when it started."""
    return configuration.model(gateway.settings)
