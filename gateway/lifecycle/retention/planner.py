"""Planner of retention: decides from rows alone what becomes of each checkpoint. Pure.

A checkpoint is deleted only if a policy lets it go, no other policy that selects it keeps it, and
none of the guards below holds it:

- it is complete, and no other checkpoint can be in its directory;
- it is neither promoted nor pinned, no link leads to it, and no tracker names it;
- a newer one of its run (gateway.lifecycle.retention.keep_rules) is durable, has a grade that is
  trusted, is not much smaller, and stays. So it is never the newest of these;
- if it is only ``marked``, its age alone is why it goes;
- the catalogue has all checkpoints.

The bytes of a checkpoint leave the local disk only if it stays, is durable, and is not pinned. Its
objects move to another storage class only if it stays, is durable, and is neither promoted nor
pinned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from gateway.catalogue.facts import NOT_MADE, CheckpointState, Grade
from gateway.common.text import printable
from gateway.common.types import Extent
from gateway.common.units import days
from gateway.lifecycle.retention.facts import (
    Current,
    Decision,
    Fate,
    Measuring,
    Pinned,
    Plan,
    PlanCheckpoint,
    PlanInputs,
    Transition,
)
from gateway.lifecycle.retention.keep_rules import RunOrder, Successors, held, lets_go
from gateway.lifecycle.retention.policy import DAY_NS, HOUR_NS

NEWEST = "it is the newest complete one of its run"
NOT_DURABLE = "no newer one of its run is durable and known to be whole"
SMALLER = "the newer ones that stay are much smaller (retention.min_replacement_share)"
NOT_GRADED = "it is not known yet what shows that it is whole, or its place in its run"
MARKED = "only its marker shows that it is whole, so a policy of delete_after_days alone deletes it"


def plan(situation: PlanInputs, measure: Measuring) -> Plan:
    """Return what becomes of each checkpoint, in the order of runs and steps.

    Args:
        measure: which is asked for the metrics of checkpoints.
    """
    decisions: list[Decision] = []
    selected: dict[int, Sequence[str]] = {}
    pinned = Pinned(situation.protected.paths)
    for _run, group in groupby(
        sorted(situation.checkpoints, key=_key), lambda checkpoint: checkpoint.run
    ):
        run = _Run(situation, list(group), measure)
        selected |= run.selected()
        is_pinned = {
            checkpoint.ino: pinned.holds(checkpoint.path) for checkpoint in run.checkpoints
        }
        made = {
            checkpoint.ino: _decide(run, checkpoint, is_pinned[checkpoint.ino])
            for checkpoint in run.newest_first()
        }
        for checkpoint in run.checkpoints:
            decision, under = made[checkpoint.ino], run.under(checkpoint)
            is_said = is_pinned[checkpoint.ino] or checkpoint.ino in situation.protected.inos
            evict = None if is_pinned[checkpoint.ino] else run.evicts(decision, under)
            moves = None if is_said else run.transition(decision, under)
            if evict is not None or moves is not None:
                decision = decision._replace(evict=evict, transition=moves)
            decisions.append(decision)
    return Plan(decisions, selected)


def part(situation: PlanInputs, policies: Sequence[Current]) -> PlanInputs:
    """Return a situation with only the runs of which a policy selects a checkpoint."""
    checkpoints = situation.checkpoints
    runs = {
        checkpoint.run
        for checkpoint in checkpoints
        if any(current.policy.selects(checkpoint.run, checkpoint.path) for current in policies)
    }
    return situation._replace(
        checkpoints=[checkpoint for checkpoint in checkpoints if checkpoint.run in runs]
    )


def revised(known: Plan, situation: PlanInputs, measure: Measuring) -> Plan:
    """Return a plan in which the runs of a situation are planned again. All other runs stay as they
    are in ``known``, because a run is planned by itself.

    Args:
        situation: situation with all checkpoints of each of its runs.
    """
    again = plan(situation, measure)
    runs = {checkpoint.run for checkpoint in situation.checkpoints}
    rest = [decision for decision in known.decisions if decision.checkpoint.run not in runs]
    inos = {decision.checkpoint.ino for decision in rest}
    selected = {ino: names for ino, names in known.selected.items() if ino in inos}
    decisions = sorted([*rest, *again.decisions], key=lambda decision: _key(decision.checkpoint))
    return Plan(decisions, {**selected, **again.selected})


def _key(checkpoint: PlanCheckpoint) -> tuple[bytes, bool, int, bytes]:
    return checkpoint.run, checkpoint.step is None, checkpoint.step or 0, checkpoint.path


class _Run:
    """The checkpoints of a run, and what the policies hold of them."""

    def __init__(
        self, situation: PlanInputs, checkpoints: Sequence[PlanCheckpoint], measure: Measuring
    ) -> None:
        self.checkpoints = checkpoints
        self.order = RunOrder(checkpoints)
        self.successors = Successors(situation.min_replacement_share)
        self.situation = situation
        self.now_ns = situation.now_ns
        self.is_made = situation.is_made
        self._under: dict[int, list[Current]] = {checkpoint.ino: [] for checkpoint in checkpoints}
        self._held: dict[str, Mapping[int, str]] = {}
        for current in situation.policies:
            policy = current.policy
            mine = [
                checkpoint
                for checkpoint in checkpoints
                if policy.selects(checkpoint.run, checkpoint.path)
            ]
            for checkpoint in mine:
                self._under[checkpoint.ino].append(current)
            if policy.deletes and mine:
                complete = [checkpoint for checkpoint in mine if checkpoint.is_complete]
                self._held[policy.name] = held(policy, complete, self.order, self.now_ns, measure)

    def newest_first(self) -> Iterator[PlanCheckpoint]:
        """Yield all checkpoints: those that are newer than one before it, so that it is known which
        of them stay."""
        yield from self.order.newest_first
        numbered = {checkpoint.ino for checkpoint in self.order.newest_first}
        yield from (checkpoint for checkpoint in self.checkpoints if checkpoint.ino not in numbered)

    def selected(self) -> dict[int, Sequence[str]]:
        """Return the policies that can delete, by the checkpoints that they select."""
        policies_by_ino = {ino: _names(_deleting(under)) for ino, under in self._under.items()}
        return {ino: names for ino, names in policies_by_ino.items() if names}

    def under(self, one: PlanCheckpoint) -> Sequence[Current]:
        """Return the policies that select a checkpoint."""
        return self._under[one.ino]

    def held_by(self, one: PlanCheckpoint, current: Current) -> str | None:
        """Return why a policy keeps a checkpoint, or None."""
        return self._held[current.policy.name].get(one.ino)

    def evicts(self, decision: Decision, under: Sequence[Current]) -> str | None:
        """Return the policies by which the bytes of a checkpoint leave the disk now, or None."""
        mine = [
            versioned_policy
            for versioned_policy in under
            if versioned_policy.policy.evict_after_ns is not None
        ]
        checkpoint = decision.checkpoint
        if not mine or decision.fate is Fate.DELETE or not checkpoint.is_durable:
            return None
        after_ns = max(current.policy.evict_after_ns or 0 for current in mine)
        born_ns = self.order.born_ns(checkpoint)
        if born_ns is None or self.now_ns - max(checkpoint.durable_ns or 0, born_ns) < after_ns:
            return None
        return ", ".join(map(str, mine))

    def transition(self, decision: Decision, under: Sequence[Current]) -> Transition | None:
        """Return the storage class to which the objects of a checkpoint move now, or None. Of
        several policies the one with the longest time decides."""
        checkpoint = decision.checkpoint
        born_ns = self.order.born_ns(checkpoint)
        if decision.fate is Fate.DELETE or not checkpoint.is_durable or not self.is_made:
            return None
        if born_ns is None:
            return None
        age_ns = self.now_ns - born_ns
        due = [
            (after_ns, str(current), storage_class)
            for current in under
            if (after_ns := current.policy.transition_after_ns) is not None
            and (storage_class := current.policy.storage_class) is not None
            and age_ns >= after_ns
        ]
        if not due:
            return None
        after_ns, name, storage_class = max(due)
        if storage_class == checkpoint.storage_class:
            return None
        return Transition(storage_class, name, f"it is older than {days(after_ns / DAY_NS)}")


def _deleting(under: Sequence[Current]) -> Sequence[Current]:
    """Return the policies that can delete."""
    return [current for current in under if current.policy.deletes]


def _names(policies: Sequence[Current]) -> tuple[str, ...]:
    return tuple(map(str, policies))


def _decide(run: _Run, checkpoint: PlanCheckpoint, is_pinned: bool) -> Decision:
    """Decide about a checkpoint. Those of its run that are newer must have been decided about."""
    under = run.under(checkpoint)
    mine = _deleting(under)
    why = (
        _kept(run, checkpoint, under, mine)
        or _protected(run.situation, checkpoint, is_pinned)
        or _held(run, checkpoint, mine)
    )
    plan_checkpoint = run.successors.of(checkpoint) if checkpoint.completion is not None else None
    if why is None and (plan_checkpoint is None or checkpoint.grade is None):
        why = lone(run.order, checkpoint)
    why = why or _fresh(run, checkpoint, mine)
    if why is not None or plan_checkpoint is None:
        run.successors.add(checkpoint)
        return Decision(checkpoint, Fate.KEEP, why or "")
    names = _names(mine)
    reasons = " and ".join(dict.fromkeys(lets_go(current.policy) for current in mine))
    if checkpoint.grade == Grade.MARKED:
        reasons += ", and only its marker shows that it is whole"
    why = f"{reasons} ({', '.join(names)}); {_named(plan_checkpoint)} is newer and durable"
    return Decision(checkpoint, Fate.DELETE, why, names, plan_checkpoint)


def _kept(
    run: _Run, checkpoint: PlanCheckpoint, under: Sequence[Current], mine: Sequence[Current]
) -> str | None:
    """Return why no policy can delete a checkpoint, or None.

    Args:
        under: the policies that select it.
        mine: those of them that can delete.
    """
    if not under:
        return "no enabled policy covers it"
    if not mine:
        return f"{', '.join(map(str, under))} deletes nothing"
    if not run.is_made:
        return NOT_MADE
    if not checkpoint.is_complete:
        state = "broken" if checkpoint.state == CheckpointState.BROKEN else "not complete"
        return f"it is {state}: {checkpoint.reason or 'the reason is not known'}"
    if checkpoint.extent == Extent.FILES:
        return "its directory may have more in it than this checkpoint"
    return None


def _protected(situation: PlanInputs, checkpoint: PlanCheckpoint, is_pinned: bool) -> str | None:
    """Return what a person or a job said because of which a checkpoint stays, or None."""
    if checkpoint.ino in situation.protected.inos:
        return "it is promoted"
    return "it is pinned" if is_pinned else situation.referred.get(checkpoint.ino)


def _held(run: _Run, checkpoint: PlanCheckpoint, mine: Sequence[Current]) -> str | None:
    """Return why a policy keeps a checkpoint, or None."""
    for current in mine:
        text = run.held_by(checkpoint, current)
        if text is not None:
            return f"{text} ({current})"
    other = next((current for current in mine if not current.policy.is_by_age), None)
    if other is not None and checkpoint.grade == Grade.MARKED:
        return f"{MARKED} ({other})"
    return None


def lone(order: RunOrder, one: PlanCheckpoint) -> str:
    """Return why a checkpoint stays for which no newer one stands.

    Args:
        order: order of its run.
    """
    if one.completion is None or one.grade is None:
        return NOT_GRADED
    if order.is_newest(one):
        return NEWEST
    return NOT_DURABLE if order.since_ns(one) is None else SMALLER


def _fresh(run: _Run, checkpoint: PlanCheckpoint, mine: Sequence[Current]) -> str | None:
    since_ns = run.order.since_ns(checkpoint)
    wait_ns = max(current.policy.wait_ns for current in mine)
    if since_ns is not None and run.now_ns - since_ns >= wait_ns:
        return None
    hours = wait_ns / HOUR_NS
    return f"a newer one has been durable for less than {hours:g} hours (wait_hours)"


def _named(checkpoint: PlanCheckpoint) -> str:
    return printable(checkpoint.path) if checkpoint.step is None else f"step {checkpoint.step}"
