"""Construction of retention plans from the tables of a namespace, in one transaction.

It only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.catalogue.store import Catalogue
from gateway.catalogue.tree import CatalogueView
from gateway.common import clock
from gateway.common.clock import Completions, KnownTime, TrustedTime
from gateway.common.types import FIRST_NS
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.lifecycle.promotion.store import protected
from gateway.lifecycle.retention import keep_rules, planner, store
from gateway.lifecycle.retention.approval import AskedDeletions, split
from gateway.lifecycle.retention.facts import (
    Current,
    Decision,
    Measuring,
    Plan,
    PlanCheckpoint,
    PlanInputs,
)
from gateway.lifecycle.retention.references import Metrics, References


class Planned(NamedTuple):
    """A plan, and how far it may be done."""

    situation: PlanInputs
    """What it is made of."""
    plan: Plan
    soon: Plan | None
    """The plan by which superseded checkpoints are found. None: there can be none."""
    admitted: Sequence[Decision]
    """The deletions that may be done."""
    asked: AskedDeletions | None
    """Those that a person must approve first."""
    superseded: frozenset[int]
    """The checkpoints that need not be uploaded, by inode."""
    time: TrustedTime
    known: KnownTime | None
    """The row of the known time."""

    @property
    def policies(self) -> Sequence[Current]:
        return self.situation.policies


class Planning:
    """Makes plans. Not safe to use from several threads.

    Args:
        catalogue: reads metric files.
    """

    def __init__(self, settings: Settings, catalogue: Catalogue) -> None:
        self._share = settings.retention.approval_share
        self._min_replacement_share = settings.retention.min_replacement_share
        self._skips = settings.retention.skip_superseded
        self._catalogue = catalogue
        self.metrics = Metrics()
        self._references = References()

    @property
    def wanted(self) -> set[int]:
        """The evicted files that would have to be read for the last plan."""
        return self.metrics.wanted | self._references.wanted

    def plan(self, others: Sequence[Current] = ()) -> Planned:
        """Plan. Raises TryAgain, PolicyError, OSError.

        They take the place of stored ones of their names.

        Args:
            others: policies that are not stored.
        """
        with self._catalogue.viewing() as view:
            session = view.session
            policies = _with(store.current(session), others)
            checkpoints = [checkpoint_of(row) for row in session.all(store.CHECKPOINTS)]
            known = store.known_time(session)
            time = clock.trusted_time(clock.reading(), known, completions(session))
            is_made = session.one(store.IS_MADE) is not None
            situation = PlanInputs(
                *(checkpoints, policies, protected(session), time.now_ns, is_made),
                self._references.of(view, checkpoints) if policies else {},
                self._min_replacement_share,
            )
            self.metrics.wanted.clear()
            self.metrics.keep_only({checkpoint.evidence for checkpoint in checkpoints})
            measure = self._measuring(view)
            made, soon = planner.plan(situation, measure), None
            if self._skips and keep_rules.is_any(situation):
                soon = planner.plan(keep_rules.soon(situation), measure)
            return self._planned(session, situation, made, soon, time, known)

    def revised(self, planned: Planned, other: Current) -> Planned:
        """Return a plan with another policy in the place of the one of its name, and all else as it
        was when ``planned`` was made. Raises as ``plan`` does."""
        stored = planned.policies
        changed = [
            other,
            *(
                versioned_policy
                for versioned_policy in stored
                if versioned_policy.policy.name == other.policy.name
            ),
        ]
        situation = planned.situation._replace(policies=_with(stored, [other]))
        part = planner.part(situation, changed)
        with self._catalogue.viewing() as view:
            measure = self._measuring(view)
            made, soon = planner.revised(planned.plan, part, measure), planned.soon
            if soon is not None:
                soon = planner.revised(soon, keep_rules.soon(part), measure)
            return self._planned(view.session, situation, made, soon, planned.time, planned.known)

    def _measuring(self, view: CatalogueView) -> Measuring:
        return lambda checkpoint, best: self.metrics.measure(view, checkpoint, best)

    def _planned(
        self,
        session: Session,
        situation: PlanInputs,
        plan: Plan,
        soon: Plan | None,
        time: TrustedTime,
        known: KnownTime | None,
    ) -> Planned:
        consent = store.consent(session, situation.policies)
        admitted, asked = split(plan, consent, self._share)
        superseded_inos = frozenset[int]()
        if soon is not None:
            superseded_inos = keep_rules.superseded(situation, soon, consent, self._share)
        return Planned(situation, plan, soon, admitted, asked, superseded_inos, time, known)


def _with(stored: Sequence[Current], others: Sequence[Current]) -> Sequence[Current]:
    """Return the stored policies, with others in the places of those of their names."""
    names = {versioned_policy.policy.name for versioned_policy in others}
    rest = [
        versioned_policy for versioned_policy in stored if versioned_policy.policy.name not in names
    ]
    return sorted([*rest, *others], key=lambda versioned_policy: versioned_policy.policy.name)


def checkpoint_of(row: Sequence[object]) -> PlanCheckpoint:
    """Return the checkpoint of a row of ``statements.CHECKPOINTS``."""
    made = PlanCheckpoint(*row)  # type: ignore[arg-type]
    return made._replace(path=bytes(made.path), run=bytes(made.run))


def completions(session: Session) -> Completions:
    """Return the times of the catalogue by which the known time is computed."""
    row = session.one(store.TIMES, first_ns=FIRST_NS)
    if row is None or row[0] is None:
        return clock.NONE
    first_ns, last_ns, durable_ns = row
    return Completions(first_ns, max(last_ns, durable_ns or 0))
