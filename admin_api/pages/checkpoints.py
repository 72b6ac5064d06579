"""The checkpoints: by run, one, and what may be done with it."""

from __future__ import annotations

from itertools import groupby

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.pages.render import page
from gateway.checkpoints.catalogue import catalogue_of

router = APIRouter()


@router.get("/checkpoints")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the runs with their checkpoints."""
    rows = sorted(catalogue_of(gateway.settings, gateway.database).rows(), key=lambda row: row.run)
    runs = {run: list(group) for run, group in groupby(rows, key=lambda row: row.run)}
    return page(request, "checkpoints.html", who, runs=runs)
