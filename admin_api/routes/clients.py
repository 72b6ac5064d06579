"""The clients of the NFS server: who mounts, what each does, and who has a file open."""

from __future__ import annotations

from fastapi import APIRouter

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.paths import PathQuery
from admin_api.problems import describe
from gateway.control import clients
from gateway.control.clients import Clients, Opens

router = APIRouter(prefix="/clients", tags=["status"])


@router.get("", responses=describe(503))
def read_clients(gateway: Governed, _viewer: Viewer) -> Clients:
    """List the clients. A 503 says that no NFS server answers."""
    return clients.gather(gateway.settings)


@router.get("/opens", responses=describe(404, 409, 503))
def read_opens(gateway: Governed, _viewer: Viewer, path: PathQuery) -> Opens:
    """Read who has a file open, or files below a directory. A 503 says that no NFS server
    answers."""
    return clients.opens(gateway.settings, path)
