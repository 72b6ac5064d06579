"""Whether the admin API lives, and whether the gateway can be governed. Both need no token."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from admin_api.apart import Apart
from admin_api.gateway import Governed
from admin_api.problems import describe
from gateway.db import schema

router = APIRouter(prefix="/health", tags=["health"])


class Health(BaseModel):
    """An answer of a health check."""

    status: str = Field(examples=["ok"])


@router.get("/live")
async def live() -> Health:
    """Answer as long as this process can answer at all."""
    return Health(status="ok")


@router.get("/ready", responses=describe(409, 503))
async def ready(gateway: Governed, apart: Apart) -> Health:
    """Answer once the database of the namespace can be used."""
    await apart.probe(schema.require_current, gateway.database)
    return Health(status="ok")
