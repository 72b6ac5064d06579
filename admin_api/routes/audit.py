"""The audit log: who changed what, and who was refused."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.shapes import Moment
from admin_api.store import audit
from gateway.control.records import RecordedCall

router = APIRouter(prefix="/audit", tags=["audit"])


@router.get("")
def entries(
    gateway: Governed,
    _who: Viewer,
    who: Annotated[str | None, Query(max_length=1000, description="Name or id of a token.")] = None,
    path: Annotated[str, Query(max_length=4096, description="With which the path begins.")] = "",
    since: Annotated[Moment | None, Query(description="ISO 8601.")] = None,
    until: Annotated[Moment | None, Query(description="ISO 8601.")] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[RecordedCall]:
    """List the calls that changed something and the refusals, the newest first."""
    key = key_of(cursor, int)
    with gateway.store.reading() as session:
        found = audit.listed(
            session,
            most=limit + 1,
            who=who,
            path=path,
            since=since,
            until=until,
            below_id=None if key is None else key[0],
        )
    page = [audit.model(one) for one in found[:limit]]
    return Page(items=page, next=cursor_of([page[-1].id]) if len(found) > limit else None)
