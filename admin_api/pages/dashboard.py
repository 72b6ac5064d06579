"""Dashboard: what would be lost now, how fast it drains, and what a person must act on.

Its scripts ask here for the history of the figures, and for news of what changed. The checkpoints
of a run are drawn on a line of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse
from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from admin_api import dashboard, store
from admin_api.access import authentication
from admin_api.access.authentication import Viewer
from admin_api.dashboard import Figured
from admin_api.pages.render import page
from admin_api.requests import Governed, GovernedGateway
from gateway.catalogue.risk import measure
from gateway.common import clock
from gateway.common.errors import NamespaceError
from gateway.db.compiled import Statement
from gateway.service import checkpoints
from gateway.service.alarms import alarms_of
from gateway.service.checkpoints import Checkpoint
from gateway.service.reports import DrainReport, age_seconds
from gateway.service.status import Status

router = APIRouter()
RUNS_SHOWN = 12


@router.get("/")
def show(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the dashboard."""
    facts = figures.counted()
    with gateway.database.reading() as session:
        risks = checkpoints.models(
            gateway.settings, measure(session), checkpoints.waiting_bytes(session)
        )
    risks.sort(key=lambda risk: (risk.alarm is None, -risk.at_risk_seconds, risk.run))
    return page(
        request,
        "dashboard.html",
        who,
        facts=facts,
        alarms=alarms_of(facts),
        runs=risks[:RUNS_SHOWN],
        more_runs=max(0, len(risks) - RUNS_SHOWN),
        worst=risks[0] if risks and risks[0].at_risk_seconds else None,
        drain=_drain(facts),
    )


def _drain(gateway_status: Status) -> dict[str, Any]:
    """Return what the drain does now, also if it has not reported."""
    drain = gateway_status.drain
    report = drain if drain is not None and drain.alive else DrainReport(alive=False)
    rate = report.bytes_per_second or 0
    dirty_bytes = gateway_status.dirty.bytes
    return {
        "alive": report.alive,
        "bytes_per_second": rate,
        "eta_seconds": dirty_bytes / rate if rate and dirty_bytes else None,
        "uploads": report.uploads,
        "failing": report.failing or 0,
        "bucket": report.bucket,
        "bucket_seconds": age_seconds(report.bucket.since_ns),
        "requests_at_once": report.requests_at_once,
    }


live_router = APIRouter(prefix="/live")
POINTS = 600
"""The points of a chart."""
MINUTE_SECONDS = 60
MONTH_SECONDS = 31 * 86_400
LOOK_SECONDS = 1.0
QUIET_SECONDS = 15.0
"""Ages grow although nothing changes: the pages are told after so long."""
_job: Any = store.JobTable.__table__
JOBS = Statement(select(func.count(), func.max(_job.c.updated_ns)))


@live_router.get("/history")
def history(
    gateway: Governed, _who: Viewer, seconds: Annotated[int, Query(ge=60, le=MONTH_SECONDS)] = 3600
) -> list[list[float | None]]:
    """Return times and figures as columns: dirty, written per second, sent per second. Bytes."""
    now_ns, step_ns = clock.now_ns(), max(MINUTE_SECONDS, -(-seconds // POINTS)) * clock.NS
    with gateway.store.reading() as session:
        # One more: the sample of now must be in a step.
        from_ns = now_ns - seconds * clock.NS
        shown = dashboard.steps(session, from_ns, now_ns + 1, step_ns, dashboard.BURST)
    return [
        [round(sample.at_ns / clock.NS) for sample in shown],
        [sample.dirty_bytes for sample in shown],
        [sample.written_bytes_per_second for sample in shown],
        [sample.sent_bytes_per_second for sample in shown],
    ]


@live_router.get("/events")
async def events(request: Request, gateway: Governed, who: Viewer) -> StreamingResponse:
    """Stream news (server-sent events): ``status`` and ``job``, without what changed."""
    news = _news(gateway, lambda: authentication.lasts(gateway, request, who))
    return StreamingResponse(news, media_type="text/event-stream")


async def _news(gateway: GovernedGateway, may_listen: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield news until the listener may not listen any more."""
    yield "retry: 2000\n\n"
    looks = {"status": _reports, "job": _jobs}
    seen: dict[str, object] = {}
    told_at = 0.0
    check_at = clock.monotonic_seconds() + authentication.CHECK_SECONDS
    while True:
        if (now := clock.monotonic_seconds()) >= check_at:
            if not await run_in_threadpool(may_listen):
                return
            check_at = now + authentication.CHECK_SECONDS
        for topic, look in looks.items():
            run = await run_in_threadpool(look, gateway)
            is_late = topic == "status" and now - told_at > QUIET_SECONDS
            if seen.get(topic) == run and not is_late:
                continue
            seen[topic] = run
            if topic == "status":
                told_at = now
            yield f"event: {topic}\ndata: {{}}\n\n"
        await asyncio.sleep(LOOK_SECONDS)


def _reports(gateway: GovernedGateway) -> object:
    """Return what differs when a process of the gateway has reported something new."""
    reports = []
    for path in sorted(gateway.settings.run_dir.glob("*.json")):
        with suppress(FileNotFoundError):
            reports.append((path.name, path.stat().st_mtime_ns))
    return reports


def _jobs(gateway: GovernedGateway) -> object:
    try:
        with gateway.store.reading() as session:
            return session.one(JOBS)
    except NamespaceError:
        return None


MARGIN = 1.5
"""Per cent of the width that stay free at each end, so that no dot is cut."""


class TimelinePoint(NamedTuple):
    """A checkpoint on the line."""

    left: float
    """Per cent of the width."""
    checkpoint: Checkpoint


class RunLine(NamedTuple):
    """The dots of a run, the oldest first."""

    dots: Sequence[TimelinePoint]
    since_seconds: float
    """Age of the oldest one."""


def line_of(found: Sequence[Checkpoint]) -> RunLine:
    """Return the line of some checkpoints, from the oldest to now.

    What is being written is now.
    """
    ages = [checkpoint.age_seconds or 0.0 for checkpoint in found]
    longest = max(ages, default=0.0)
    span = 100 - 2 * MARGIN
    dots = [
        TimelinePoint(round(MARGIN + span * (1 - age / longest if longest else 1.0), 2), checkpoint)
        for age, checkpoint in zip(ages, found, strict=True)
    ]
    return RunLine(sorted(dots, key=lambda dot: dot.left), longest)
