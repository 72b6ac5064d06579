"""Checkpoints, metrics and policies without a database, for tests of the planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.catalogue.facts import CheckpointState, Grade
from gateway.common.types import FIRST_NS, Extent
from gateway.lifecycle.retention import planner, policy
from gateway.lifecycle.retention.facts import Current, Measure, Plan, PlanCheckpoint, PlanInputs
from gateway.lifecycle.retention.policy import DAY_NS, HOUR_NS, Best

NOW_NS = FIRST_NS + 100 * DAY_NS


class Said(NamedTuple):
    """What people said must stay."""

    inos: frozenset[int] = frozenset()
    paths: frozenset[bytes] = frozenset()


def checkpoint(
    ino: int, step: int | None, state: CheckpointState = CheckpointState.DURABLE, **given: Any
) -> PlanCheckpoint:
    """Return a checkpoint of the run ``r``. It was complete, and durable, an hour for each ino
    after the beginning, as the ``ino``-th."""
    ready_ns = given.pop("ready_ns", FIRST_NS + ino * HOUR_NS)
    is_whole = state not in (CheckpointState.WRITING, CheckpointState.BROKEN)
    values = {
        "path": b"r/c%d" % ino,
        "run": b"r",
        "extent": Extent.TREE,
        "reason": None,
        "files": 1,
        "size": 10,
        "complete_ns": None if state is CheckpointState.WRITING else ready_ns,
        "durable_ns": ready_ns if state is CheckpointState.DURABLE else None,
        "evidence": f"e{ino}",
        "grade": Grade.LISTED if is_whole else None,
        "completion": ino if is_whole else None,
        **given,
    }
    return PlanCheckpoint(ino=ino, step=step, state=str(state), **values)


def policies(*tables: dict[str, Any]) -> list[Current]:
    versioned_policies = []
    for number, table in enumerate(tables):
        named = {"name": f"p{number}", "run": "*", **table}
        if policy.of(named).deletes:
            named.setdefault("wait_hours", 0)
        versioned_policies.append(Current(policy.of(named), number + 1))
    return versioned_policies


def metric(one: PlanCheckpoint, _best: Best) -> Measure:
    """Return a metric that says everything that a metric file can: ino 7 cannot be read."""
    if one.ino % 10 == 7:
        return Measure(None, "evicted", is_unread=True)
    return Measure(None, "missing") if one.ino % 10 == 8 else Measure(float(one.ino % 5))


def made(
    checkpoints: Sequence[PlanCheckpoint],
    *tables: dict[str, Any],
    now_ns: int = NOW_NS,
    said: Said = Said(),  # noqa: B008
    is_made: bool = True,
    referred: dict[int, str] | None = None,
) -> Plan:
    situation = PlanInputs(checkpoints, policies(*tables), said, now_ns, is_made, referred or {})
    return planner.plan(situation, metric)


def deleted(plan: Plan) -> set[int]:
    return {deletion.checkpoint.ino for deletion in plan.deletions}
