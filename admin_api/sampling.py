"""Keeps the figures of the dashboard, a sample a minute, so that it shows yesterday's burst."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import insert, select

from admin_api.store import models
from gateway import clock, state
from gateway.control import backlog
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.settings import Settings

_sample: Any = models.Sample.__table__
INSERT = Statement(insert(_sample))
SINCE = Statement(select(_sample).where(_sample.c.at_ns >= b("since")).order_by(_sample.c.at_ns))


class Sample(NamedTuple):
    """The figures of one moment. None: it is not known."""

    at_ns: int
    dirty_bytes: int
    """Bytes that only this gateway has."""
    written_bytes_per_second: float | None
    """By clients, since the sample before: what became dirty and what was sent meanwhile."""
    sent_bytes_per_second: float
    """To the bucket, in the last minute."""


class Sampler:
    """Takes samples of one gateway. Parameters: settings; store."""

    def __init__(self, settings: Settings, store: Database) -> None:
        self._settings = settings
        self._store = store
        self._before: tuple[float, int] | None = None

    def take(self) -> None:
        """Store the figures of now. Raises UserError, NamespaceError, OSError."""
        dirty_bytes = backlog.measure(self._settings).dirty_bytes
        report = state.read(self._settings, state.DRAIN)
        sent = float(report.get("bytes_per_second") or 0) if report and state.alive(report) else 0.0
        now = clock.monotonic_seconds()
        written = None
        if self._before is not None and now > self._before[0]:
            then, dirty_then = self._before
            # What is deleted before it was sent makes the difference too small.
            written = max(0.0, (dirty_bytes - dirty_then) / (now - then) + sent)
        self._before = now, dirty_bytes
        with self._store.writing() as session:
            put(session, Sample(clock.now_ns(), dirty_bytes, written, sent))


def put(session: Session, sample: Sample) -> None:
    """Store a sample, inside a write transaction."""
    figures = sample._asdict()
    session.run(INSERT, at_ns=figures.pop("at_ns"), figures=json.dumps(figures))


def since(session: Session, since_ns: int) -> list[Sample]:
    """Return the samples from a moment on, the oldest first."""
    return [Sample(at_ns, **json.loads(text)) for at_ns, text in session.all(SINCE, since=since_ns)]


def condensed(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Return as many samples as a chart can show: means of rates, the most of what was dirty."""
    count = -(-len(samples) // most) or 1
    groups = [samples[at : at + count] for at in range(0, len(samples), count)]
    return [_one_of(group) for group in groups]


def _one_of(group: Sequence[Sample]) -> Sample:
    written = [one.written_bytes_per_second for one in group]
    known = [one for one in written if one is not None]
    return Sample(
        group[-1].at_ns,
        max(one.dirty_bytes for one in group),
        sum(known) / len(known) if known else None,
        sum(one.sent_bytes_per_second for one in group) / len(group),
    )
