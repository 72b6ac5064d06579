"""The gateway that is governed: what every route gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from admin_api.access.limiter import Limiter
from admin_api.access.tokens import Verifier
from admin_api.store import answers
from admin_api.store.opening import open_store
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
    verifier: Verifier
    noted_refusals: Limiter
    """Which refusals the audit gets."""
    noted_logins: Limiter
    """Which logins the audit gets, by token."""


REFUSALS = 100
REFUSALS_PER_SECOND = 0.1
"""The rows of refusals that the audit gets: at once, and then in a second."""
LOGINS = 20
LOGINS_PER_SECOND = 1 / 600
"""The rows of logins that the audit gets of one token: at once, and then in a second."""


def open_gateway(settings: Settings) -> Gateway:
    """Return the gateway with these settings. Raises UserError."""
    store = open_store(settings)
    with store.writing() as session:
        answers.interrupt(session)
    return Gateway(
        settings,
        Database(settings.database_url),
        store,
        Verifier(store),
        Limiter(REFUSALS, REFUSALS_PER_SECOND),
        Limiter(LOGINS, LOGINS_PER_SECOND),
    )


async def _gateway(request: Request) -> Gateway:
    found: Gateway = request.app.state.gateway
    return found


Governed = Annotated[Gateway, Depends(_gateway)]
"""The parameter of a route that needs the gateway."""
