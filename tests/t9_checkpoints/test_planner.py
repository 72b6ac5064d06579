"""The laws of retention hold for random runs, policies, promotions and clocks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

from gateway.checkpoints.facts import Extent, State
from gateway.retention import planner, policy
from gateway.retention.facts import Checkpoint, Current, Measure, Plan, Situation
from gateway.retention.policy import DAY_NS, HOUR_NS, Best
from gateway.retention.share import FEW, split

NOW_NS = 100 * DAY_NS
EXAMPLES = 1500
PROPERTY = hypothesis.settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None
)


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
            named.setdefault("grace_hours", 0)
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


# Random situations.

TIERS = [
    {"older_than_days": 10, "one_per_hours": 240},
    {"older_than_days": 40, "one_per_hours": 960},
]


def situation_of(draw: random.Random, size: int) -> Situation:
    """Return a random situation. Most checkpoints have what lets them be deleted."""
    checkpoints = []
    is_ordered = draw.random() < 0.5
    for ino in range(1, size + 1):
        run = draw.choice([b"r", b"r", b"s"])
        state = draw.choice([*State, *4 * [State.DURABLE]])
        ready_ns = ino * 5 * DAY_NS if is_ordered else draw.randint(0, 20) * 5 * DAY_NS
        durable_ns = ready_ns + draw.choice([0, 0, HOUR_NS, 40 * DAY_NS])
        checkpoints.append(
            checkpoint(
                ino,
                draw.choice([None, ino, ino, ino, ino if is_ordered else draw.randint(0, 6)]),
                state,
                ready_ns=ready_ns,
                run=run,
                path=run + b"/c%d" % ino,
                extent=draw.choice([*Extent, *4 * [Extent.TREE]]),
                durable_ns=durable_ns if state is State.DURABLE else None,
            )
        )
    tables = [table_of(draw) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
    inos = frozenset(draw.sample(range(1, 12), draw.choice([0, 0, 2])))
    pins = [b"r", b"s/c3", b"r/c4/below", b"r/c1", b"x"]
    paths = frozenset(draw.sample(pins, draw.choice([0, 0, 1])))
    now_ns = draw.choice([0, 50 * DAY_NS, NOW_NS, 150 * DAY_NS])
    is_made = draw.random() < 0.9
    return Situation(checkpoints, policies(*tables), Said(inos, paths), now_ns, is_made)


def table_of(draw: random.Random) -> dict[str, Any]:
    """Return a random policy: mostly one keep, sometimes several, seldom none."""
    best = {"number": draw.randint(1, 2), "file": "m", "key": "k"}
    best |= {"best": draw.choice(["min", "max"]), "unmeasured": draw.choice(["keep", "delete"])}
    says = {
        "keep_newest": draw.randint(1, 3),
        "keep_every_steps": draw.randint(2, 4),
        "keep_best": best,
        "thin": TIERS[: draw.randint(1, 2)],
        "delete_after_days": draw.choice([1, 20, 60]),
    }
    keys = draw.sample(sorted(says), draw.choice([0, 1, 1, 1, 2, 3]))
    table: dict[str, Any] = {"run": draw.choice(["*", "*", "r"])} | {key: says[key] for key in keys}
    if draw.random() < 0.2 or not keys:
        table["evict_after_hours"] = 1
    if draw.random() < 0.2:
        table["path"] = "*/c[1-5]"
    if keys:
        table["grace_hours"] = draw.choice([0, 0, 24 * 30])
    return table


def newer(one: Checkpoint, two: Checkpoint) -> bool:
    """Return whether the second is newer than the first by every order that there is."""
    if one.run != two.run or two.ready_ns <= one.ready_ns:
        return False
    return one.step is None or (two.step is not None and two.step > one.step)


def require_laws(situation: Situation, plan: Plan) -> None:
    gone = deleted(plan)
    kept = [one for one in situation.checkpoints if one.ino not in gone]
    assert situation.is_made or not gone
    for run in {one.run for one in situation.checkpoints}:
        mine = [one for one in situation.checkpoints if one.run == run and one.state != "writing"]
        for ones in (mine, [one for one in mine if one.state == "durable"]):
            stepped = [one for one in ones if one.step is not None]
            if stepped:
                last = max(one.step or 0 for one in stepped)
                assert not gone & {one.ino for one in stepped if one.step == last}
            if ones:
                last_ns = max(one.ready_ns for one in ones)
                assert not gone & {one.ino for one in ones if one.ready_ns == last_ns}
    for decision in plan.deletions:
        one, successor = decision.checkpoint, decision.successor
        assert one.state != "writing"
        assert one.extent != Extent.FILES
        assert one.ino not in situation.protected.inos
        for pin in situation.protected.paths:
            assert one.path != pin
            assert not one.path.startswith(pin + b"/")
            assert not pin.startswith(one.path + b"/")
        assert successor in kept
        assert successor is not None
        assert successor.state == "durable"
        assert newer(one, successor)
        require_let_go(situation, one, decision.policies)


def require_let_go(situation: Situation, one: Checkpoint, names: Sequence[str]) -> None:
    """Require that every policy over a checkpoint that can delete lets it go."""
    over = [
        current
        for current in situation.policies
        if current.policy.selects(one.run, one.path) and current.policy.deletes
    ]
    assert over
    assert [str(current) for current in over] == list(names)
    for current in over:
        said = current.policy
        mine = [
            two
            for two in situation.checkpoints
            if two.run == one.run and said.selects(two.run, two.path) and two.state != "writing"
        ]
        lower = [two.ready_ns for two in situation.checkpoints if is_lower(two, one)]
        age_ns = situation.now_ns - max([one.ready_ns, *lower])
        if one.step is None:
            assert said.delete_after_ns is not None
        if said.delete_after_ns is not None and not said.thin:
            assert age_ns >= said.delete_after_ns
        if said.thin:
            assert age_ns >= min(said.thin[0].older_than_ns, said.delete_after_ns or 10**30)
        if said.keep_every_steps is not None and one.step is not None:
            assert one.step % said.keep_every_steps
        if said.keep_newest is not None:
            assert len({two.step for two in mine if is_higher(two, one)}) >= (
                said.keep_newest if one.step is not None else 0
            )
            later = [two for two in mine if two.ready_ns > one.ready_ns]
            assert len(later) >= said.keep_newest
        if said.keep_best is not None:
            measured = metric(one, said.keep_best)
            assert not measured.is_unread
            if measured.value is None:
                assert said.keep_best.unmeasured == "delete"
            else:
                sign = 1 if said.keep_best.best == "max" else -1
                values = [metric(two, said.keep_best).value for two in mine]
                better = [v for v in values if v is not None and sign * (v - measured.value) > 0]
                assert len(better) >= said.keep_best.number
        assert any(
            two.state == "durable"
            and newer(one, two)
            and situation.now_ns - (two.durable_ns or 0) >= said.grace_ns
            for two in situation.checkpoints
        )


def is_in_order(checkpoints: Sequence[Checkpoint]) -> bool:
    stepped = [one for one in checkpoints if one.step is not None]
    stepped.sort(key=lambda one: one.step or 0)
    return all(one.ready_ns <= two.ready_ns for one, two in pairwise(stepped))


def is_lower(two: Checkpoint, one: Checkpoint) -> bool:
    if one.step is None or two.step is None or two.run != one.run or two.state == "writing":
        return False
    return two.step < one.step


def is_higher(two: Checkpoint, one: Checkpoint) -> bool:
    return one.step is not None and two.step is not None and two.step > one.step


def test_the_laws_hold_for_random_runs() -> None:
    seen: Counter[int] = Counter()

    @PROPERTY
    @hypothesis.given(st.integers(0, 2**32), st.integers(4, 14))
    def run(seed: int, size: int) -> None:
        draw = random.Random(seed)
        situation = situation_of(draw, size)
        plan = planner.plan(situation, metric)
        require_laws(situation, plan)
        seen[len(plan.deletions)] += 1
        shuffled = list(situation.checkpoints)
        draw.shuffle(shuffled)
        again = planner.plan(situation._replace(checkpoints=shuffled), metric)
        assert again.decisions == plan.decisions
        # What is left after a plan is not planned for deletion in the same moment. Where the times
        # contradict the steps, an age may count from an earlier step that is gone then.
        gone = deleted(plan)
        left = [one for one in situation.checkpoints if one.ino not in gone]
        again = planner.plan(situation._replace(checkpoints=left), metric)
        assert not again.deletions or not is_in_order(situation.checkpoints)

    run()
    assert sum(seen.values()) - seen[0] > EXAMPLES // 8, "too few plans delete anything"
    assert len(seen) > 4


# One example of each law and each keep, with its words.


@pytest.mark.parametrize(
    ("table", "gone", "reasons"),
    [
        ({"keep_newest": 2}, {1, 2, 3}, {4: "among the newest 2", 1: "not among the newest 2"}),
        ({"keep_newest": 1, "keep_every_steps": 20}, {1, 3}, {2: "multiple of 20"}),
        ({"delete_after_days": 99.9}, {1, 2}, {3: "younger than 99.9 days", 1: "older than 99.9"}),
        ({"delete_after_days": 1}, {1, 2, 3, 4}, {5: "newest complete one of its run"}),
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
        ({"keep_newest": 1, "grace_hours": 24 * 200}, set(), {1: "less than 4800 hours"}),
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
