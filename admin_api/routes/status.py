"""The state of the whole gateway."""

from __future__ import annotations

from fastapi import APIRouter

from admin_api.access.roles import Viewer
from admin_api.figures import Figured
from admin_api.problems import describe
from gateway.control.status import Status

router = APIRouter(prefix="/status", tags=["status"])


@router.get("", responses=describe(409, 503))
def read_status(figures: Figured, _viewer: Viewer) -> Status:
    """Read the state of the gateway, as it was a second ago at most.

    The bucket is asked, and files are counted, after the answer: what they said for the last time
    is in the next one.
    """
    return figures.status()
