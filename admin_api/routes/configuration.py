"""The configuration, to be read. It is changed in its file, and takes effect at the next start."""

from __future__ import annotations

from fastapi import APIRouter

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from gateway.control import configuration
from gateway.control.configuration import Configuration

router = APIRouter(prefix="/configuration", tags=["configuration"])


@router.get("")
def read_configuration(gateway: Governed, _viewer: Viewer) -> Configuration:
    """Read the configuration, as this process read it when it started."""
    return configuration.model(gateway.settings)
