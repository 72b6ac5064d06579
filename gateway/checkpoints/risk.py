"""Tells what each run would lose if this gateway were lost now."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import and_, func, literal_column, or_, select

from gateway import clock
from gateway.checkpoints.facts import State
from gateway.db.compiled import Session, Statement
from gateway.db.statements import checkpoint

_IS_DURABLE = checkpoint.c.state == literal_column(f"'{State.DURABLE}'")
_newest: Any = (
    select(
        checkpoint.c.run,
        checkpoint.c.state,
        func.max(checkpoint.c.complete_ns).label("complete_ns"),
    )
    .group_by(checkpoint.c.run, checkpoint.c.state)
    .subquery("newest")
)
# The index of run, state and complete_ns has all that is grouped, in that order.
NEWEST = Statement(
    select(
        checkpoint.c.run,
        checkpoint.c.step,
        checkpoint.c.path,
        checkpoint.c.complete_ns,
        checkpoint.c.state,
    )
    .select_from(
        _newest.join(
            checkpoint,
            and_(
                checkpoint.c.run == _newest.c.run,
                checkpoint.c.state == _newest.c.state,
                checkpoint.c.complete_ns == _newest.c.complete_ns,
            ),
        )
    )
    .order_by(checkpoint.c.complete_ns, checkpoint.c.ino)
)
"""Selects of each run and state the newest checkpoint that is complete. Of several with the same
time the last row counts."""
_durable: Any = (
    select(checkpoint.c.run, func.max(checkpoint.c.complete_ns).label("complete_ns"))
    .where(_IS_DURABLE)
    .group_by(checkpoint.c.run)
    .subquery("durable")
)
AT_RISK = Statement(
    select(
        checkpoint.c.run, func.sum(checkpoint.c.dirty_size), func.min(checkpoint.c.dirty_since_ns)
    )
    .select_from(checkpoint.outerjoin(_durable, _durable.c.run == checkpoint.c.run))
    .where(
        and_(
            checkpoint.c.dirty_files > literal_column("0"),
            or_(
                _durable.c.complete_ns.is_(None),
                func.coalesce(checkpoint.c.complete_ns, checkpoint.c.dirty_since_ns)
                > _durable.c.complete_ns,
            ),
        )
    )
    .group_by(checkpoint.c.run)
)
"""Selects what the bucket lacks of checkpoints that are newer than the newest durable one."""


class Newest(NamedTuple):
    """The newest checkpoint of a kind, by the time at which it was complete."""

    path: bytes
    step: int | None
    complete_ns: int


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

    def eta_seconds(self, bytes_per_second: float) -> float | None:
        """Return the time until the bucket has all of it, or None if that cannot be told."""
        if not self.size:
            return 0.0
        return self.size / bytes_per_second if bytes_per_second > 0 else None


def measure(session: Session) -> list[Risk]:
    """Return the risk of each run, in the order of their names."""
    newest: dict[tuple[bytes, bool], Newest] = {}
    for run, step, path, complete_ns, state in session.all(NEWEST):
        newest[bytes(run), state == State.DURABLE] = Newest(bytes(path), step, complete_ns)
    at_risk = {bytes(run): facts for run, *facts in session.all(AT_RISK)}
    now_ns = clock.now_ns()
    found = []
    for run in sorted({*at_risk, *(run for run, _is_durable in newest)}):
        durable, other = newest.get((run, True)), newest.get((run, False))
        both = [one for one in (durable, other) if one is not None]
        complete = max(both, key=lambda one: one.complete_ns, default=None)
        size, since_ns = at_risk.get(run, (0, now_ns))
        if run in at_risk and durable is not None:
            since_ns = durable.complete_ns
        if since_ns is None:
            since_ns = now_ns  # an older release made the row: the catalogue makes it again
        # The clock may have gone back since.
        seconds = max(0, now_ns - since_ns) / clock.NS
        found.append(Risk(run, complete, durable, seconds, int(size)))
    return found
