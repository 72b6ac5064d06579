"""The figures of the gateway that several routes, pages and threads of this process want."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import Depends, Request

from admin_api.recent import Recent
from gateway.control import bucket, cached, status
from gateway.db.engine import Database
from gateway.errors import GatewayError
from gateway.settings import Settings

log = logging.getLogger("admin")

STATUS_SECONDS = 1.0
COUNT_SECONDS = 15.0
PROBE_SECONDS = 10.0


class Figures:
    """The figures of one gateway. Safe to use from several threads.

    Parameters: settings; database, of the namespace.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._status = Recent(lambda: status.gather_quickly(settings), STATUS_SECONDS)
        self._counts = Recent(lambda: self._counted(database), COUNT_SECONDS)
        self._probe = Recent(lambda: bucket.probe(settings), PROBE_SECONDS)

    def status(self) -> dict[str, Any]:
        """Return the state of the gateway, at most a second old, unless it takes longer to get.

        ``cache`` has ``resident`` and ``absent``, or None for them before they are counted. Raises
        UserError, TryAgain.
        """
        found = self._status.value()
        counts = self._counts.ready() or {"resident": None, "absent": None}
        return {**found, "cache": {**found["cache"], **counts}}

    def probe(self) -> dict[str, Any]:
        """Return whether the bucket answers, as it was some seconds ago at most."""
        return self._probe.value()

    @staticmethod
    def _counted(database: Database) -> dict[str, Any]:
        try:
            return cached.count(database)
        except GatewayError as exc:
            log.warning("files are not counted: %s", exc)
            return {"resident": None, "absent": None}


def _figures(request: Request) -> Figures:
    found: Figures = request.app.state.figures
    return found


Figured = Annotated[Figures, Depends(_figures)]
"""The parameter of a route that needs the figures."""
