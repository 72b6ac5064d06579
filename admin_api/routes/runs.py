"""Runs, and what each would lose if this gateway were lost now."""

from __future__ import annotations

from fastapi import APIRouter

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.problems import describe
from admin_api.shapes import RunQuery
from gateway.checkpoints.risk import measure
from gateway.control import runs
from gateway.control.runs import Run
from gateway.escapes import bytes_of, text_of

router = APIRouter(prefix="/runs", tags=["checkpoints"])


@router.get("", responses=describe(400, 503))
def list_runs(
    gateway: Governed,
    _viewer: Viewer,
    run: RunQuery = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[Run]:
    """List the runs by name, each with its recovery point."""
    key = key_of(cursor, str)
    after = None if key is None else bytes_of(key[0])
    with gateway.database.reading() as session:
        found = measure(session)
    if run is not None:
        found = [one for one in found if one.run == bytes_of(run)]
    rest = [one for one in found if after is None or one.run > after]
    shown = rest[:limit]
    return Page(
        items=runs.models(gateway.settings, shown),
        next=cursor_of([text_of(shown[-1].run)]) if len(rest) > limit else None,
    )
