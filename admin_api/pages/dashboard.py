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
from gateway.control.status import Status
from gateway.escapes import text_of

router = APIRouter()
RUNS_SHOWN = 12


@router.get("/")
def show(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the dashboard."""
    found = figures.status()
    with gateway.database.reading() as session:
        risks = runs.models(gateway.settings, measure(session), text_of)
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
    report = found.drain if found.drain is not None and found.drain["alive"] else {}
    rate = report.get("bytes_per_second") or 0
    dirty_bytes = found.dirty.bytes
    return {
        "alive": bool(report),
        "bytes_per_second": rate,
        "eta_seconds": dirty_bytes / rate if rate and dirty_bytes else None,
        "uploads": report.get("uploads", []),
        "failing": report.get("failing", 0),
        "bucket": status.part(report, "bucket"),
        "bucket_seconds": status.age_seconds(status.part(report, "bucket").get("since_ns")),
        "requests_at_once": report.get("requests_at_once"),
    }
