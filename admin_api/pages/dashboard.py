"""The dashboard: what would be lost now, how fast it drains, and what a person must do."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from admin_api.access.roles import Viewer
from admin_api.figures import Figured
from admin_api.gateway import Governed
from admin_api.pages.alarms import alarms_of
from admin_api.pages.render import page
from gateway.checkpoints.risk import measure
from gateway.control import runs, status
from gateway.control.reports import DrainReport
from gateway.control.status import Status

router = APIRouter()
RUNS_SHOWN = 12


@router.get("/")
def show(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the dashboard."""
    found = figures.counted()
    with gateway.database.reading() as session:
        risks = runs.models(gateway.settings, measure(session))
    risks.sort(key=lambda one: (one.alarm is None, -one.at_risk_seconds, one.run))
    return page(
        request,
        "dashboard.html",
        who,
        facts=found,
        alarms=alarms_of(found),
        runs=risks[:RUNS_SHOWN],
        more_runs=max(0, len(risks) - RUNS_SHOWN),
        worst=risks[0] if risks and risks[0].at_risk_seconds else None,
        drain=_drain(found),
    )


def _drain(found: Status) -> dict[str, Any]:
    """Return what the drain does now, also if it has not reported."""
    drain = found.drain
    report = drain if drain is not None and drain.alive else DrainReport(alive=False)
    rate = report.bytes_per_second or 0
    dirty_bytes = found.dirty.bytes
    return {
        "alive": report.alive,
        "bytes_per_second": rate,
        "eta_seconds": dirty_bytes / rate if rate and dirty_bytes else None,
        "uploads": report.uploads,
        "failing": report.failing or 0,
        "bucket": report.bucket,
        "bucket_seconds": status.age_seconds(report.bucket.since_ns),
        "requests_at_once": report.requests_at_once,
    }
