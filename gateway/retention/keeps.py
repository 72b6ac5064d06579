"""What the keeps of a policy hold of the checkpoints of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from gateway.retention.facts import Checkpoint, Measuring
from gateway.retention.order import Order
from gateway.retention.policy import DAY_NS, HOUR_NS, Best, Policy
from gateway.units import days

NO_STEP = "it has no step, so only delete_after_days deletes it"
NO_AGE = "its age is not known: the clock was not set when it was complete"


def held(
    policy: Policy,
    checkpoints: Sequence[Checkpoint],
    order: Order,
    now_ns: int,
    measure: Measuring,
) -> dict[int, str]:
    """Return why checkpoints stay, by inode.

    Parameters: checkpoints, the complete ones of a run that the policy selects; order of the run;
    now_ns; measure, which is asked for metrics.
    """
    found: dict[int, str] = {}
    if policy.delete_after_ns is None:
        found |= {one.ino: NO_STEP for one in checkpoints if one.step is None}
    if policy.keep_newest is not None:
        text = f"it is among the newest {policy.keep_newest}"
        found |= dict.fromkeys(_newest(policy.keep_newest, checkpoints, order), text)
    if policy.keep_every_steps is not None:
        text = f"its step is a multiple of {policy.keep_every_steps}"
        every = policy.keep_every_steps
        found |= {
            one.ino: text for one in checkpoints if one.step is not None and one.step % every == 0
        }
    if policy.keep_best is not None:
        found |= _best(policy.keep_best, checkpoints, measure)
    found |= _by_age(policy, checkpoints, order, now_ns)
    return found


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


def _newest(number: int, checkpoints: Sequence[Checkpoint], order: Order) -> set[int]:
    """Return the newest so many of those that a policy selects."""
    mine = {one.ino for one in checkpoints}
    return set(islice((one.ino for one in order.newest_first if one.ino in mine), number))


def _best(best: Best, checkpoints: Sequence[Checkpoint], measure: Measuring) -> dict[int, str]:
    found: dict[int, str] = {}
    values: dict[int, float] = {}
    for one in checkpoints:
        measured = measure(one, best)
        if measured.value is not None:
            values[one.ino] = measured.value
        elif measured.is_unread or best.unmeasured == "keep":
            found[one.ino] = f"its {best.key} is not known: {measured.why}"
    ranked = sorted(values.values(), reverse=best.best == "max")[: best.number]
    for ino, value in values.items():
        # Two with the same value are both kept.
        if value in ranked:
            found[ino] = f"it is among the best {best.number} by {best.key} ({value:g})"
    return found


def _by_age(
    policy: Policy, checkpoints: Sequence[Checkpoint], order: Order, now_ns: int
) -> dict[int, str]:
    """Return those that are kept because of their age. ``delete_after_days`` ends ``thin``."""
    if policy.delete_after_ns is None and not policy.thin:
        return {}
    found: dict[int, str] = {}
    first: dict[tuple[int, int], tuple[int, list[int]]] = {}
    for one in checkpoints:
        born_ns = order.born_ns(one)
        if born_ns is None:
            found[one.ino] = NO_AGE
            continue
        age_ns = now_ns - born_ns
        if policy.delete_after_ns is not None and age_ns >= policy.delete_after_ns:
            continue
        tier = sum(age_ns >= tier.older_than_ns for tier in policy.thin) - 1
        if tier < 0:
            until_ns = policy.thin[0].older_than_ns if policy.thin else policy.delete_after_ns
            assert until_ns is not None
            found[one.ino] = f"it is younger than {days(until_ns / DAY_NS)}"
            continue
        where = (tier, born_ns // policy.thin[tier].one_per_ns)
        before_ns, inos = first.get(where, (born_ns, []))
        if born_ns < before_ns:
            before_ns, inos = born_ns, []
        if born_ns == before_ns:
            inos.append(one.ino)
        first[where] = (before_ns, inos)
    for (tier, _interval), (_born_ns, inos) in first.items():
        hours = policy.thin[tier].one_per_ns / HOUR_NS
        found |= dict.fromkeys(inos, f"it is the first of its {hours:g} hours")
    return found
