"""The jobs: work that takes longer than a request may."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.roles import Operator, Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Governed
from admin_api.jobs import rows
from admin_api.jobs.runner import Working
from admin_api.pages.flash import after
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent
from admin_api.paging import cursor_of, key_of
from admin_api.problems import Problem
from admin_api.shapes import INTEGER_MAX

router = APIRouter(prefix="/jobs")
ROWS = 50
FAILURES = 5
"""Those of a job that are shown."""
_LAST = (INTEGER_MAX, "~")


@router.get("")
def show(
    request: Request, gateway: Governed, who: Viewer, state: str = "", cursor: str | None = None
) -> HTMLResponse:
    """Show a page of the jobs, the newest first."""
    if state and state not in rows.STATES:
        raise Problem(422, f"there is no state {state}: choose one of the list")
    key = key_of(cursor, int, str)
    place = _LAST if key is None else (key[0], key[1])
    with gateway.store.reading() as session:
        found = rows.page(session, ROWS + 1, place, state or None)
    last = found[ROWS - 1] if len(found) > ROWS else None
    return page(
        request,
        "jobs.html",
        who,
        found=[_facts(one) for one in found[:ROWS]],
        next=None if last is None else cursor_of([last.created_ns, last.id]),
        is_first=cursor is None,
        state=state,
        states=rows.STATES,
    )


def _facts(one: rows.Row) -> dict[str, Any]:
    share = min(1.0, one.done / one.total) if one.total else None
    result = json.loads(one.result) if one.result else {}
    failures = [*result.get("failures", []), *filter(None, [result.get("error")])]
    return {
        **one._asdict(),
        "share": share,
        "what": _what(json.loads(one.arguments)),
        "failures": failures[:FAILURES],
        "more_failures": len(failures[FAILURES:]),
    }


def _what(arguments: Mapping[str, Any]) -> str:
    """Return what a job is about: paths, ids of the trash, or all of it."""
    if "ids" in arguments:
        ids = arguments["ids"]
        return "everything in the trash" if ids is None else ", ".join(ids)
    return ", ".join(arguments.get("paths", []))


@router.post("/{job_id}/cancel")
def cancel(
    call: Recorded, runner: Working, _who: Operator, job_id: str, _sent: Sent
) -> RedirectResponse:
    """Make a job end."""
    row = runner.cancel(job_id)
    call.after = {"job": row.id, "kind": row.kind, "state": row.state}
    return after("/jobs", "ok", "The job ends. What it has done stays done.")
