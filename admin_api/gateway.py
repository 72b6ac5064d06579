"""The gateway that is governed: what every route gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from gateway.db.engine import Database
from gateway.settings import Settings


@dataclass(frozen=True)
class Gateway:
    """One gateway, for the life of the process.

    It lives in ``app.state.gateway``. Routes open a transaction of a database with ``reading()`` or
    ``writing()`` and keep it no longer than they need.
    """

    settings: Settings
    database: Database
    """The namespace."""
    store: Database
    """The admin API's own database (admin_api.store)."""


def _gateway(request: Request) -> Gateway:
    found: Gateway = request.app.state.gateway
    return found


Governed = Annotated[Gateway, Depends(_gateway)]
"""The parameter of a route that needs the gateway."""
