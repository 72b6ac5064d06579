"""What the NFS server was asked since its start, and how long that took."""

from __future__ import annotations

from fastapi import APIRouter

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.problems import describe
from gateway.door import statistics
from gateway.door.statistics import Statistics

router = APIRouter(prefix="/statistics", tags=["status"])


@router.get("", responses=describe(503))
def read_statistics(gateway: Governed, _viewer: Viewer) -> Statistics:
    """Read the counts. A 503 says that no NFS server answers."""
    return statistics.read(gateway.settings)
