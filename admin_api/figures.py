"""The figures of the gateway that several routes, pages and threads of this process want."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from admin_api.recent import Recent
from gateway.control import alarms, bucket, cached, retention, status
from gateway.control.bucket import Reachability
from gateway.control.cached import NOT_COUNTED, Counts
from gateway.control.reports import DrainReport
from gateway.control.status import Status
from gateway.db.engine import Database
from gateway.errors import SpillwayError, UserError
from gateway.retention.planning import Planned
from gateway.retention.store import Approval
from gateway.serialize import Model
from gateway.settings import Settings

log = logging.getLogger("admin")

STATUS_SECONDS = 1.0
COUNT_SECONDS = 5.0
PROBE_SECONDS = 10.0
PLAN_SECONDS = 30.0
PLAN_LATE_SECONDS = 30.0
"""A plan is a minute old at most: the catalogue's process plans as often."""
COUNT_SHARE = 0.003
"""The most of the time that is spent on counting files. Of a million it takes 0.4 s. With a tenth
of the time, nothing would be left of ``admin.busy_share`` for answers."""


@dataclass(frozen=True, slots=True)
class Summary(Model):
    """The figures that change while a save drains."""

    healthy: bool
    dirty_files: int
    dirty_bytes: int
    sent_bytes_per_second: int | None
    """None: the drain does not run."""
    uploads: int
    """Files that are being uploaded."""
    space_level: str | None
    headroom_bytes: int | None
    """Bytes until nothing more is accepted."""
    rpo_seconds: float
    """The age of the oldest work that is only here."""
    alarms: dict[str, int]
    """Each alarm that there is, with the number of things that it is about."""


class Figures:
    """The figures of one gateway. Safe to use from several threads.

    Parameters: settings; database, of the namespace.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._status = Recent(lambda: status.gather_quickly(settings, database), STATUS_SECONDS)
        self._counts = Recent(lambda: self._counted(database), COUNT_SECONDS, COUNT_SHARE)
        self._probe = Recent(bucket.Probe(settings).ask, PROBE_SECONDS)
        self._settings = settings
        self._database = database
        self._lock = threading.Lock()
        self._said: tuple[object, ...] = ()
        self._plan = self._planned()

    def status(self) -> Status:
        """Return the state of the gateway, at most a second old, unless it takes longer to get.

        What takes long is None before a thread has got it: whether the bucket is ``reachable``, and
        ``resident`` and ``absent`` of the ``cache``. Raises UserError, TryAgain.
        """
        found, probe = self.counted(), self._probe.ready()
        return found if probe is None else status.asked(found, probe)

    def counted(self) -> Status:
        """Return the same without the bucket, which is not asked. Raises as ``status`` does."""
        found = self.gathered()
        return status.counted(found, self._counts.ready() or NOT_COUNTED)

    def gathered(self) -> Status:
        """Return the same, also without the files that are counted: of a million it takes 0.4 s.
        Raises as ``status`` does."""
        return self._status.value()

    def summary(self) -> Summary:
        """Return the figures that change while a save drains. Raises as ``status`` does."""
        found = self.gathered()
        drain, space = found.drain or DrainReport(alive=False), found.space
        at_risk = found.catalogue.at_risk
        return Summary(
            healthy=found.healthy,
            dirty_files=found.dirty.files,
            dirty_bytes=found.dirty.bytes,
            sent_bytes_per_second=drain.bytes_per_second if drain.alive else None,
            uploads=len(drain.uploads) if drain.alive else 0,
            space_level=None if space is None else space.level,
            headroom_bytes=None if space is None else space.headroom_bytes,
            rpo_seconds=max((one.at_risk_seconds for one in at_risk), default=0.0),
            alarms={name: count for name, count in alarms.of(found).items() if count},
        )

    def probe(self) -> Reachability:
        """Return whether the bucket answers, as it was some seconds ago at most."""
        return self._probe.value()

    def plan(self) -> Planned:
        """Return the plan by the stored policies. It has all that people said by now, and what
        clients and the drain did until a minute ago at least. A plan of 10,000 checkpoints takes
        some tenths of a second, so the one before is returned while it is made. Raises UserError,
        TryAgain."""
        with self._database.reading() as session:
            said = retention.said(session)
        with self._lock:
            if said != self._said:
                self._said, self._plan = said, self._planned()
            plan = self._plan
        return plan.value()

    def approve(self, plan: str, author: str) -> Approval:
        """Approve a plan that is asked about. Raises as ``retention.approve`` does. The plan that
        was shown is forgotten then, because it may be the outdated one that the person approved.

        Parameters: plan, its id; author, the person.
        """
        try:
            return retention.approve(self._settings, self._database, plan, author)
        except UserError:
            with self._lock:
                self._plan = self._planned()
            raise

    def _planned(self) -> Recent[Planned]:
        def get() -> Planned:
            return retention.planned(self._settings, self._database, ())

        return Recent(get, PLAN_SECONDS, late_seconds=PLAN_LATE_SECONDS)

    @staticmethod
    def _counted(database: Database) -> Counts:
        try:
            with database.reading() as session:
                return cached.count(session)
        except SpillwayError as exc:
            log.warning("files are not counted: %s", exc)
            return NOT_COUNTED


async def _figures(request: Request) -> Figures:
    found: Figures = request.app.state.figures
    return found


Figured = Annotated[Figures, Depends(_figures)]
"""The parameter of a route that needs the figures."""
