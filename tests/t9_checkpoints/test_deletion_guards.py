"""The deletion guards hold for random runs, policies, promotions and clocks. What a plan shows is
done, whatever is killed meanwhile."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from gateway.catalogue.facts import TRUSTED, CheckpointState, Grade
from gateway.common import clock
from gateway.common.failpoints import RETENTION_ACTION
from gateway.common.types import FIRST_NS, Extent
from gateway.db.engine import Database
from gateway.lifecycle.retention import planner, policy, store
from gateway.lifecycle.retention.facts import Measure, Measuring, Plan, PlanCheckpoint, PlanInputs
from gateway.lifecycle.retention.policy import DAY_NS, HOUR_NS, Best
from tests.support.drainsite import Site
from tests.support.forking import context
from tests.support.namespace import Namespace
from tests.support.t9.governing import govern, looked, save, wanted_of
from tests.support.t9.planner import (
    NOW_NS,
    Said,
    checkpoint,
    deleted,
    metric,
    policies,
)
from tests.support.t9.retention import live
from tests.support.volumes import query

EXAMPLES = 1500
PROPERTY = hypothesis.settings(max_examples=EXAMPLES, derandomize=True, database=None)

TIERS = [
    {"older_than_days": 10, "one_per_hours": 240},
    {"older_than_days": 40, "one_per_hours": 960},
]


def situation_of(draw: random.Random, size: int) -> PlanInputs:
    """Return a random situation. Most checkpoints have what lets them be deleted."""
    checkpoints = []
    is_ordered = draw.random() < 0.5
    places = list(range(1, size + 1)) if is_ordered else draw.sample(range(1, size + 1), size)
    for ino, place in enumerate(places, 1):
        run = draw.choice([b"r", b"r", b"s"])
        state = draw.choice([*CheckpointState, *5 * [CheckpointState.DURABLE]])
        is_whole = state not in (CheckpointState.WRITING, CheckpointState.BROKEN)
        days = place * 5 if draw.random() < 0.8 else draw.randint(-9, 20) * 5
        ready_ns = FIRST_NS + days * DAY_NS
        durable_ns = ready_ns + draw.choice([0, 0, HOUR_NS, 40 * DAY_NS])
        grade = draw.choice([*Grade, *4 * [Grade.LISTED], None])
        checkpoints.append(
            checkpoint(
                ino,
                draw.choice([None, ino, ino, ino, ino if is_ordered else draw.randint(0, 6)]),
                state,
                ready_ns=ready_ns,
                run=run,
                path=run + b"/c%d" % ino,
                extent=draw.choice([*Extent, *4 * [Extent.TREE]]),
                durable_ns=durable_ns if state is CheckpointState.DURABLE else None,
                storage_class=draw.choice([None, None, None, "STANDARD_IA"]),
                grade=grade if is_whole else None,
                completion=place if draw.random() < 0.9 else None,
                size=draw.choice([3, 6, 10, 10, 10]),
            )
        )
    tables = [table_of(draw) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
    inos = frozenset(draw.sample(range(1, 12), draw.choice([0, 0, 2])))
    pins = [b"r", b"s/c3", b"r/c4/below", b"r/c1", b"x"]
    paths = frozenset(draw.sample(pins, draw.choice([0, 0, 1])))
    now_ns = draw.choice([FIRST_NS, FIRST_NS + 50 * DAY_NS, NOW_NS, FIRST_NS + 150 * DAY_NS])
    is_made = draw.random() < 0.9
    referred = dict.fromkeys(draw.sample(range(1, 12), draw.choice([0, 0, 1])), "a link")
    said = Said(inos, paths)
    return PlanInputs(checkpoints, policies(*tables), said, now_ns, is_made, referred)


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
        table["storage_class"] = draw.choice(["STANDARD_IA", "GLACIER_IR"])
        table["transition_after_days"] = draw.choice([0, 20])
    if draw.random() < 0.2:
        table["path"] = "*/c[1-5]"
    if keys:
        table["wait_hours"] = draw.choice([0, 0, 24 * 30])
    return table


def is_whole(one: PlanCheckpoint) -> bool:
    return one.state in ("complete", "draining", "durable")


def newer(one: PlanCheckpoint, two: PlanCheckpoint) -> bool:
    """Return whether the second is newer than the first, and may stand for it."""
    if one.completion is None or two.completion is None or one.run != two.run:
        return False
    is_trusted = two.state == "durable" and two.grade in TRUSTED
    return two.completion > one.completion and is_trusted and 2 * two.size >= one.size


def require_guards(situation: PlanInputs, plan: Plan, measure: Measuring = metric) -> None:
    gone = deleted(plan)
    kept = [candidate for candidate in situation.checkpoints if candidate.ino not in gone]
    assert situation.is_made or not gone
    assert not gone & set(situation.referred)
    for run in {candidate.run for candidate in situation.checkpoints}:
        mine = [
            candidate
            for candidate in situation.checkpoints
            if candidate.run == run and is_whole(candidate)
        ]
        durable = [candidate for candidate in mine if candidate.state == "durable"]
        for checkpoints in (
            mine,
            durable,
            [candidate for candidate in durable if candidate.grade in TRUSTED],
        ):
            numbered = [
                candidate.completion
                for candidate in checkpoints
                if candidate.completion is not None
            ]
            last = max(numbered, default=None)
            assert not gone & {
                candidate.ino for candidate in checkpoints if candidate.completion == last
            }
    for decision in plan.deletions:
        plan_checkpoint, successor = decision.checkpoint, decision.successor
        assert is_whole(plan_checkpoint)
        assert plan_checkpoint.grade is not None
        assert plan_checkpoint.extent != Extent.FILES
        assert plan_checkpoint.ino not in situation.protected.inos
        require_unpinned(situation, plan_checkpoint)
        assert successor in kept
        assert successor is not None
        assert successor.state == "durable"
        assert newer(plan_checkpoint, successor)
        require_let_go(situation, plan_checkpoint, decision.policies, measure)
    for decision in [*plan.evictions, *plan.transitions]:
        assert decision.checkpoint.state == "durable"
        assert decision.checkpoint.ino not in gone
        require_unpinned(situation, decision.checkpoint)
    for decision in plan.transitions:
        plan_checkpoint, transition = decision.checkpoint, decision.transition
        assert situation.is_made
        assert plan_checkpoint.ino not in situation.protected.inos
        assert transition is not None
        assert transition.storage_class != plan_checkpoint.storage_class
        [current] = [current for current in situation.policies if str(current) == transition.policy]
        assert current.policy.selects(plan_checkpoint.run, plan_checkpoint.path)
        assert current.policy.storage_class == transition.storage_class
        assert plan_checkpoint.ready_ns >= FIRST_NS or plan_checkpoint.completion is not None
        assert situation.now_ns - plan_checkpoint.ready_ns >= (
            current.policy.transition_after_ns or 0
        )


def require_unpinned(situation: PlanInputs, one: PlanCheckpoint) -> None:
    for pin in situation.protected.paths:
        assert one.path != pin
        assert not one.path.startswith(pin + b"/")
        assert not pin.startswith(one.path + b"/")


def require_let_go(
    situation: PlanInputs, one: PlanCheckpoint, names: Sequence[str], measure: Measuring
) -> None:
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
            if two.run == one.run and said.selects(two.run, two.path) and is_whole(two)
        ]
        older = [two.ready_ns for two in situation.checkpoints if is_older(two, one)]
        born_ns = max([one.ready_ns, *older])
        age_ns = situation.now_ns - born_ns
        if one.grade == Grade.MARKED:
            assert said.is_by_age
        if said.thin or said.delete_after_ns is not None:
            assert born_ns >= FIRST_NS
        if one.step is None:
            assert said.delete_after_ns is not None
        if said.delete_after_ns is not None and not said.thin:
            assert age_ns >= said.delete_after_ns
        if said.thin:
            assert age_ns >= min(said.thin[0].older_than_ns, said.delete_after_ns or 10**30)
        if said.keep_every_steps is not None and one.step is not None:
            assert one.step % said.keep_every_steps
        if said.keep_newest is not None:
            assert sum(is_older(one, two) for two in mine) >= said.keep_newest
        if said.keep_best is not None:
            measured = measure(one, said.keep_best)
            assert not measured.is_unread
            if measured.value is None:
                assert said.keep_best.unmeasured == "delete"
            else:
                sign = 1 if said.keep_best.best == "max" else -1
                values = [measure(two, said.keep_best).value for two in mine]
                better = [v for v in values if v is not None and sign * (v - measured.value) > 0]
                assert len(better) >= said.keep_best.number
        assert any(
            newer(one._replace(size=0), two)
            and situation.now_ns - (two.durable_ns or 0) >= said.wait_ns
            for two in situation.checkpoints
        )


def is_in_order(checkpoints: Sequence[PlanCheckpoint]) -> bool:
    whole = [
        plan_checkpoint
        for plan_checkpoint in checkpoints
        if plan_checkpoint.completion is not None and is_whole(plan_checkpoint)
    ]
    whole.sort(key=lambda plan_checkpoint: plan_checkpoint.completion or 0)
    return all(plan_checkpoint.ready_ns <= two.ready_ns for plan_checkpoint, two in pairwise(whole))


def is_older(two: PlanCheckpoint, one: PlanCheckpoint) -> bool:
    """Return whether the first is older than the second."""
    if two.run != one.run or not (is_whole(one) and is_whole(two)):
        return False
    return two.completion is not None and (one.completion or -1) > two.completion


def test_the_deletion_guards_hold_for_random_runs() -> None:
    seen: Counter[int] = Counter()
    others: Counter[str] = Counter()

    @PROPERTY
    @hypothesis.given(st.integers(0, 2**32), st.integers(4, 14))
    def run(seed: int, size: int) -> None:
        draw = random.Random(seed)
        situation = situation_of(draw, size)
        plan = planner.plan(situation, metric)
        require_guards(situation, plan)
        seen[len(plan.deletions)] += 1
        others.update(evict=len(plan.evictions), move=len(plan.transitions))
        shuffled = list(situation.checkpoints)
        draw.shuffle(shuffled)
        again = planner.plan(situation._replace(checkpoints=shuffled), metric)
        assert again.decisions == plan.decisions
        # What is left after a plan is not planned for deletion in the same moment. Where the times
        # contradict the order, an age may count from an older one that is gone then.
        gone = deleted(plan)
        left = [
            plan_checkpoint
            for plan_checkpoint in situation.checkpoints
            if plan_checkpoint.ino not in gone
        ]
        again = planner.plan(situation._replace(checkpoints=left), metric)
        assert not again.deletions or not is_in_order(situation.checkpoints)

    run()
    assert sum(seen.values()) - seen[0] > EXAMPLES // 8, "too few plans delete anything"
    assert len(seen) > 4
    assert min(others["evict"], others["move"]) > EXAMPLES // 8


def test_a_revised_plan_is_the_plan_of_all_runs() -> None:
    gone: Counter[bool] = Counter()

    @PROPERTY
    @hypothesis.given(st.integers(0, 2**32), st.integers(4, 14))
    def run(seed: int, size: int) -> None:
        draw = random.Random(seed)
        before = situation_of(draw, size)
        [other] = policies(table_of(draw))
        replaced = draw.choice([[], [draw.choice(before.policies)]])
        rest = [
            versioned_policy
            for versioned_policy in before.policies
            if versioned_policy not in replaced
        ]
        after = before._replace(policies=[*rest, other])
        known = planner.plan(before, metric)
        part = planner.part(after, [other, *replaced])
        revised = planner.revised(known, part, metric)
        whole = planner.plan(after, metric)
        assert revised.decisions == whole.decisions
        assert set(revised.selected) == set(whole.selected)
        gone[whole.decisions != known.decisions and len(part.checkpoints) < size] += 1

    run()
    assert gone[True] > EXAMPLES // 20, "too few plans differ of which a part was kept"


# What is shown is applied.

SEEDS = (3, 4, 5, 9)
"""Their plans delete, evict and move."""
LIVES = 8
"""Processes that may be killed. The one after them is not."""


def tables_of(draw: random.Random) -> list[dict[str, Any]]:
    """Return random policies, of which one deletes and another evicts or moves."""
    deleting = table_of(draw)
    while not policy.of({"name": "any", **deleting}).deletes:
        deleting = table_of(draw)
    others: list[dict[str, Any]] = [
        {"run": "*", "evict_after_hours": 1},
        {"run": "*", "storage_class": "STANDARD_IA", "transition_after_days": 20},
        table_of(draw),
    ]
    return [deleting, *draw.sample(others, draw.randint(1, 2))]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_shown_is_applied_whatever_is_killed(
    seed: int, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    saved = save(site, draw)
    read = govern(site, draw, saved, tables_of(draw))
    monkeypatch.setattr(clock, "reading", lambda: read)

    def measure(plan_checkpoint: PlanCheckpoint, _best: Best) -> Measure:
        return Measure(saved.metrics[plan_checkpoint.path])

    situation, planned = looked(site)
    plan = planned.plan
    require_guards(situation, plan, measure)
    wanted = wanted_of(plan)
    assert {what for what, _path, _author in wanted} == {"trash", "evict", "transition"}
    if planned.asked is not None:
        database = Database(site.settings.database_url)
        with database.writing() as session:
            assert store.approve(session, planned.asked, "a person")
        database.close()
    site.namespace.close()
    lives = 0
    while True:
        point = RETENTION_ACTION.format(when=draw.choice(["begun", "done", "ended"]))
        armed = "" if lives == LIVES else f"{point}.{draw.randint(1, 3)}"
        process = context.Process(target=live, args=(site.settings, armed, read))
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        if process.exitcode == 0:
            break
        lives += 1
    site.namespace = Namespace(site.settings)
    done = query(site.settings, "SELECT what, path, author FROM action")
    assert {(what, bytes(path), author) for what, path, author in done} == wanted
    trashed = query(site.settings, "SELECT path FROM trash WHERE state = 'kept'")
    assert {bytes(path) for (path,) in trashed} == {
        deletion.checkpoint.path for deletion in plan.deletions
    }
    if saved.is_ordered:
        assert not looked(site)[1].plan.deletions
    print(f"seed {seed}: {Counter(candidate[0] for candidate in wanted)}, {lives} kills")
