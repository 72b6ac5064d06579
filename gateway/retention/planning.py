"""Makes the plan of a namespace from its tables, as one transaction sees them. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.checkpoints.catalogue import Catalogue
from gateway.promotion.store import protected
from gateway.retention import knowntime, planner, store
from gateway.retention import statements as own
from gateway.retention.facts import Checkpoint, Current, Decision, Measure, Plan, Situation
from gateway.retention.knowntime import Known, KnownTime
from gateway.retention.metrics import Metrics
from gateway.retention.policy import Best
from gateway.retention.share import Asked, split
from gateway.retention.superseded import superseded
from gateway.settings import Settings


class Planned(NamedTuple):
    """A plan, and how far it may be done."""

    plan: Plan
    policies: Sequence[Current]
    admitted: Sequence[Decision]
    """The deletions that may be done."""
    asked: Asked | None
    """Those that a person must approve first."""
    time: KnownTime
    known: Known | None
    """The row of the known time."""
    is_made: bool
    superseded: frozenset[int]
    """The checkpoints that need not be uploaded, by inode."""


class Planning:
    """Makes plans. Not safe to use from several threads.

    Parameters: settings; catalogue, which reads metric files.
    """

    def __init__(self, settings: Settings, catalogue: Catalogue) -> None:
        self._share = settings.retention.ask_share
        self._skips = settings.retention.skip_superseded
        self._catalogue = catalogue
        self.metrics = Metrics()

    def plan(self, others: Sequence[Current] = ()) -> Planned:
        """Plan. Raises TryAgain, PolicyError, OSError.

        Parameters: others, policies that are not stored. They take the place of stored ones of
        their names.
        """
        with self._catalogue.viewing() as view:
            session = view.session
            names = {one.policy.name for one in others}
            stored = [one for one in store.current(session) if one.policy.name not in names]
            policies = sorted([*stored, *others], key=lambda one: one.policy.name)
            checkpoints = [checkpoint_of(row) for row in session.all(own.CHECKPOINTS)]
            known = store.known_time(session)
            time = knowntime.judge(knowntime.reading(), known, _newest_ns(checkpoints))
            is_made = session.one(own.IS_MADE) is not None
            situation = Situation(checkpoints, policies, protected(session), time.now_ns, is_made)
            self.metrics.wanted.clear()
            self.metrics.keep_only({one.evidence for one in checkpoints})
            approved = store.approved(session)

            def measure(one: Checkpoint, best: Best) -> Measure:
                return self.metrics.measure(view, one, best)

            made = planner.plan(situation, measure)
            admitted, asked = split(made, approved, self._share)
            found = frozenset[int]()
            if self._skips:
                found = superseded(situation, measure, approved, self._share)
        return Planned(made, policies, admitted, asked, time, known, is_made, found)


def checkpoint_of(row: Sequence[object]) -> Checkpoint:
    """Return the checkpoint of a row of ``statements.CHECKPOINTS``."""
    made = Checkpoint(*row)  # type: ignore[arg-type]
    return made._replace(path=bytes(made.path), run=bytes(made.run))


def _newest_ns(checkpoints: Sequence[Checkpoint]) -> int | None:
    return max((max(one.ready_ns, one.durable_ns or 0) for one in checkpoints), default=None)
