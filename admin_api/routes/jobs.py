"""Jobs: how far long work is, what it gave, and its end on request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from admin_api.access.roles import Operator, Viewer
from admin_api.calls import Call, Recorded
from admin_api.gateway import Governed
from admin_api.jobs import rows
from admin_api.jobs.runner import Working
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.problems import Problem, describe
from admin_api.shapes import INTEGER_MAX

router = APIRouter(prefix="/jobs", tags=["jobs"])

State = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]
JobId = Annotated[str, Path(pattern="^[0-9a-f]{16}$", examples=["0123456789abcdef"])]
_FIRST = (INTEGER_MAX, "~")


class Job(BaseModel):
    """Work that takes longer than a request may."""

    id: str = Field(examples=["0123456789abcdef"])
    kind: str = Field(examples=["evict"])
    arguments: dict[str, Any]
    state: State = Field(
        description="interrupted: the gateway was restarted, and the text says what to do."
    )
    done: int = Field(description="Names, files or bytes, as the text says.")
    total: int | None = Field(description="None: it is not known.")
    text: str = Field(examples=["1,024 files evicted"])
    asked_by: str
    request_id: str
    created_ns: int
    updated_ns: int
    ended_ns: int | None
    cancel_asked: bool
    result: dict[str, Any] | None = Field(description="Once it is done.")
    problem: dict[str, Any] | None = Field(description="status and detail, once it has failed.")


def job_of(row: rows.Row) -> Job:
    """Return a job as answers have it."""
    return Job(**rows.facts(row))


def accepted(response: Response, call: Call, row: rows.Row) -> Job:
    """Answer that a job was begun (202, with its address)."""
    call.after = {"job": row.id, "kind": row.kind, "arguments": rows.facts(row)["arguments"]}
    response.status_code = 202
    response.headers["Location"] = f"/api/v1/jobs/{row.id}"
    return job_of(row)


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
    before = _FIRST if key is None else (max(0, min(key[0], INTEGER_MAX)), key[1])
    with gateway.store.reading() as session:
        found = rows.page(session, limit + 1, before, state, kind)
    last = found[limit - 1] if len(found) > limit else None
    return Page(
        items=[job_of(row) for row in found[:limit]],
        next=None if last is None else cursor_of([last.created_ns, last.id]),
    )


@router.get("/{id}", responses=describe(404, 503))
def read_job(gateway: Governed, _viewer: Viewer, id: JobId) -> Job:
    """Read one job."""
    with gateway.store.reading() as session:
        row = rows.get(session, id)
    if row is None:
        raise Problem(404, f"there is no job {id}: old ones are forgotten")
    return job_of(row)


@router.post("/{id}/cancel", responses=describe(404, 409, 503))
def cancel_job(
    gateway: Governed, call: Recorded, _operator: Operator, runner: Working, id: JobId
) -> Job:
    """Make a job end. What it has done stays done. It may take a few seconds."""
    with gateway.store.reading() as session:
        before = rows.get(session, id)
    call.before = None if before is None else job_of(before)
    call.after = made = job_of(runner.cancel(id))
    return made
