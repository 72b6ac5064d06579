"""The history of the figures of the dashboard."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from admin_api import sampling
from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.problems import Problem, describe
from admin_api.shapes import Moment
from gateway import clock
from gateway.control.records import HistoryTable

router = APIRouter(prefix="/history", tags=["history"])

STEPS_MAX = 2000
MINUTE = 60
HOUR_NS = 3600 * clock.NS
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)


@router.get("", responses=describe(422, 503))
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
        raise Problem(422, "from: it is not before `to`")
    if (to_ns - from_ns) // (step * clock.NS) > STEPS_MAX:
        raise Problem(422, f"step: that would be more than {STEPS_MAX} rows: make it longer")
    with gateway.store.reading() as session:
        return sampling.model(session, from_ns, to_ns, step)


def _ns(moment: datetime) -> int:
    return int(min(max(moment, _FIRST), _LAST).timestamp()) * clock.NS
