"""The audit log: who changed what, and who was refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.shapes import Moment
from admin_api.store import audit
from gateway.serialize import values_of

router = APIRouter(prefix="/audit", tags=["audit"])


class AuditEntry(BaseModel):
    """A call that changes something, or a refusal."""

    id: int
    at: datetime
    who: str = Field(examples=["ci"])
    """The name of the token, or the user of a command. Empty: a token that is not known."""
    token_id: str | None = Field(examples=["0123456789ab"])
    address: str = Field(examples=["10.0.0.7"])
    """The client's address. Empty: a command on the gateway."""
    request_id: str
    method: str = Field(examples=["DELETE"])
    """COMMAND: a command on the gateway."""
    path: str = Field(examples=["/api/v1/tokens/0123456789ab"])
    status: int | None
    """None: it is under way, or the admin API ended meanwhile."""
    asked: Any = None
    """The parameters of the call, without secrets: of its query and its body."""
    before: Any = None
    """What was changed, as it was."""
    after: Any = None
    """What was changed, as it was then."""
    detail: str | None = None
    """Why it failed or was refused."""


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
) -> Page[AuditEntry]:
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
    page = [AuditEntry(**values_of(audit.model(one))) for one in found[:limit]]
    return Page(items=page, next=cursor_of([page[-1].id]) if len(found) > limit else None)
