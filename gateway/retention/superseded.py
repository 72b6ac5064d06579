"""Finds the checkpoints that need not be uploaded: a policy deletes them as soon as a newer one is
durable, and that one is complete. Pure.

They are found by a plan in which all complete checkpoints are durable since this moment. So all of
the laws of a deletion hold for them, and a policy with ``wait_hours`` supersedes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.checkpoints.facts import State
from gateway.retention.facts import Checkpoint, Measuring, Situation
from gateway.retention.planner import plan
from gateway.retention.share import split


def superseded(
    situation: Situation, measure: Measuring, approved: Collection[str], share: float
) -> frozenset[int]:
    """Return the inodes of checkpoints that are not durable and need not be.

    Parameters: as of ``planner.plan`` and ``share.split``.
    """
    waiting = {one.ino for one in situation.checkpoints if one.is_complete and not one.is_durable}
    if not waiting:
        return frozenset()
    waiting -= _begun(situation.checkpoints)
    soon = [_durable(one, situation.now_ns) for one in situation.checkpoints]
    made = plan(situation._replace(checkpoints=soon), measure)
    admitted, _asked = split(made, approved, share)
    return frozenset(one.checkpoint.ino for one in admitted) & waiting


def _begun(checkpoints: Sequence[Checkpoint]) -> set[int]:
    """Return the newest checkpoint of each run whose upload has begun. It is uploaded to its end.
    Otherwise nothing would become durable while saves come faster than the bucket takes them."""
    newest: dict[bytes, Checkpoint] = {}
    for one in checkpoints:
        if one.state == State.DRAINING:
            known = newest.setdefault(one.run, one)
            newest[one.run] = max(known, one, key=lambda each: each.ready_ns)
    return {one.ino for one in newest.values()}


def _durable(one: Checkpoint, now_ns: int) -> Checkpoint:
    if not one.is_complete or one.is_durable:
        return one
    return one._replace(state=str(State.DURABLE), durable_ns=now_ns)
