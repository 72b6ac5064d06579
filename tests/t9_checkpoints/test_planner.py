"""One example of each law of retention and of each keep, with its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from gateway.checkpoints.facts import State
from gateway.retention import planner, policy
from gateway.retention.facts import Checkpoint, Current, Measure, Plan, Situation
from gateway.retention.policy import DAY_NS, HOUR_NS, Best
from gateway.retention.share import FEW, split
from gateway.types import Extent

NOW_NS = 100 * DAY_NS


class Said(NamedTuple):
    """What people said must stay."""

    inos: frozenset[int] = frozenset()
    paths: frozenset[bytes] = frozenset()


def checkpoint(
    ino: int, step: int | None, state: State = State.DURABLE, **given: Any
) -> Checkpoint:
    """Return a checkpoint of the run ``r``. It was complete, and durable, an hour for each ino
    after the beginning."""
    ready_ns = given.pop("ready_ns", ino * HOUR_NS)
    values = {
        "path": b"r/c%d" % ino,
        "run": b"r",
        "extent": Extent.TREE,
        "reason": None,
        "files": 1,
        "size": 10,
        "complete_ns": None if state is State.WRITING else ready_ns,
        "durable_ns": ready_ns if state is State.DURABLE else None,
        "evidence": f"e{ino}",
        **given,
    }
    return Checkpoint(ino=ino, step=step, state=str(state), **values)


def policies(*tables: dict[str, Any]) -> list[Current]:
    found = []
    for number, table in enumerate(tables):
        named = {"name": f"p{number}", "run": "*", **table}
        if policy.of(named).deletes:
            named.setdefault("wait_hours", 0)
        found.append(Current(policy.of(named), number + 1))
    return found


def metric(one: Checkpoint, _best: Best) -> Measure:
    """Return a metric that says everything that a metric file can: ino 7 cannot be read."""
    if one.ino % 10 == 7:
        return Measure(None, "evicted", is_unread=True)
    return Measure(None, "missing") if one.ino % 10 == 8 else Measure(float(one.ino % 5))


def made(
    checkpoints: Sequence[Checkpoint],
    *tables: dict[str, Any],
    now_ns: int = NOW_NS,
    said: Said = Said(),  # noqa: B008
    is_made: bool = True,
) -> Plan:
    situation = Situation(checkpoints, policies(*tables), said, now_ns, is_made)
    return planner.plan(situation, metric)


def deleted(plan: Plan) -> set[int]:
    return {one.checkpoint.ino for one in plan.deletions}


def why(plan: Plan, ino: int) -> str:
    return next(one.why for one in plan.decisions if one.checkpoint.ino == ino)


def five(**last: Any) -> list[Checkpoint]:
    return [*(checkpoint(n, n * 10) for n in range(1, 5)), checkpoint(5, 50, **last)]


@pytest.mark.parametrize(
    ("table", "gone", "reasons"),
    [
        ({"keep_newest": 2}, {1, 2, 3}, {4: "among the newest 2", 1: "not among the newest 2"}),
        ({"keep_newest": 1, "keep_every_steps": 20}, {1, 3}, {2: "multiple of 20"}),
        ({"delete_after_days": 99.9}, {1, 2}, {3: "younger than 99.9 days", 1: "older than 99.9"}),
        ({"delete_after_days": 1}, {1, 2, 3, 4}, {5: "newest complete", 1: "older than 1 day (p0"}),
        (
            {"thin": [{"older_than_days": 1, "one_per_hours": 2}]},
            {3},
            {2: "first of its 2 hours", 3: "another one is kept of its time"},
        ),
        (
            {"thin": [{"older_than_days": 1, "one_per_hours": 2}], "delete_after_days": 99.9},
            {1, 2},
            {3: "first of its 2 hours"},
        ),
        (
            {"keep_best": {"number": 1, "file": "m", "key": "k", "best": "max"}},
            {1, 2, 3},
            {4: "among the best 1 by k (4)", 1: "not among the best 1 by k"},
        ),
        ({"evict_after_hours": 1}, set(), {1: "p0 v1 deletes nothing"}),
        ({"keep_newest": 1, "wait_hours": 24 * 200}, set(), {1: "less than 4800 hours"}),
        ({"run": "other", "keep_newest": 1}, set(), {1: "no policy selects it"}),
    ],
)
def test_what_each_keep_holds(
    table: dict[str, Any], gone: set[int], reasons: dict[int, str]
) -> None:
    plan = made(five(), table)
    assert deleted(plan) == gone
    for ino, text in reasons.items():
        assert text in why(plan, ino), ino


def test_one_policy_keeps_what_another_lets_go() -> None:
    plan = made(five(), {"keep_newest": 1}, {"keep_newest": 3})
    assert deleted(plan) == {1, 2}
    assert "(p1 v2)" in why(plan, 3)
    assert why(plan, 1).endswith("(p0 v1, p1 v2); step 50 is newer and durable")


@pytest.mark.parametrize("state", [State.WRITING, State.COMPLETE, State.DRAINING])
def test_nothing_goes_before_a_newer_one_is_durable(state: State) -> None:
    undurable = [checkpoint(n, n * 10, State.COMPLETE) for n in range(1, 4)]
    plan = made([*undurable, checkpoint(4, 40, state)], {"keep_newest": 1})
    assert deleted(plan) == set()
    assert why(plan, 1) == "no newer one of its run is durable"
    # The newest durable one stays too, while newer ones are not durable.
    plan = made([*five(state=state)], {"keep_newest": 1})
    assert deleted(plan) == {1, 2, 3}


def test_a_run_that_began_again_keeps_its_new_steps() -> None:
    # The steps 10 and 20 were written after 3000: they are the newest, and 3000 may be stale.
    old = [checkpoint(n, n * 1000) for n in (1, 2, 3)]
    plan = made([*old, checkpoint(4, 10), checkpoint(5, 20)], {"keep_newest": 1})
    assert deleted(plan) == {1, 2, 4}
    plan = made([*old, checkpoint(4, 10)], {"keep_newest": 1})
    assert deleted(plan) == {1, 2}


def test_without_a_step_only_its_age_counts() -> None:
    ones = [checkpoint(n, None) for n in (1, 2, 3)]
    plan = made(ones, {"keep_newest": 1})
    assert deleted(plan) == set()
    assert "it has no step, so only delete_after_days" in why(plan, 1)
    assert deleted(made(ones, {"delete_after_days": 1})) == {1, 2}


def test_what_was_taken_back_makes_no_other_one_old() -> None:
    # The first was deleted, taken back now, and is durable since its first hour.
    ready_ns = NOW_NS - DAY_NS // 2
    back = checkpoint(1, None, ready_ns=ready_ns, durable_ns=HOUR_NS)
    old, newest = checkpoint(2, None), checkpoint(3, None)
    table = {"delete_after_days": 1, "wait_hours": 1}
    plan = made([back, old, newest], table)
    assert deleted(plan) == {2}
    assert why(plan, 3) == "no newer one of its run is durable"
    assert [one.successor for one in plan.deletions] == [newest]
    # Step 7 goes for step 8, so it cannot be what stays when another one goes.
    steps = [checkpoint(4, 7, durable_ns=NOW_NS), checkpoint(5, 8, durable_ns=4 * HOUR_NS)]
    last = newest._replace(durable_ns=5 * HOUR_NS)
    assert deleted(made([last, *steps], {"delete_after_days": 1})) == {4}


def test_a_clock_that_was_behind_during_a_save_makes_nothing_old() -> None:
    # Step 30 was saved in 1970, between others of today.
    today_ns = NOW_NS - DAY_NS
    ones = [
        checkpoint(1, 10, ready_ns=today_ns),
        checkpoint(2, 20, ready_ns=today_ns + 1),
        checkpoint(3, 30, ready_ns=1),
        checkpoint(4, 40, ready_ns=today_ns + 2),
    ]
    assert deleted(made(ones, {"delete_after_days": 30})) == set()
    assert deleted(made(ones, {"delete_after_days": 30}, now_ns=NOW_NS + 40 * DAY_NS)) == {1, 2, 3}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (Said(inos=frozenset({2})), {2}),
        (Said(paths=frozenset({b"r/c3"})), {3}),
        (Said(paths=frozenset({b"r/c3/file"})), {3}),
        (Said(paths=frozenset({b"r"})), {1, 2, 3, 4}),
        (Said(paths=frozenset({b""})), {1, 2, 3, 4}),
        (Said(paths=frozenset({b"r/c"})), set[int]()),
    ],
)
def test_what_people_said_stays(said: Said, kept: set[int]) -> None:
    plan = made(five(), {"keep_newest": 1}, said=said)
    assert deleted(plan) == {1, 2, 3, 4} - kept
    for ino in kept:
        assert why(plan, ino) in ("it is promoted", "it is pinned")


def test_nothing_goes_that_is_not_whole_and_alone() -> None:
    writing = checkpoint(1, 10, State.WRITING, reason=".metadata is missing")
    plan = made([writing, *five()[1:]], {"keep_newest": 1})
    assert 1 not in deleted(plan)
    assert why(plan, 1) == "it is not complete: .metadata is missing"
    plan = made([checkpoint(1, 10, extent=Extent.FILES), *five()[1:]], {"keep_newest": 1})
    assert deleted(plan) == {2, 3, 4}
    plan = made(five(), {"keep_newest": 1}, is_made=False)
    assert deleted(plan) == set()
    assert "not looked at as a whole" in why(plan, 1)


def test_an_unknown_metric_keeps() -> None:
    ones = [checkpoint(n, n) for n in (1, 7, 8, 9)]
    best = {"number": 1, "file": "m", "key": "k", "best": "max"}
    plan = made(ones, {"keep_best": best})
    assert deleted(plan) == {1}
    assert why(plan, 7).startswith("its k is not known: evicted")
    assert deleted(made(ones, {"keep_best": {**best, "unmeasured": "delete"}})) == {1, 8}


def test_a_large_share_is_asked_about() -> None:
    ones = [checkpoint(n, n) for n in range(1, 11)]
    small = made(ones, {"keep_newest": 10 - FEW})
    assert split(small, frozenset(), 0.0) == (small.deletions, None)
    plan = made(ones, {"keep_newest": 4})
    assert len(plan.deletions) == 6
    assert split(plan, frozenset(), 0.6) == (plan.deletions, None)
    admitted, asked = split(plan, frozenset(), 0.5)
    assert admitted == []
    assert asked is not None
    assert (len(asked.deletions), asked.size) == (6, 60)
    assert asked.why == "it deletes 60 % of the checkpoints under its policies"
    approved = {one.token for one in plan.deletions}
    assert split(plan, approved, 0.5) == (plan.deletions, None)
    # A checkpoint that changed, or a policy that changed, was not approved.
    other = [one._replace(evidence="other") for one in ones]
    assert split(made(other, {"keep_newest": 4}), approved, 0.5)[0] == []
    assert split(made(ones, {"keep_newest": 4}, {"keep_newest": 3}), approved, 0.5)[0] == []
    # Few large ones count by their bytes. Checkpoints that no policy may delete do not count.
    large = [one._replace(size=1000) if one.ino <= 5 else one for one in ones]
    admitted, asked = split(made(large, {"keep_newest": 5}), frozenset(), 0.5)
    assert asked is not None
    assert asked.why == "it deletes 99 % of the bytes under its policies"
    rest = [checkpoint(n, n, run=b"s", path=b"s/%d" % n) for n in range(11, 30)]
    assert split(made([*ones, *rest], {"run": "r", "keep_newest": 4}), (), 0.5)[0] == []


def test_bytes_leave_the_disk_after_a_time() -> None:
    ones = [*five(), checkpoint(6, 60, State.COMPLETE)]
    plan = made(ones, {"evict_after_hours": 2}, {"evict_after_hours": 3}, now_ns=7 * HOUR_NS)
    assert {one.checkpoint.ino for one in plan.evictions} == {1, 2, 3, 4}
    assert plan.evictions[0].evict == "p0 v1, p1 v2"
    plan = made(ones, {"evict_after_hours": 2, "keep_newest": 5}, now_ns=7 * HOUR_NS)
    assert deleted(plan) == {1}
    assert {one.checkpoint.ino for one in plan.evictions} == {2, 3, 4, 5}


def test_objects_move_to_another_storage_class_after_a_time() -> None:
    warm = {"storage_class": "STANDARD_IA", "transition_after_days": 98}
    cold = {"storage_class": "GLACIER_IR", "transition_after_days": 99.9}
    ones = [*five(), checkpoint(6, 60, State.COMPLETE), checkpoint(7, 70)]

    def moves(plan: Plan) -> dict[int, str]:
        found = {one.checkpoint.ino: one.transition for one in plan.transitions}
        return {ino: one.storage_class for ino, one in found.items() if one is not None}

    wanted = {1: "GLACIER_IR", 2: "GLACIER_IR"} | dict.fromkeys((3, 4, 5, 7), "STANDARD_IA")
    assert moves(made(ones, warm, cold)) == wanted
    transition = made(ones, warm, cold).transitions[0].transition
    assert transition is not None
    assert (transition.policy, transition.why) == ("p1 v2", "it is older than 99.9 days")
    # Those that are there, are deleted, promoted or pinned, or of a part of the namespace.
    ones[2] = ones[2]._replace(storage_class="STANDARD_IA")
    said = Said(frozenset({4}), frozenset({b"r/c5/file"}))
    plan = made(ones, warm, {**cold, "keep_newest": 6}, said=said)
    assert deleted(plan) == {1}
    assert moves(plan) == {2: "GLACIER_IR", 7: "STANDARD_IA"}
    assert moves(made(ones, warm, is_made=False)) == {}
