"""The figures of the gateway that several routes, pages and threads of this process want."""

from __future__ import annotations

import logging
import threading
from typing import Annotated, Any

from fastapi import Depends, Request

from admin_api.recent import Recent
from gateway.control import alarms, bucket, cached, retention, status
from gateway.db.engine import Database
from gateway.errors import GatewayError
from gateway.retention.planning import Planned
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
        self._settings = settings
        self._database = database
        self._lock = threading.Lock()
        self._said: tuple[object, ...] = ()
        self._plan = self._planned()

    def status(self) -> dict[str, Any]:
        """Return the state of the gateway, at most a second old, unless it takes longer to get.

        ``cache`` has ``resident`` and ``absent``, or None for them before they are counted. Raises
        UserError, TryAgain.
        """
        found = self._status.value()
        counts = self._counts.ready() or {"resident": None, "absent": None}
        return {**found, "cache": {**found["cache"], **counts}}

    def summary(self) -> dict[str, Any]:
        """Return the figures that change while a save drains. Raises as ``status`` does."""
        found = self._status.value()
        drain, space = found["drain"] or {}, found["space"] or {}
        at_risk = found["catalogue"]["at_risk"]
        return {
            "healthy": found["healthy"],
            "dirty_files": found["dirty"]["files"],
            "dirty_bytes": found["dirty"]["bytes"],
            "sent_bytes_per_second": drain.get("bytes_per_second") if drain.get("alive") else None,
            "uploads": len(drain.get("uploads") or ()) if drain.get("alive") else 0,
            "space_level": space.get("level"),
            "headroom_bytes": space.get("headroom_bytes"),
            "rpo_seconds": max((one["at_risk_seconds"] for one in at_risk), default=0.0),
            "alarms": {name: count for name, count in alarms.of(found).items() if count},
        }

    def probe(self) -> dict[str, Any]:
        """Return whether the bucket answers, as it was some seconds ago at most."""
        return self._probe.value()

    def plan(self) -> Planned:
        """Return the plan by the stored policies. It has all that people said by now, and what
        clients and the drain did until some moments ago: a plan of 10,000 checkpoints takes a
        seventh of a second. Raises UserError, TryAgain."""
        with self._database.reading() as session:
            said = retention.said(session)
        with self._lock:
            if said != self._said:
                self._said, self._plan = said, self._planned()
            plan = self._plan
        return plan.value()

    def _planned(self) -> Recent[Planned]:
        return Recent(lambda: retention.planned(self._settings, self._database, ()), 0.0)

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
