"""The configuration, to be read. It is changed in its file, and takes effect at the next start."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from gateway.control import configuration

router = APIRouter(prefix="/configuration", tags=["configuration"])


class Key(BaseModel):
    """One key of the configuration."""

    value: Any = Field(description="As it is in force. What may be a password is ***.")
    default: Any = Field(description="None: it has none.")
    doc: str
    variable: str = Field(
        description="The environment variable that overrides it.",
        examples=["SPILLWAY_DRAIN_WORKERS"],
    )
    is_overridden: bool = Field(description="Whether that variable is set in this process.")
    is_secret: bool = Field(description="Whether it may hold a password.")


class Configuration(BaseModel):
    """All keys, by section."""

    source: str = Field(examples=["/etc/spillway/spillway.toml"])
    sections: dict[str, dict[str, Key]]


@router.get("")
def read_configuration(gateway: Governed, _viewer: Viewer) -> Configuration:
    """Read the configuration, as this process read it when it started."""
    return Configuration(
        source=str(gateway.settings.source),
        sections=configuration.facts(gateway.settings),  # type: ignore[arg-type]
    )
