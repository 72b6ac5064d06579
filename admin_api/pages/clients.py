"""The clients: who mounts, from where, and what each does."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.pages.render import page
from gateway.control import clients as control
from gateway.control import sharednames
from gateway.errors import DoorClosed

router = APIRouter()


@router.get("/clients")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the clients that have a lease, and which of them share a name."""
    try:
        found = control.gather(gateway.settings)
        names = found.shared_names
    except DoorClosed:
        found, names = None, sharednames.gather(gateway.settings)
    shared = [sharednames.text_of(one) for one in names]
    remedy = sharednames.REMEDY
    return page(request, "clients.html", who, found=found, shared=shared, remedy=remedy)
