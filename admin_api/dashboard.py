"""Figures of the dashboard: now, by time, and kept for a while.

Several routes, pages and threads of this process want them. Figures that take long to get are kept
for a while, and one thread at a time gets them. A sample a minute is stored, so that the dashboard
shows yesterday's burst.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from fastapi import Depends, Request
from sqlalchemy import func, insert, select

from admin_api import store as models
from gateway.common import clock
from gateway.common.errors import ControlSocketClosed, SpillwayError, UserError
from gateway.common.models import Model
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.lifecycle.retention.planning import Planned
from gateway.lifecycle.retention.store import ApprovalRow
from gateway.rpc import statistics
from gateway.service import alarms, bucket, policies, status
from gateway.service.records import HistoryTable
from gateway.service.reports import DrainReport
from gateway.service.status import NOT_COUNTED, ResidencyCounts, Status

log = logging.getLogger("admin")

T = TypeVar("T")
SHARE = 0.1
"""The most of the time that is spent on getting facts."""
AFTER_SECONDS = 0.2
"""The answer of the request that found facts old comes before a thread gets new ones. Both at once
would share the interpreter, and the answer would take as long as the facts."""


class Recent(Generic[T]):
    """Some facts. Safe to use from several threads.

    Facts that may be late are not kept for longer than that.

    Args:
        get: gets them.
        keep_seconds: for how long they are kept at least.
        share: the most of the time that is spent on getting them: what takes long is kept for
            longer.
        late_seconds: for which they are still given after that, while a thread gets new ones.
    """

    def __init__(
        self,
        get: Callable[[], T],
        keep_seconds: float,
        share: float = SHARE,
        late_seconds: float = 0.0,
    ) -> None:
        self._get = get
        self._keep_seconds = keep_seconds
        self._late_seconds = late_seconds
        self._pause_ratio = 1 / share - 1
        self._lock = threading.Lock()
        self._found: T | None = None
        self._until = float("-inf")

    def value(self) -> T:
        """Return the facts. A caller that comes while they are got waits, unless there are some
        that may be late. Raises what ``get`` raises."""
        late = self._late()
        if late < self._late_seconds:
            value = self._given(late)
            assert value is not None, "only facts have a time until which they are kept"
            return value
        with self._lock:
            if self._found is not None and self._late() < 0:
                return self._found
            return self._renew()

    def ready(self) -> T | None:
        """Return the facts without a wait, or None if there are none yet. If they are old, a thread
        gets new ones."""
        return self._given(self._late())

    def _given(self, late: float) -> T | None:
        if late >= 0 and self._lock.acquire(blocking=False):
            thread = threading.Timer(AFTER_SECONDS, self._in_background)
            thread.daemon = True
            thread.start()
        return self._found

    def _in_background(self) -> None:
        try:
            self._renew()
        except SpillwayError as exc:
            log.warning("what is shown is %.0f s late: %s", max(0.0, self._late()), exc)
        finally:
            self._lock.release()

    def _late(self) -> float:
        """Return the seconds since the end of the time for which the facts are kept."""
        return clock.monotonic_seconds() - self._until

    def _renew(self) -> T:
        began = clock.monotonic_seconds()
        renew = self._get()
        now = clock.monotonic_seconds()
        kept = max(self._keep_seconds, self._pause_ratio * (now - began))
        if self._late_seconds:
            kept = min(kept, self._late_seconds)
        self._found, self._until = renew, now + kept
        return renew


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
class DashboardFigures(Model):
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

    Args:
        database: database of the namespace.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._status = Recent(lambda: status.gather_quickly(settings, database), STATUS_SECONDS)
        self._counts = Recent(lambda: self._counted(database), COUNT_SECONDS, COUNT_SHARE)
        self._probe = Recent(bucket.Probe(settings).ask, PROBE_SECONDS)
        self._settings = settings
        self._database = database
        self._lock = threading.Lock()
        self._plan_inputs: tuple[object, ...] = ()
        self._plan = self._planned()

    def status(self) -> Status:
        """Return the state of the gateway, at most a second old, unless it takes longer to get.

        What takes long is None before a thread has got it: whether the bucket is ``reachable``, and
        ``resident`` and ``absent`` of the ``cache``. Raises UserError, TryAgain.
        """
        gateway_status, probe = self.counted(), self._probe.ready()
        return gateway_status if probe is None else status.asked(gateway_status, probe)

    def counted(self) -> Status:
        """Return the same without the bucket, which is not asked. Raises as ``status`` does."""
        gateway_status = self.gathered()
        return status.counted(gateway_status, self._counts.ready() or NOT_COUNTED)

    def gathered(self) -> Status:
        """Return the same, also without the files that are counted: of a million it takes 0.4 s.
        Raises as ``status`` does."""
        return self._status.value()

    def summary(self) -> DashboardFigures:
        """Return the figures that change while a save drains. Raises as ``status`` does."""
        gateway_status = self.gathered()
        drain, space = gateway_status.drain or DrainReport(alive=False), gateway_status.space
        at_risk = gateway_status.catalogue.at_risk
        return DashboardFigures(
            healthy=gateway_status.healthy,
            dirty_files=gateway_status.dirty.files,
            dirty_bytes=gateway_status.dirty.bytes,
            sent_bytes_per_second=drain.bytes_per_second if drain.alive else None,
            uploads=len(drain.uploads) if drain.alive else 0,
            space_level=None if space is None else space.level,
            headroom_bytes=None if space is None else space.headroom_bytes,
            rpo_seconds=max((run.at_risk_seconds for run in at_risk), default=0.0),
            alarms={name: count for name, count in alarms.of(gateway_status).items() if count},
        )

    def plan(self) -> Planned:
        """Return the plan by the stored policies. It has all that people said by now, and what
        clients and the drain did until a minute ago at least. A plan of 10,000 checkpoints takes
        some tenths of a second, so the one before is returned while it is made. Raises UserError,
        TryAgain."""
        with self._database.reading() as session:
            plan_inputs = policies.plan_inputs(session)
        with self._lock:
            if plan_inputs != self._plan_inputs:
                self._plan_inputs, self._plan = plan_inputs, self._planned()
            plan = self._plan
        return plan.value()

    def approve(self, plan: str, author: str) -> ApprovalRow:
        """Approve a plan that is asked about. Raises as ``retention.approve`` does. The plan that
        was shown is forgotten then, because it may be the outdated one that the person approved.

        Args:
            plan: its id.
            author: the person.
        """
        try:
            return policies.approve(self._settings, self._database, plan, author)
        except UserError:
            with self._lock:
                self._plan = self._planned()
            raise

    def _planned(self) -> Recent[Planned]:
        def get() -> Planned:
            return policies.planned(self._settings, self._database, ())

        return Recent(get, PLAN_SECONDS, late_seconds=PLAN_LATE_SECONDS)

    @staticmethod
    def _counted(database: Database) -> ResidencyCounts:
        try:
            with database.reading() as session:
                return status.count(session)
        except SpillwayError as exc:
            log.warning("files are not counted: %s", exc)
            return NOT_COUNTED


async def _figures(request: Request) -> Figures:
    figures: Figures = request.app.state.figures
    return figures


Figured = Annotated[Figures, Depends(_figures)]
"""The parameter of a route that needs the figures."""


_sample: Any = models.SampleTable.__table__
INSERT = Statement(insert(_sample))


class Sample(NamedTuple):
    """The figures of one moment. None: it is not known."""

    at_ns: int
    dirty_bytes: int
    """Bytes that only this gateway has."""
    written_bytes_per_second: float | None
    """What clients wrote since the sample before."""
    sent_bytes_per_second: float | None
    """What was sent to the bucket since the sample before."""
    fetched_bytes_per_second: float | None = None
    """What was fetched from the bucket for files that were evicted."""
    dirty_limit_bytes: int | None = None
    headroom_bytes: int | None = None
    """What may still be written until nothing more is accepted."""
    disk_used_bytes: int | None = None
    disk_size_bytes: int | None = None
    rpo_seconds: float | None = None
    """The time at risk of the run that has the most at risk."""
    alarms: int | None = None
    """How many alarms there were."""


_STEP = ((_sample.c.at_ns - b("from_ns")) // b("step_ns")).label("step")
_MOST = ("dirty_bytes", "rpo_seconds", "alarms", "disk_used_bytes")
"""A step shows the largest value of these: a mean would hide the peak."""
_LEAST = ("headroom_bytes",)
FIGURES = Sample._fields[1:]


def _condensed(name: str) -> Any:
    value = _sample.c[name]
    if name in _MOST:
        return func.max(value)
    return func.min(value) if name in _LEAST else func.avg(value)


def _steps(names: Sequence[str]) -> Statement:
    return Statement(
        select(_STEP, *(_condensed(name).label(name) for name in names))
        .where(_sample.c.at_ns >= b("from_ns"), _sample.c.at_ns < b("to_ns"))
        .group_by(_STEP)
        .order_by(_STEP)
    )


STEPS = _steps(FIGURES)
BURST = _steps(FIGURES[:3])
"""Only what the chart of the dashboard shows: all figures of a month take twice as long."""


class _Count(NamedTuple):
    """A count that begins again with the process that counts."""

    who: Any
    """Another value: the count began again."""
    total: int


class Sampler:
    """Takes samples of one gateway.

    Args:
        status: returns the state of the gateway.
    """

    def __init__(self, settings: Settings, store: Database, status: Callable[[], Status]) -> None:
        self._settings = settings
        self._store = store
        self._status = status
        self._before: dict[str, _Count] = {}
        self._before_at = 0.0

    def take(self) -> None:
        """Store the figures of now. Raises UserError, NamespaceError, OSError."""
        status = self._status()
        rates = self._rates(_counts(self._settings, status))
        space, disk = status.space, status.disk
        at_risk = status.catalogue.at_risk
        sample = Sample(
            clock.now_ns(),
            status.dirty.bytes,
            rates.get("written"),
            rates.get("sent"),
            rates.get("fetched"),
            None if space is None else space.dirty_limit_bytes,
            None if space is None else space.headroom_bytes,
            disk.used_bytes,
            disk.total_bytes,
            max((run.at_risk_seconds for run in at_risk), default=0.0),
            sum(count > 0 for count in alarms.of(status).values()),
        )
        with self._store.writing() as session:
            put(session, sample)

    def _rates(self, counts: dict[str, _Count]) -> dict[str, float]:
        """Return how much each count grew in a second. A count that began again has no rate."""
        now = clock.monotonic_seconds()
        seconds, before = now - self._before_at, self._before
        self._before, self._before_at = counts, now
        return {
            name: round((count.total - before[name].total) / seconds, 1)
            for name, count in counts.items()
            if seconds > 0 and name in before and before[name].who == count.who
        }


def _counts(settings: Settings, status: Status) -> dict[str, _Count]:
    """Return the bytes so far: those that clients wrote, that were sent, that were fetched."""
    counts_by_name = {}
    for name, report, key in (
        ("sent", status.drain, "bytes"),
        ("fetched", status.cache.hydrator, "fetched_bytes"),
    ):
        total = None if report is None else report.counters.get(key)
        if report is not None and total is not None and report.alive:
            counts_by_name[name] = _Count((report.pid, report.start_ticks), total)
    if status.processes["ganesha"].alive:
        try:
            counts = statistics.read(settings)
            counts_by_name["written"] = _Count(counts.started_ns, counts.operations["write"].bytes)
        except ControlSocketClosed:
            pass  # it starts or stops: a rate is missing
    return counts_by_name


def put(session: Session, sample: Sample) -> None:
    """Store a sample, inside a write transaction."""
    session.run(INSERT, **sample._asdict())


def steps(
    session: Session, from_ns: int, to_ns: int, step_ns: int, statement: Statement = STEPS
) -> list[Sample]:
    """Return the samples of a time by steps: means of rates, the most of what may be too much.

    Steps without a sample are missing: the gateway did not run then.

    Args:
        statement: STEPS or BURST.
    """
    rows = session.all(statement, from_ns=from_ns, to_ns=to_ns, step_ns=step_ns)
    return [Sample(from_ns + step * step_ns, *figures) for step, *figures in rows]


def model(session: Session, from_ns: int, to_ns: int, step_seconds: int) -> HistoryTable:
    """Return the figures of a time as a table, for people and scripts."""
    step_ns = step_seconds * clock.NS
    # Whole steps since 1970, so that two questions get the same rows.
    samples = steps(session, from_ns - from_ns % step_ns, to_ns, step_ns)
    rows = [[clock.rfc3339(sample.at_ns), *sample[1:]] for sample in samples]
    return HistoryTable(step_seconds, ["time", *FIGURES], rows)
