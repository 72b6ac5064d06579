"""Page of the recovery: what would be lost now, and what brings the rest back."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from admin_api.access.authentication import Viewer
from admin_api.dashboard import Figured
from admin_api.pages.render import page
from admin_api.requests import Governed
from gateway.service import recovery

router = APIRouter()


@router.get("/recovery")
def show(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the page."""
    found = recovery.gather(gateway.settings, gateway.database, figures.gathered())
    return page(request, "recovery.html", who, facts=found)
