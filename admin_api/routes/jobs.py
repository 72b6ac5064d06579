"""Jobs: how far long work is, what it gave, and its end on request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from admin_api.access.roles import Operator, Viewer
from admin_api.calls import Call, Recorded
from admin_api.gateway import Governed
from admin_api.jobs import rows
from admin_api.jobs.runner import Working
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.problems import describe
from admin_api.shapes import INTEGER_MAX
from gateway.control.jobs import Job, State

router = APIRouter(prefix="/jobs", tags=["jobs"])

JobId = Annotated[str, Path(pattern="^[0-9a-f]{16}$", examples=["0123456789abcdef"])]


def accepted(response: Response, call: Call, row: rows.Row) -> Job:
    """Answer that a job was begun (202, with its address)."""
    call.after = {"job": row.id, "kind": row.kind, "arguments": rows.model(row).arguments}
    response.status_code = 202
    response.headers["Location"] = f"/api/v1/jobs/{row.id}"
    return rows.model(row)


@router.get("", responses=describe(400, 503))
def list_jobs(
    gateway: Governed,
    _viewer: Viewer,
    state: State | None = None,
    kind: Annotated[str | None, Query(pattern="^[a-z_-]{1,64}$")] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[Job]:
    """List jobs, the newest first. Those that ended long ago are forgotten with the history."""
    key = key_of(cursor, int, str)
    before = rows.NEWEST if key is None else (max(0, min(key[0], INTEGER_MAX)), key[1])
    with gateway.store.reading() as session:
        found = rows.page(session, limit + 1, before, state, kind)
    last = found[limit - 1] if len(found) > limit else None
    return Page(
        items=[rows.model(row) for row in found[:limit]],
        next=None if last is None else cursor_of([last.created_ns, last.id]),
    )


@router.get("/{id}", responses=describe(404, 503))
def read_job(gateway: Governed, _viewer: Viewer, id: JobId) -> Job:
    """Read one job."""
    return rows.LocalJobs(gateway.store).get(id)


@router.post("/{id}/cancel", responses=describe(404, 409, 503))
def cancel_job(
    gateway: Governed, call: Recorded, _operator: Operator, runner: Working, id: JobId
) -> Job:
    """Make a job end. What it has done stays done. It may take a few seconds."""
    with gateway.store.reading() as session:
        before = rows.get(session, id)
    call.before = None if before is None else rows.model(before)
    call.after = made = rows.model(runner.cancel(id))
    return made
