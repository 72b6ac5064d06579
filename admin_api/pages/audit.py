"""The audit log: who changed what, when and from where, and who was refused."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.pages.render import page
from admin_api.paging import cursor_of, key_of
from admin_api.store import audit

router = APIRouter(prefix="/audit")
ROWS = 50
DOCUMENTS = ("asked", "before", "after")


@router.get("")
def show(
    request: Request,
    gateway: Governed,
    who: Viewer,
    by: str = "",
    path: str = "",
    cursor: str | None = None,
) -> HTMLResponse:
    """Show a page of the log, the newest entries first."""
    key = key_of(cursor, int)
    with gateway.store.reading() as session:
        rows = audit.listed(
            session,
            most=ROWS + 1,
            who=by or None,
            path=path,
            below_id=None if key is None else key[0],
        )
    return page(
        request,
        "audit.html",
        who,
        found=[_facts(one) for one in rows[:ROWS]],
        next=cursor_of([rows[ROWS - 1].id]) if len(rows) > ROWS else None,
        is_first=cursor is None,
        by=by,
        path=path,
    )


def _facts(one: audit.Entry) -> dict[str, Any]:
    return {**one._asdict(), **{name: _pretty(getattr(one, name)) for name in DOCUMENTS}}


def _pretty(text: str | None) -> str | None:
    return None if text is None else json.dumps(json.loads(text), indent=2, ensure_ascii=False)
