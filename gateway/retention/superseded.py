"""Finds the checkpoints that need not be uploaded: a policy deletes them as soon as a newer one is
durable, and that one is complete. Pure.

They are found by a plan in which all complete checkpoints are durable since this moment. So all of
the laws of a deletion hold for them, and a policy with ``wait_hours`` supersedes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.checkpoints.facts import State
from gateway.retention.facts import Checkpoint, Plan, Situation
from gateway.retention.share import Consent, split


def soon(situation: Situation) -> Situation:
    """Return a situation as if all of its complete checkpoints were durable since this moment."""
    checkpoints = [_durable(one, situation.now_ns) for one in situation.checkpoints]
    return situation._replace(checkpoints=checkpoints)


def is_any(situation: Situation) -> bool:
    """Return whether a checkpoint of a situation may be superseded at all."""
    return any(_waits(one) for one in situation.checkpoints)


def superseded(situation: Situation, then: Plan, consent: Consent, share: float) -> frozenset[int]:
    """Return the inodes of checkpoints that are not durable and need not be.

    Parameters: then, the plan of ``soon`` of the situation; consent and share, as of
    ``share.split``.
    """
    waiting = {one.ino for one in situation.checkpoints if _waits(one)}
    waiting -= _begun(situation.checkpoints)
    admitted, _asked = split(then, consent, share, is_hold=True)
    return frozenset(one.checkpoint.ino for one in admitted) & waiting


def _waits(one: Checkpoint) -> bool:
    return one.is_complete and not one.is_durable


def _begun(checkpoints: Sequence[Checkpoint]) -> set[int]:
    """Return the newest checkpoint of each run whose upload has begun. It is uploaded to its end.
    Otherwise nothing would become durable while saves come faster than the bucket takes them."""
    newest: dict[bytes, Checkpoint] = {}
    for one in checkpoints:
        if one.state == State.DRAINING:
            known = newest.setdefault(one.run, one)
            newest[one.run] = max(known, one, key=lambda each: each.completion or 0)
    return {one.ino for one in newest.values()}


def _durable(one: Checkpoint, now_ns: int) -> Checkpoint:
    return one._replace(state=str(State.DURABLE), durable_ns=now_ns) if _waits(one) else one
