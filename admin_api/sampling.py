"""Keeps the figures of the dashboard, a sample a minute, so that it shows yesterday's burst."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, insert, select

from admin_api.store import models
from gateway import clock
from gateway.control import alarms
from gateway.control.records import HistoryTable
from gateway.control.status import Status
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.door import statistics
from gateway.errors import DoorClosed
from gateway.settings import Settings

_sample: Any = models.Sample.__table__
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

    Parameters: settings; store; status, which returns the state of the gateway.
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
            max((one.at_risk_seconds for one in at_risk), default=0.0),
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
    found = {}
    for name, report, key in (
        ("sent", status.drain, "bytes"),
        ("fetched", status.cache.hydrator, "fetched_bytes"),
    ):
        total = None if report is None else report.counters.get(key)
        if report is not None and total is not None and report.alive:
            found[name] = _Count((report.pid, report.start_ticks), total)
    if status.processes["ganesha"].alive:
        try:
            told = statistics.read(settings)
            found["written"] = _Count(told.started_ns, told.operations["write"].bytes)
        except DoorClosed:
            pass  # it starts or stops: a rate is missing
    return found


def put(session: Session, sample: Sample) -> None:
    """Store a sample, inside a write transaction."""
    session.run(INSERT, **sample._asdict())


def steps(
    session: Session, from_ns: int, to_ns: int, step_ns: int, statement: Statement = STEPS
) -> list[Sample]:
    """Return the samples of a time by steps: means of rates, the most of what may be too much.

    Steps without a sample are missing: the gateway did not run then. Parameters: statement, STEPS
    or BURST.
    """
    rows = session.all(statement, from_ns=from_ns, to_ns=to_ns, step_ns=step_ns)
    return [Sample(from_ns + step * step_ns, *figures) for step, *figures in rows]


def model(session: Session, from_ns: int, to_ns: int, step_seconds: int) -> HistoryTable:
    """Return the figures of a time as a table, for people and scripts."""
    step_ns = step_seconds * clock.NS
    # Whole steps since 1970, so that two questions get the same rows.
    found = steps(session, from_ns - from_ns % step_ns, to_ns, step_ns)
    rows = [[one.at_ns // clock.NS, *one[1:]] for one in found]
    return HistoryTable(step_seconds, ["time", *FIGURES], rows)
