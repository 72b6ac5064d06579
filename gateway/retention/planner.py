"""Decides what becomes of each checkpoint, by rows alone. Pure.

A checkpoint is deleted only if a policy lets it go, no other policy that selects it keeps it, and
none of the laws below holds it:

- it is complete, and no other checkpoint can be in its directory;
- it is neither promoted nor pinned;
- a newer one of its run is durable and stays (gateway.retention.order). So it is neither the
  newest complete one nor the newest durable one;
- the catalogue has all checkpoints.

The bytes of a checkpoint leave the local disk only if it stays, is durable, and is not pinned. Its
objects move to another storage class only if it stays, is durable, and is neither promoted nor
pinned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from gateway.retention.facts import (
    Checkpoint,
    Current,
    Decision,
    Fate,
    Measuring,
    Pinned,
    Plan,
    Protected,
    Situation,
    Transition,
)
from gateway.retention.keeps import held, lets_go
from gateway.retention.order import Newer, Order
from gateway.retention.policy import DAY_NS, HOUR_NS
from gateway.text import printable
from gateway.types import Extent


def plan(situation: Situation, measure: Measuring) -> Plan:
    """Return what becomes of each checkpoint, in the order of runs and steps.

    Parameters: measure, which is asked for the metrics of checkpoints.
    """
    decisions: list[Decision] = []
    selected: set[int] = set()
    pinned = Pinned(situation.protected.paths)
    for _run, group in groupby(sorted(situation.checkpoints, key=_key), lambda one: one.run):
        run = _Run(situation, list(group), measure)
        for one in run.checkpoints:
            under = run.under(one)
            if any(current.policy.deletes for current in under):
                selected.add(one.ino)
            is_pinned = pinned.holds(one.path)
            protected = _protected(one, situation.protected, is_pinned)
            decision = _decide(run, one, under, protected)
            evict = None if is_pinned else run.evicts(decision, under)
            moves = None if protected else run.transition(decision, under)
            if evict is not None or moves is not None:
                decision = decision._replace(evict=evict, transition=moves)
            decisions.append(decision)
    return Plan(decisions, selected)


def part(situation: Situation, policies: Sequence[Current]) -> Situation:
    """Return a situation with only the runs of which a policy selects a checkpoint."""
    checkpoints = situation.checkpoints
    runs = {
        one.run
        for one in checkpoints
        if any(current.policy.selects(one.run, one.path) for current in policies)
    }
    return situation._replace(checkpoints=[one for one in checkpoints if one.run in runs])


def revised(known: Plan, situation: Situation, measure: Measuring) -> Plan:
    """Return a plan in which the runs of a situation are planned again. All other runs stay as they
    are in ``known``, because a run is planned by itself.

    Parameters: situation, with all checkpoints of each of its runs.
    """
    again = plan(situation, measure)
    runs = {one.run for one in situation.checkpoints}
    rest = [one for one in known.decisions if one.checkpoint.run not in runs]
    selected = {one.checkpoint.ino for one in rest} & set(known.selected)
    decisions = sorted([*rest, *again.decisions], key=lambda one: _key(one.checkpoint))
    return Plan(decisions, selected | set(again.selected))


def _key(one: Checkpoint) -> tuple[bytes, bool, int, bytes]:
    return one.run, one.step is None, one.step or 0, one.path


class _Run:
    """The checkpoints of a run, and what the policies hold of them."""

    def __init__(
        self, situation: Situation, checkpoints: Sequence[Checkpoint], measure: Measuring
    ) -> None:
        self.checkpoints = checkpoints
        self.order = Order(checkpoints)
        self.now_ns = situation.now_ns
        self.is_made = situation.is_made
        self._under: dict[int, list[Current]] = {one.ino: [] for one in checkpoints}
        self._held: dict[str, Mapping[int, str]] = {}
        for current in situation.policies:
            policy = current.policy
            mine = [one for one in checkpoints if policy.selects(one.run, one.path)]
            for one in mine:
                self._under[one.ino].append(current)
            if policy.deletes and mine:
                complete = [one for one in mine if one.is_complete]
                self._held[policy.name] = held(policy, complete, self.order, self.now_ns, measure)

    def under(self, one: Checkpoint) -> Sequence[Current]:
        """Return the policies that select a checkpoint."""
        return self._under[one.ino]

    def held_by(self, one: Checkpoint, current: Current) -> str | None:
        """Return why a policy keeps a checkpoint, or None."""
        return self._held[current.policy.name].get(one.ino)

    def evicts(self, decision: Decision, under: Sequence[Current]) -> str | None:
        """Return the policies by which the bytes of a checkpoint leave the disk now, or None."""
        mine = [one for one in under if one.policy.evict_after_ns is not None]
        one = decision.checkpoint
        if not mine or decision.fate is Fate.DELETE or not one.is_durable:
            return None
        after_ns = max(current.policy.evict_after_ns or 0 for current in mine)
        age_ns = self.now_ns - max(one.durable_ns or 0, self.order.born_ns(one))
        return ", ".join(map(str, mine)) if age_ns >= after_ns else None

    def transition(self, decision: Decision, under: Sequence[Current]) -> Transition | None:
        """Return the storage class to which the objects of a checkpoint move now, or None. Of
        several policies the one with the longest time decides."""
        one = decision.checkpoint
        if decision.fate is Fate.DELETE or not one.is_durable or not self.is_made:
            return None
        age_ns = self.now_ns - self.order.born_ns(one)
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
        if storage_class == one.storage_class:
            return None
        return Transition(storage_class, name, f"it is older than {after_ns / DAY_NS:g} days")


def _decide(
    run: _Run, one: Checkpoint, under: Sequence[Current], protected: str | None
) -> Decision:
    deleting = [current for current in under if current.policy.deletes]
    why = _kept(run, one, under, deleting) or protected
    newer = run.order.newer(one)
    if why is None:
        for current in deleting:
            text = run.held_by(one, current)
            if text is not None:
                why = f"{text} ({current})"
                break
    if why is None and newer is None:
        why = _lone(run, one)
    if why is None and newer is not None:
        why = _fresh(run, newer, deleting)
    if why is not None or newer is None:
        return Decision(one, Fate.KEEP, why or "")
    reasons = " and ".join(dict.fromkeys(lets_go(current.policy) for current in deleting))
    names = tuple(str(current) for current in deleting)
    why = f"{reasons} ({', '.join(names)}); {_named(newer.stays)} is newer and durable"
    return Decision(one, Fate.DELETE, why, names, newer.stays)


def _kept(
    run: _Run, one: Checkpoint, under: Sequence[Current], deleting: Sequence[Current]
) -> str | None:
    if not under:
        return "no policy selects it"
    if not deleting:
        return f"{', '.join(map(str, under))} deletes nothing"
    if not run.is_made:
        return "the namespace was not looked at as a whole yet"
    if not one.is_complete:
        return f"it is not complete: {one.reason or 'the reason is not known'}"
    if one.extent == Extent.FILES:
        return "its directory may have more in it than this checkpoint"
    return None


def _protected(one: Checkpoint, protected: Protected, is_pinned: bool) -> str | None:
    """Return what a person said because of which a checkpoint stays, or None."""
    if one.ino in protected.inos:
        return "it is promoted"
    return "it is pinned" if is_pinned else None


def _lone(run: _Run, one: Checkpoint) -> str:
    """Return why a checkpoint without a newer durable one stays."""
    if run.order.is_newest(one):
        return "it is the newest complete one of its run, by step or by time"
    return "no newer one of its run is durable"


def _fresh(run: _Run, newer: Newer, deleting: Sequence[Current]) -> str | None:
    wait_ns = max(current.policy.wait_ns for current in deleting)
    if run.now_ns - newer.since_ns >= wait_ns:
        return None
    hours = wait_ns / HOUR_NS
    return f"a newer one has been durable for less than {hours:g} hours (wait_hours)"


def _named(one: Checkpoint) -> str:
    return printable(one.path) if one.step is None else f"step {one.step}"
