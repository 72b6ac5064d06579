"""The dashboard: what would be lost now, how fast it drains, and what a person must do."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.pages.render import page
from gateway import state
from gateway.checkpoints.risk import measure

router = APIRouter()


@router.get("/")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the dashboard."""
    with gateway.database.reading() as session:
        risks = measure(session)
    drain = state.read(gateway.settings, state.DRAIN)
    return page(request, "dashboard.html", who, risks=risks, drain=drain)
