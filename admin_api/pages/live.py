"""What the scripts of the pages ask for: the history of the figures, and news of what changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from admin_api import sampling
from admin_api.access import lasting
from admin_api.access.roles import Viewer
from admin_api.gateway import Gateway, Governed
from admin_api.store import models
from gateway import clock
from gateway.db.compiled import Statement
from gateway.errors import NamespaceError

router = APIRouter(prefix="/live")
POINTS = 600
"""The points of a chart."""
MINUTE_SECONDS = 60
MONTH_SECONDS = 31 * 86_400
LOOK_SECONDS = 1.0
QUIET_SECONDS = 15.0
"""Ages grow although nothing changes: the pages are told after so long."""
_job: Any = models.Job.__table__
JOBS = Statement(select(func.count(), func.max(_job.c.updated_ns)))


@router.get("/history")
def history(
    gateway: Governed, _who: Viewer, seconds: Annotated[int, Query(ge=60, le=MONTH_SECONDS)] = 3600
) -> list[list[float | None]]:
    """Return times and figures as columns: dirty, written per second, sent per second. Bytes."""
    now_ns, step_ns = clock.now_ns(), max(MINUTE_SECONDS, -(-seconds // POINTS)) * clock.NS
    with gateway.store.reading() as session:
        # One more: the sample of now must be in a step.
        from_ns = now_ns - seconds * clock.NS
        shown = sampling.steps(session, from_ns, now_ns + 1, step_ns, sampling.BURST)
    return [
        [round(one.at_ns / clock.NS) for one in shown],
        [one.dirty_bytes for one in shown],
        [one.written_bytes_per_second for one in shown],
        [one.sent_bytes_per_second for one in shown],
    ]


@router.get("/events")
async def events(request: Request, gateway: Governed, who: Viewer) -> StreamingResponse:
    """Stream news (server-sent events): ``status`` and ``job``, without what changed."""
    news = _news(gateway, lambda: lasting.lasts(gateway, request, who))
    return StreamingResponse(news, media_type="text/event-stream")


async def _news(gateway: Gateway, may_listen: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield news until the listener may not listen any more."""
    yield "retry: 2000\n\n"
    looks = {"status": _reports, "job": _jobs}
    seen: dict[str, object] = {}
    told_at = 0.0
    check_at = clock.monotonic_seconds() + lasting.CHECK_SECONDS
    while True:
        if (now := clock.monotonic_seconds()) >= check_at:
            if not await run_in_threadpool(may_listen):
                return
            check_at = now + lasting.CHECK_SECONDS
        for topic, look in looks.items():
            found = await run_in_threadpool(look, gateway)
            is_late = topic == "status" and now - told_at > QUIET_SECONDS
            if seen.get(topic) == found and not is_late:
                continue
            seen[topic] = found
            if topic == "status":
                told_at = now
            yield f"event: {topic}\ndata: {{}}\n\n"
        await asyncio.sleep(LOOK_SECONDS)


def _reports(gateway: Gateway) -> object:
    """Return what differs when a process of the gateway has reported something new."""
    found = []
    for path in sorted(gateway.settings.run_dir.glob("*.json")):
        with suppress(FileNotFoundError):
            found.append((path.name, path.stat().st_mtime_ns))
    return found


def _jobs(gateway: Gateway) -> object:
    try:
        with gateway.store.reading() as session:
            return session.one(JOBS)
    except NamespaceError:
        return None
