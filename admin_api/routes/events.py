"""Server-sent events: the progress of saves, jobs and checkpoints, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from admin_api.access import lasting
from admin_api.access.roles import Viewer
from admin_api.events.hub import LISTENERS_MAX, Crowded, Hub
from admin_api.gateway import Governed
from admin_api.problems import Problem, describe
from gateway import clock

router = APIRouter(prefix="/events", tags=["events"])

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
    found: Hub = request.app.state.hub
    return found


Hubbed = Annotated[Hub, Depends(_hub)]


@router.get(
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
            503, f"{LISTENERS_MAX} listen already: try again later", {"Retry-After": "30"}
        )
    events = _told(hub, last_event_id, lambda: lasting.lasts(gateway, request, viewer))
    return StreamingResponse(events, media_type="text/event-stream")


async def _told(
    hub: Hub, last_event_id: str | None, may_listen: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield events as they are sent, until the listener may not listen any more. A comment is sent
    if there was no event: proxies end silent connections."""
    yield "retry: 2000\n\n"
    with suppress(Crowded):
        async with hub.listening(last_event_id) as queue:
            check_at = clock.monotonic_seconds() + lasting.CHECK_SECONDS
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
                    check_at = clock.monotonic_seconds() + lasting.CHECK_SECONDS
