"""Keep rules: the order of a run, which checkpoints each rule keeps, and their successors. Pure.

Newer is what was complete later, in the order in which the gateway saw it. Neither steps nor clocks
count: after a rollback the newest is the one that was saved last. One that has no place in the
order yet is older and newer than none, so it is not deleted, and nothing is deleted for it.

``superseded`` finds checkpoints that need not be uploaded: a policy deletes them as soon as a newer
one is durable, and that one is complete. They are found by a plan in which all complete checkpoints
are durable since this moment. So all of the deletion guards hold for them, and a policy with
``wait_hours`` supersedes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice

from gateway.catalogue.facts import CheckpointState
from gateway.common.types import FIRST_NS
from gateway.common.units import days
from gateway.lifecycle.retention.approval import Consent, split
from gateway.lifecycle.retention.facts import Measuring, Plan, PlanCheckpoint, PlanInputs
from gateway.lifecycle.retention.policy import DAY_NS, HOUR_NS, Best, Policy


class RunOrder:
    """The order of one run.

    Args:
        checkpoints: all of the run.
    """

    def __init__(self, checkpoints: Iterable[PlanCheckpoint]) -> None:
        numbered = [
            checkpoint
            for checkpoint in checkpoints
            if checkpoint.is_complete and checkpoint.completion is not None
        ]
        self.newest_first: Sequence[PlanCheckpoint] = sorted(numbered, key=_place, reverse=True)
        """The complete ones that have a place in the order."""
        oldest_first = self.newest_first[::-1]
        trusted = [checkpoint for checkpoint in oldest_first if checkpoint.is_trusted]
        self._trusted = [_place(checkpoint) for checkpoint in trusted]
        self._since = _leasts([checkpoint.durable_ns or 0 for checkpoint in trusted])
        times = accumulate(
            (checkpoint.recorded_ns or checkpoint.ready_ns for checkpoint in oldest_first), max
        )
        self._born = {
            checkpoint.ino: ns for checkpoint, ns in zip(oldest_first, times, strict=True)
        }

    def since_ns(self, one: PlanCheckpoint) -> int | None:
        """Return the time since which a newer trusted one has been durable, or None if none is."""
        if one.completion is None:
            return None
        at = bisect_right(self._trusted, one.completion)
        return self._since[at] if at < len(self._since) else None

    def is_newest(self, one: PlanCheckpoint) -> bool:
        """Return whether a checkpoint is the newest complete one."""
        return bool(self.newest_first) and self.newest_first[0].ino == one.ino

    def born_ns(self, one: PlanCheckpoint) -> int | None:
        """Return the time from which the age of a complete checkpoint counts. None: it does not
        age, because no clock that was set has seen it.

        It is not before the completion of an older one: a clock that was behind during a save makes
        no old checkpoint. One that is taken back from the trash is complete since then, and makes
        no newer one younger.
        """
        born = max(one.ready_ns, self._born.get(one.ino, 0))
        return born if born >= FIRST_NS else None


class Successors:
    """The checkpoints of a run that stay and for which an older one may be deleted. They are added
    from the newest to the oldest.

    Args:
        min_replacement_share: min replacement share of the bytes of what is deleted.
    """

    def __init__(self, min_replacement_share: float) -> None:
        self._min_replacement_share = min_replacement_share
        self._larger: list[PlanCheckpoint] = []
        """Those that are larger than all newer ones. No other one is ever the newest that is large
        enough."""
        self._sizes: list[int] = []

    def add(self, one: PlanCheckpoint) -> None:
        if one.is_trusted and (not self._sizes or one.size > self._sizes[-1]):
            self._larger.append(one)
            self._sizes.append(one.size)

    def of(self, one: PlanCheckpoint) -> PlanCheckpoint | None:
        """Return the newest that is not much smaller than an older one, or None."""
        at = bisect_left(self._sizes, self._min_replacement_share * one.size)
        return self._larger[at] if at < len(self._larger) else None


def successor(
    one: PlanCheckpoint, checkpoints: Iterable[PlanCheckpoint], min_replacement_share: float
) -> PlanCheckpoint | None:
    """Return the newest checkpoint of a run for which one may be deleted, or None.

    Args:
        checkpoints: those of the run.
        min_replacement_share: share of the bytes of a deleted one that it must have.
    """
    successors = Successors(min_replacement_share)
    for two in RunOrder(checkpoints).newest_first:
        if one.completion is None or _place(two) <= one.completion:
            break
        successors.add(two)
    return successors.of(one)


def _place(checkpoint: PlanCheckpoint) -> int:
    assert checkpoint.completion is not None
    return checkpoint.completion


def _leasts(numbers: Sequence[int]) -> list[int]:
    """Return the least number from each place on."""
    return list(accumulate(reversed(numbers), min))[::-1]


def soon(situation: PlanInputs) -> PlanInputs:
    """Return a situation as if all of its complete checkpoints were durable since this moment."""
    checkpoints = [_durable(checkpoint, situation.now_ns) for checkpoint in situation.checkpoints]
    return situation._replace(checkpoints=checkpoints)


def is_any(situation: PlanInputs) -> bool:
    """Return whether a checkpoint of a situation may be superseded at all."""
    return any(_waits(checkpoint) for checkpoint in situation.checkpoints)


def superseded(situation: PlanInputs, then: Plan, consent: Consent, share: float) -> frozenset[int]:
    """Return the inodes of checkpoints that are not durable and need not be.

    Args:
        then: the plan of ``soon`` of the situation.
        consent, share: as of ``share.split``.
    """
    waiting = {checkpoint.ino for checkpoint in situation.checkpoints if _waits(checkpoint)}
    waiting -= _begun(situation.checkpoints)
    admitted, _asked = split(then, consent, share, is_hold=True)
    return frozenset(decision.checkpoint.ino for decision in admitted) & waiting


def _waits(checkpoint: PlanCheckpoint) -> bool:
    return checkpoint.is_complete and not checkpoint.is_durable


def _begun(checkpoints: Sequence[PlanCheckpoint]) -> set[int]:
    """Return the newest checkpoint of each run whose upload has begun. It is uploaded to its end.
    Otherwise nothing would become durable while saves come faster than the bucket takes them."""
    newest: dict[bytes, PlanCheckpoint] = {}
    for checkpoint in checkpoints:
        if checkpoint.state == CheckpointState.DRAINING:
            known = newest.setdefault(checkpoint.run, checkpoint)
            newest[checkpoint.run] = max(
                known, checkpoint, key=lambda plan_checkpoint: plan_checkpoint.completion or 0
            )
    return {checkpoint.ino for checkpoint in newest.values()}


def _durable(checkpoint: PlanCheckpoint, now_ns: int) -> PlanCheckpoint:
    return (
        checkpoint._replace(state=str(CheckpointState.DURABLE), durable_ns=now_ns)
        if _waits(checkpoint)
        else checkpoint
    )


NO_STEP = "it has no step, so only delete_after_days deletes it"
NO_AGE = "its age is not known: the clock was not set when it was complete"


def held(
    policy: Policy,
    checkpoints: Sequence[PlanCheckpoint],
    order: RunOrder,
    now_ns: int,
    measure: Measuring,
) -> dict[int, str]:
    """Return why checkpoints stay, by inode.

    Args:
        checkpoints: the complete ones of a run that the policy selects.
        order: order of the run.
        measure: which is asked for metrics.
    """
    reasons: dict[int, str] = {}
    if policy.delete_after_ns is None:
        reasons |= {
            checkpoint.ino: NO_STEP for checkpoint in checkpoints if checkpoint.step is None
        }
    if policy.keep_newest is not None:
        text = f"it is among the newest {policy.keep_newest}"
        reasons |= dict.fromkeys(_newest(policy.keep_newest, checkpoints, order), text)
    if policy.keep_every_steps is not None:
        text = f"its step is a multiple of {policy.keep_every_steps}"
        every = policy.keep_every_steps
        reasons |= {
            checkpoint.ino: text
            for checkpoint in checkpoints
            if checkpoint.step is not None and checkpoint.step % every == 0
        }
    if policy.keep_best is not None:
        reasons |= _best(policy.keep_best, checkpoints, measure)
    reasons |= _by_age(policy, checkpoints, order, now_ns)
    return reasons


def lets_go(policy: Policy) -> str:
    """Return why a checkpoint does not stay, that no keep of a policy holds."""
    reasons = []
    if policy.keep_newest is not None:
        reasons.append(f"it is not among the newest {policy.keep_newest}")
    if policy.keep_every_steps is not None:
        reasons.append(f"its step is no multiple of {policy.keep_every_steps}")
    if policy.keep_best is not None:
        best = policy.keep_best
        reasons.append(f"it is not among the best {best.number} by {best.key}")
    ages = []
    if policy.delete_after_ns is not None:
        ages.append(f"it is older than {days(policy.delete_after_ns / DAY_NS)}")
    if policy.thin:
        ages.append("another one is kept of its time")
    return " and ".join([*reasons, *filter(None, [" or ".join(ages)])])


def _newest(number: int, checkpoints: Sequence[PlanCheckpoint], order: RunOrder) -> set[int]:
    """Return the newest so many of those that a policy selects."""
    mine = {checkpoint.ino for checkpoint in checkpoints}
    return set(
        islice(
            (checkpoint.ino for checkpoint in order.newest_first if checkpoint.ino in mine), number
        )
    )


def _best(best: Best, checkpoints: Sequence[PlanCheckpoint], measure: Measuring) -> dict[int, str]:
    reasons: dict[int, str] = {}
    values: dict[int, float] = {}
    for checkpoint in checkpoints:
        measured = measure(checkpoint, best)
        if measured.value is not None:
            values[checkpoint.ino] = measured.value
        elif measured.is_unread or best.unmeasured == "keep":
            reasons[checkpoint.ino] = f"its {best.key} is not known: {measured.why}"
    ranked = sorted(values.values(), reverse=best.best == "max")[: best.number]
    for ino, value in values.items():
        # Two with the same value are both kept.
        if value in ranked:
            reasons[ino] = f"it is among the best {best.number} by {best.key} ({value:g})"
    return reasons


def _by_age(
    policy: Policy, checkpoints: Sequence[PlanCheckpoint], order: RunOrder, now_ns: int
) -> dict[int, str]:
    """Return those that are kept because of their age. ``delete_after_days`` ends ``thin``."""
    if policy.delete_after_ns is None and not policy.thin:
        return {}
    reasons: dict[int, str] = {}
    first: dict[tuple[int, int], tuple[int, list[int]]] = {}
    for checkpoint in checkpoints:
        born_ns = order.born_ns(checkpoint)
        if born_ns is None:
            reasons[checkpoint.ino] = NO_AGE
            continue
        age_ns = now_ns - born_ns
        if policy.delete_after_ns is not None and age_ns >= policy.delete_after_ns:
            continue
        tier = sum(age_ns >= tier.older_than_ns for tier in policy.thin) - 1
        if tier < 0:
            until_ns = policy.thin[0].older_than_ns if policy.thin else policy.delete_after_ns
            assert until_ns is not None
            reasons[checkpoint.ino] = f"it is younger than {days(until_ns / DAY_NS)}"
            continue
        where = (tier, born_ns // policy.thin[tier].one_per_ns)
        before_ns, inos = first.get(where, (born_ns, []))
        if born_ns < before_ns:
            before_ns, inos = born_ns, []
        if born_ns == before_ns:
            inos.append(checkpoint.ino)
        first[where] = (before_ns, inos)
    for (tier, _interval), (_born_ns, inos) in first.items():
        hours = policy.thin[tier].one_per_ns / HOUR_NS
        reasons |= dict.fromkeys(inos, f"it is the first of its {hours:g} hours")
    return reasons
