"""Pages of activity: jobs, the audit log, and clients of the NFS server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api import audit
from admin_api.access.authentication import Operator, Viewer
from admin_api.audit import Recorded
from admin_api.jobs import rows
from admin_api.jobs.runner import Working
from admin_api.pages.render import Sent, after, page
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import INTEGER_MAX, Governed, cursor_of, key_of
from gateway.common.errors import ControlSocketClosed
from gateway.service import clients

router = APIRouter(prefix="/jobs")
ROWS = 50
FAILURES = 5
"""Those of a job that are shown."""
_LAST = (INTEGER_MAX, "~")


@router.get("")
def show_job(
    request: Request, gateway: Governed, who: Viewer, state: str = "", cursor: str | None = None
) -> HTMLResponse:
    """Show a page of the jobs, the newest first."""
    if state and state not in rows.STATES:
        raise Problem(
            ProblemCode.INVALID_REQUEST, f"there is no state {state}: choose one of the list"
        )
    key = key_of(cursor, int, str)
    place = _LAST if key is None else (key[0], key[1])
    with gateway.store.reading() as session:
        job_rows = rows.page(session, ROWS + 1, place, state or None)
    last = job_rows[ROWS - 1] if len(job_rows) > ROWS else None
    return page(
        request,
        "jobs.html",
        who,
        found=[_job_row(job_row) for job_row in job_rows[:ROWS]],
        next=None if last is None else cursor_of([last.created_ns, last.id]),
        is_first=cursor is None,
        state=state,
        states=rows.STATES,
    )


def _job_row(row: rows.JobRow) -> dict[str, Any]:
    share = min(1.0, row.done / row.total) if row.total else None
    result = json.loads(row.result) if row.result else {}
    failures = [*result.get("failures", []), *filter(None, [result.get("error")])]
    return {
        **row._asdict(),
        "share": share,
        "what": _what(json.loads(row.arguments)),
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


audit_router = APIRouter(prefix="/audit")
DOCUMENTS = ("asked", "before", "after")


@audit_router.get("")
def show_audit(
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
        found=[_call_row(row) for row in rows[:ROWS]],
        next=cursor_of([rows[ROWS - 1].id]) if len(rows) > ROWS else None,
        is_first=cursor is None,
        by=by,
        path=path,
    )


def _call_row(row: audit.AuditRow) -> dict[str, Any]:
    return {**row._asdict(), **{name: _pretty(getattr(row, name)) for name in DOCUMENTS}}


def _pretty(text: str | None) -> str | None:
    return None if text is None else json.dumps(json.loads(text), indent=2, ensure_ascii=False)


clients_router = APIRouter()


@clients_router.get("/clients")
def show_clients(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the clients that have a lease, and which of them share a name."""
    try:
        client_list = clients.gather(gateway.settings)
        names = client_list.shared_names
    except ControlSocketClosed:
        client_list, names = None, clients.gather_shared_names(gateway.settings)
    shared = [clients.shared_name_text(name) for name in names]
    remedy = clients.REMEDY
    return page(request, "clients.html", who, found=client_list, shared=shared, remedy=remedy)
