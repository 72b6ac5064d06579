"""Routes of jobs (progress, result, end on request), and the stream of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from admin_api.access import authentication
from admin_api.access.authentication import Operator, Viewer
from admin_api.audit import Recorded, RequestRecord
from admin_api.events import LISTENERS_MAX, Crowded, Hub
from admin_api.jobs import rows
from admin_api.jobs.runner import Working
from admin_api.problems import Problem, ProblemCode, describe
from admin_api.requests import INTEGER_MAX, LIMIT, Cursor, Governed, Limit, Page, cursor_of, key_of
from gateway.common import clock
from gateway.service.jobs import Job, State

router = APIRouter(prefix="/jobs", tags=["jobs"])

JobId = Annotated[str, Path(pattern="^[0-9a-f]{16}$", examples=["0123456789abcdef"])]


def accepted(response: Response, call: RequestRecord, row: rows.JobRow) -> Job:
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
        job_rows = rows.page(session, limit + 1, before, state, kind)
    last = job_rows[limit - 1] if len(job_rows) > limit else None
    return Page(
        items=[rows.model(row) for row in job_rows[:limit]],
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


events_router = APIRouter(prefix="/events", tags=["events"])

_CONTENT = {
    # Of one event: OpenAPI cannot say that a stream has many.
    "schema": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "event": {"enum": ["status", "job", "checkpoint", "checkpoints", "reset"]},
            "data": {"type": "string", "contentMediaType": "application/json"},
        },
    },
    "example": {
        "id": "5f0c61b2-7",
        "event": "checkpoint",
        "data": '{"ino": 4711, "path": "/checkpoints/jobs/a/step-1", "state": "durable"}',
    },
}


async def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub


Hubbed = Annotated[Hub, Depends(_hub)]


@events_router.get(
    "",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": _CONTENT}},
        **describe(503),
    },
)
async def stream_events(
    request: Request,
    gateway: Governed,
    hub: Hubbed,
    viewer: Viewer,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> StreamingResponse:
    """Stream events (`text/event-stream`) until the token or the session ends.

    `status`: the state of the gateway, when it has changed, once a second at most. `job`: a job
    that changed. `checkpoint`: a checkpoint that changed, with the state `gone` if it is gone.
    `checkpoints`: many changed, so read the list again. `reset`: events were missed, so read
    everything again. A client that comes back sends `Last-Event-ID`, as browsers do by themselves.
    """
    if hub.is_crowded:
        raise Problem(
            ProblemCode.EVENT_STREAM_LIMIT,
            f"{LISTENERS_MAX} listen already: try again later",
            {"Retry-After": "30"},
        )
    events = _events(hub, last_event_id, lambda: authentication.lasts(gateway, request, viewer))
    return StreamingResponse(events, media_type="text/event-stream")


async def _events(
    hub: Hub, last_event_id: str | None, may_listen: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield events as they are sent, until the listener may not listen any more. A comment is sent
    if there was no event: proxies end silent connections."""
    yield "retry: 2000\n\n"
    with suppress(Crowded):
        async with hub.listening(last_event_id) as queue:
            check_at = clock.monotonic_seconds() + authentication.CHECK_SECONDS
            while True:
                event = None
                left_seconds = check_at - clock.monotonic_seconds()
                with suppress(TimeoutError):
                    event = await asyncio.wait_for(queue.get(), max(0.0, left_seconds))
                    if event is None:
                        return
                    yield event.encoded()
                if clock.monotonic_seconds() >= check_at:
                    if not await run_in_threadpool(may_listen):
                        return
                    if event is None:
                        yield ": still here\n\n"
                    check_at = clock.monotonic_seconds() + authentication.CHECK_SECONDS
