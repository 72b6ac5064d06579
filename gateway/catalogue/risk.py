"""Recovery points: what each run would lose with this gateway now, and counts of checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import and_, func, literal_column, select

from gateway.catalogue.facts import CheckpointState
from gateway.common import clock
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import checkpoint, checkpoint_record

_WHOLE = (CheckpointState.COMPLETE, CheckpointState.DRAINING, CheckpointState.DURABLE)
_newest: Any = (
    select(
        checkpoint.c.run,
        checkpoint.c.state,
        func.count().label("count"),
        func.max(checkpoint.c.complete_ns).label("complete_ns"),
        func.max(checkpoint_record.c.completion).label("completion"),
    )
    .select_from(
        checkpoint.outerjoin(checkpoint_record, checkpoint_record.c.ino == checkpoint.c.ino)
    )
    .group_by(checkpoint.c.run, checkpoint.c.state)
    .subquery("newest")
)
# The index of run, state and complete_ns has all that is grouped of a checkpoint, in that order.
NEWEST = Statement(
    select(
        _newest.c.run,
        _newest.c.state,
        _newest.c.count,
        _newest.c.completion,
        _newest.c.complete_ns,
        checkpoint.c.step,
        checkpoint.c.path,
        checkpoint.c.complete_ns,
    ).select_from(
        _newest.outerjoin(
            checkpoint_record,
            and_(
                checkpoint_record.c.run == _newest.c.run,
                checkpoint_record.c.completion == _newest.c.completion,
            ),
        ).outerjoin(
            checkpoint,
            and_(
                checkpoint.c.ino == checkpoint_record.c.ino, checkpoint.c.state == _newest.c.state
            ),
        )
    )
)
"""Selects of each run and state the number of checkpoints, and the newest that was complete."""
LAST = Statement(
    select(checkpoint.c.step, checkpoint.c.path)
    .where(
        checkpoint.c.run == b("run"),
        checkpoint.c.state == b("state"),
        checkpoint.c.complete_ns == b("complete_ns"),
    )
    .order_by(checkpoint.c.ino.desc())
    .limit(1)
)
"""Selects the newest by time, where none has its place in the order of its run yet."""
DIRTY = Statement(
    select(
        checkpoint.c.run,
        checkpoint.c.state,
        checkpoint.c.dirty_size,
        checkpoint.c.dirty_since_ns,
        checkpoint.c.complete_ns,
        checkpoint_record.c.completion,
    )
    .select_from(
        checkpoint.outerjoin(checkpoint_record, checkpoint_record.c.ino == checkpoint.c.ino)
    )
    .where(checkpoint.c.dirty_files > literal_column("0"))
)
"""Selects the checkpoints of which the bucket lacks files."""


class Newest(NamedTuple):
    """The newest checkpoint of a kind: the one that was complete last."""

    path: bytes
    step: int | None
    complete_ns: int
    completion: int | None
    """Its place in the order of its run. None: it has none yet, so any other one counts as
    newer."""

    @property
    def place(self) -> tuple[int, int]:
        return (-1 if self.completion is None else self.completion, self.complete_ns)


class Risk(NamedTuple):
    """What a run would lose with this gateway."""

    run: bytes
    complete: Newest | None
    durable: Newest | None
    seconds: float
    """The time since the newest durable checkpoint was complete, or without one since the oldest
    data that the bucket lacks. 0 if the bucket has all that is newer."""
    size: int
    """Bytes that the bucket lacks."""

    def eta_seconds(self, bytes_per_second: float, waiting_bytes: int) -> float | None:
        """Return the time until the bucket has all of it, or None if that cannot be told. What else
        waits may be sent before it, so it counts too.

        Args:
            bytes_per_second: rate of the drain.
            waiting_bytes: bytes of everything that waits for the bucket.
        """
        if not self.size:
            return 0.0
        return max(self.size, waiting_bytes) / bytes_per_second if bytes_per_second > 0 else None


class CatalogueSummary(NamedTuple):
    """What the catalogue has, all of one moment."""

    risks: list[Risk]
    """The risk of each run that has a complete checkpoint or data that the bucket lacks."""
    runs: int
    """The number of all runs."""
    states: Counter[str]
    """The number of checkpoints by state."""


def measure(session: Session) -> list[Risk]:
    """Return the risk of each run, in the order of their names."""
    return summarize(session).risks


def summarize(session: Session) -> CatalogueSummary:
    """Return the risks, in the order of the names of the runs, and the counts."""
    newest: dict[tuple[bytes, bool], Newest] = {}
    counts: dict[tuple[bytes, str], int] = {}
    for run, state, count, completion, last_ns, step, path, complete_ns in session.all(NEWEST):
        counts[bytes(run), state] = count
        if state not in _WHOLE or last_ns is None:
            continue
        if path is None:
            last = _last(session, run, state, last_ns)
        else:
            last = Newest(bytes(path), step, complete_ns, completion)
        where = bytes(run), state == CheckpointState.DURABLE
        newest[where] = max(newest.get(where, last), last, key=lambda candidate: candidate.place)
    now_ns = clock.now_ns()
    at_risk = _at_risk(session, newest, now_ns)
    risks = []
    for run in sorted({*at_risk, *(run for run, _is_durable in newest)}):
        durable, other = newest.get((run, True)), newest.get((run, False))
        both = [candidate for candidate in (durable, other) if candidate is not None]
        complete = max(both, key=lambda candidate: candidate.place, default=None)
        size, since_ns = at_risk.get(run, (0, now_ns))
        # The clock may have gone back since.
        seconds = max(0, now_ns - since_ns) / clock.NS
        risks.append(Risk(run, complete, durable, seconds, size))
    states: Counter[str] = Counter()
    for (_run, state), count in counts.items():
        states[state] += count
    return CatalogueSummary(risks, len({run for run, _state in counts}), states)


def _last(session: Session, run: bytes, state: str, complete_ns: int) -> Newest:
    row = session.one(LAST, run=run, state=state, complete_ns=complete_ns)
    assert row is not None, "the transaction sees the checkpoint"
    return Newest(bytes(row[1]), row[0], complete_ns, None)


def _at_risk(
    session: Session, newest: Mapping[tuple[bytes, bool], Newest], now_ns: int
) -> dict[bytes, tuple[int, int]]:
    """Return of each run the bytes that the bucket lacks of checkpoints that are newer than its
    newest durable one, if there are any, and the time since which its work is only here."""
    losses: dict[bytes, tuple[int, int]] = {}
    for run, state, size, since_ns, complete_ns, completion in session.all(DIRTY):
        durable = newest.get((bytes(run), True))
        if durable is not None:
            if state not in _WHOLE or completion is None or durable.completion is None:
                # What is being written has no place in the order.
                is_older = (complete_ns or since_ns or 0) <= durable.complete_ns
            else:
                is_older = completion <= durable.completion
            if is_older:
                continue
            since_ns = durable.complete_ns
        if since_ns is None:
            since_ns = now_ns  # an older release made the row: the catalogue makes it again
        before_size, before_ns = losses.get(bytes(run), (0, since_ns))
        losses[bytes(run)] = before_size + size, min(before_ns, since_ns)
    return losses
