"""One example of each deletion guard and of each keep, with its words."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.catalogue.facts import CheckpointState, Grade
from gateway.common.types import FIRST_NS, Extent
from gateway.lifecycle.retention import planner
from gateway.lifecycle.retention.facts import Plan, PlanCheckpoint
from gateway.lifecycle.retention.policy import DAY_NS, HOUR_NS
from tests.support.t9.planner import NOW_NS, Said, checkpoint, deleted, made


def why(plan: Plan, ino: int) -> str:
    return next(decision.why for decision in plan.decisions if decision.checkpoint.ino == ino)


def five(**last: Any) -> list[PlanCheckpoint]:
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
        ({"run": "other", "keep_newest": 1}, set(), {1: "no enabled policy covers it"}),
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


@pytest.mark.parametrize(
    "state", [CheckpointState.WRITING, CheckpointState.COMPLETE, CheckpointState.DRAINING]
)
def test_nothing_goes_before_a_newer_one_is_durable(state: CheckpointState) -> None:
    undurable = [checkpoint(n, n * 10, CheckpointState.COMPLETE) for n in range(1, 4)]
    plan = made([*undurable, checkpoint(4, 40, state)], {"keep_newest": 1})
    assert deleted(plan) == set()
    assert why(plan, 1) == planner.NOT_DURABLE
    # The newest durable one stays too, while newer ones are not durable.
    plan = made([*five(state=state)], {"keep_newest": 1})
    assert deleted(plan) == {1, 2, 3}


def test_after_a_rollback_the_newest_are_those_that_were_saved_last() -> None:
    # The steps 10 and 20 were written after 3000, which is of an abandoned branch.
    old = [checkpoint(n, n * 1000) for n in (1, 2, 3)]
    plan = made([*old, checkpoint(4, 10), checkpoint(5, 20)], {"keep_newest": 1})
    assert deleted(plan) == {1, 2, 3, 4}
    plan = made([*old, checkpoint(4, 10), checkpoint(5, 20)], {"keep_newest": 3})
    assert deleted(plan) == {1, 2}


@pytest.mark.parametrize(
    "state",
    [
        CheckpointState.WRITING,
        CheckpointState.BROKEN,
        CheckpointState.COMPLETE,
        CheckpointState.DRAINING,
        CheckpointState.DURABLE,
    ],
)
def test_what_is_broken_or_being_written_does_not_count_among_the_newest(
    state: CheckpointState,
) -> None:
    plan = made([*five(state=state)], {"keep_newest": 2})
    is_whole = state not in (CheckpointState.WRITING, CheckpointState.BROKEN)
    assert deleted(plan) == ({1, 2, 3} if is_whole else {1, 2})


@pytest.mark.parametrize("grade", [Grade.MARKED, None])
def test_nothing_goes_for_one_that_is_not_known_to_be_whole(grade: Grade | None) -> None:
    plan = made([*five(grade=grade)], {"keep_newest": 1})
    # The fourth is the newest that is known to be whole.
    assert deleted(plan) == {1, 2, 3}
    assert {deletion.successor and deletion.successor.ino for deletion in plan.deletions} == {4}
    alone = [checkpoint(1, 10), checkpoint(2, 20, grade=grade)]
    assert why(made(alone, {"keep_newest": 1}), 1) == planner.NOT_DURABLE


def test_what_is_much_smaller_stands_for_nothing() -> None:
    checkpoints = [*five(), checkpoint(6, 60, size=4), checkpoint(7, 70, size=5)]
    # The last has half of the bytes of the others. The one before it has more than half of that.
    assert deleted(made(checkpoints, {"keep_newest": 1})) == {1, 2, 3, 4, 5, 6}
    plan = made(checkpoints[:-1], {"keep_newest": 1})
    assert deleted(plan) == {1, 2, 3, 4}
    assert {deletion.successor and deletion.successor.ino for deletion in plan.deletions} == {5}
    assert why(plan, 5) == planner.SMALLER


def test_what_has_no_place_in_its_run_stays_and_stands_for_nothing() -> None:
    plan = made([*five(), checkpoint(6, 60, completion=None)], {"keep_newest": 1})
    assert deleted(plan) == {1, 2, 3, 4}
    assert why(plan, 6) == planner.NOT_GRADED
    assert why(made([*five(grade=None), checkpoint(6, 60)], {"keep_newest": 1}), 5) == (
        planner.NOT_GRADED
    )
    assert why(made([checkpoint(1, 10, completion=None)], {"keep_newest": 1}), 1) == (
        planner.NOT_GRADED
    )


def test_what_a_marker_shows_goes_only_by_its_age() -> None:
    checkpoints = [checkpoint(1, 10, grade=Grade.MARKED), *five()[1:]]
    for table in ({"keep_newest": 1}, {"keep_newest": 1, "delete_after_days": 1}):
        plan = made(checkpoints, table)
        assert deleted(plan) == {2, 3, 4}
        assert why(plan, 1) == f"{planner.MARKED} (p0 v1)"
    plan = made(checkpoints, {"delete_after_days": 1})
    assert deleted(plan) == {1, 2, 3, 4}
    assert "only its marker shows that it is whole" in why(plan, 1)
    assert deleted(made(checkpoints, {"delete_after_days": 1}, {"keep_newest": 1})) == {2, 3, 4}


def test_what_a_link_or_tracker_names_stays() -> None:
    plan = made(five(), {"keep_newest": 1}, referred={2: "the link best leads to it"})
    assert deleted(plan) == {1, 3, 4}
    assert why(plan, 2) == "the link best leads to it"


def test_without_a_step_only_its_age_counts() -> None:
    checkpoints = [checkpoint(n, None) for n in (1, 2, 3)]
    plan = made(checkpoints, {"keep_newest": 1})
    assert deleted(plan) == set()
    assert "it has no step, so only delete_after_days" in why(plan, 1)
    assert deleted(made(checkpoints, {"delete_after_days": 1})) == {1, 2}


def test_what_was_taken_back_makes_no_other_one_old() -> None:
    # The first was deleted, and was taken back now. Its place in the run is as it was.
    ready_ns = NOW_NS - DAY_NS // 2
    back = checkpoint(1, None, ready_ns=ready_ns, recorded_ns=FIRST_NS, durable_ns=FIRST_NS)
    checkpoints = [back, checkpoint(2, None), checkpoint(3, None)]
    plan = made(checkpoints, {"delete_after_days": 1, "wait_hours": 1})
    assert deleted(plan) == {2}
    assert "younger than 1 day" in why(plan, 1)
    later_ns = NOW_NS + DAY_NS
    assert deleted(made(checkpoints, {"delete_after_days": 1}, now_ns=later_ns)) == {1, 2}


def test_a_clock_that_was_behind_during_a_save_makes_nothing_old() -> None:
    # Step 30 was saved in 1970, between others of today.
    today_ns = NOW_NS - DAY_NS
    checkpoints = [
        checkpoint(1, 10, ready_ns=today_ns),
        checkpoint(2, 20, ready_ns=today_ns + 1),
        checkpoint(3, 30, ready_ns=1),
        checkpoint(4, 5, ready_ns=today_ns + 2),
    ]
    assert deleted(made(checkpoints, {"delete_after_days": 30})) == set()
    assert deleted(made(checkpoints, {"delete_after_days": 30}, now_ns=NOW_NS + 40 * DAY_NS)) == {
        1,
        2,
        3,
    }


@pytest.mark.parametrize("ready_ns", [0, 1, FIRST_NS - 1])
def test_no_age_counts_from_before_any_clock_was_set(ready_ns: int) -> None:
    checkpoints = [checkpoint(1, 10, ready_ns=ready_ns), checkpoint(2, 20), checkpoint(3, 30)]
    for table in ({"delete_after_days": 1}, {"thin": [{"older_than_days": 1, "one_per_hours": 9}]}):
        plan = made(checkpoints, table)
        assert 1 not in deleted(plan)
        assert why(plan, 1) == (
            "its age is not known: the clock was not set when it was complete (p0 v1)"
        )
    moves = {"storage_class": "STANDARD_IA", "transition_after_days": 1, "evict_after_hours": 1}
    plan = made(checkpoints, moves)
    assert {transition.checkpoint.ino for transition in plan.transitions} == {2, 3}
    assert {eviction.checkpoint.ino for eviction in plan.evictions} == {2, 3}


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
    writing = checkpoint(1, 10, CheckpointState.WRITING, reason=".metadata is missing")
    plan = made([writing, *five()[1:]], {"keep_newest": 1})
    assert 1 not in deleted(plan)
    assert why(plan, 1) == "it is not complete: .metadata is missing"
    broken = checkpoint(1, 10, CheckpointState.BROKEN, reason="2 of 5 files are gone")
    plan = made([broken, *five()[1:]], {"keep_newest": 1})
    assert 1 not in deleted(plan)
    assert why(plan, 1) == "it is broken: 2 of 5 files are gone"
    plan = made([checkpoint(1, 10, extent=Extent.FILES), *five()[1:]], {"keep_newest": 1})
    assert deleted(plan) == {2, 3, 4}
    plan = made(five(), {"keep_newest": 1}, is_made=False)
    assert deleted(plan) == set()
    assert "not looked at as a whole" in why(plan, 1)


def test_an_unknown_metric_keeps() -> None:
    checkpoints = [checkpoint(n, n) for n in (1, 7, 8, 9)]
    best = {"number": 1, "file": "m", "key": "k", "best": "max"}
    plan = made(checkpoints, {"keep_best": best})
    assert deleted(plan) == {1}
    assert why(plan, 7).startswith("its k is not known: evicted")
    assert deleted(made(checkpoints, {"keep_best": {**best, "unmeasured": "delete"}})) == {1, 8}


def test_bytes_leave_the_disk_after_a_time() -> None:
    checkpoints = [*five(), checkpoint(6, 60, CheckpointState.COMPLETE)]
    plan = made(
        checkpoints,
        {"evict_after_hours": 2},
        {"evict_after_hours": 3},
        now_ns=FIRST_NS + 7 * HOUR_NS,
    )
    assert {eviction.checkpoint.ino for eviction in plan.evictions} == {1, 2, 3, 4}
    assert plan.evictions[0].evict == "p0 v1, p1 v2"
    plan = made(
        checkpoints, {"evict_after_hours": 2, "keep_newest": 5}, now_ns=FIRST_NS + 7 * HOUR_NS
    )
    assert deleted(plan) == {1}
    assert {eviction.checkpoint.ino for eviction in plan.evictions} == {2, 3, 4, 5}


def test_objects_move_to_another_storage_class_after_a_time() -> None:
    warm = {"storage_class": "STANDARD_IA", "transition_after_days": 98}
    cold = {"storage_class": "GLACIER_IR", "transition_after_days": 99.9}
    checkpoints = [*five(), checkpoint(6, 60, CheckpointState.COMPLETE), checkpoint(7, 70)]

    def moves(plan: Plan) -> dict[int, str]:
        transitions = {
            decision.checkpoint.ino: decision.transition for decision in plan.transitions
        }
        return {ino: one.storage_class for ino, one in transitions.items() if one is not None}

    wanted = {1: "GLACIER_IR", 2: "GLACIER_IR"} | dict.fromkeys((3, 4, 5, 7), "STANDARD_IA")
    assert moves(made(checkpoints, warm, cold)) == wanted
    transition = made(checkpoints, warm, cold).transitions[0].transition
    assert transition is not None
    assert (transition.policy, transition.why) == ("p1 v2", "it is older than 99.9 days")
    # Those that are there, are deleted, promoted or pinned, or of a part of the namespace.
    checkpoints[2] = checkpoints[2]._replace(storage_class="STANDARD_IA")
    said = Said(frozenset({4}), frozenset({b"r/c5/file"}))
    plan = made(checkpoints, warm, {**cold, "keep_newest": 6}, said=said)
    assert deleted(plan) == {1}
    assert moves(plan) == {2: "GLACIER_IR", 7: "STANDARD_IA"}
    assert moves(made(checkpoints, warm, is_made=False)) == {}
