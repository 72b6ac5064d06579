"""Which deletions of a plan a person must approve first."""

from __future__ import annotations

import pytest

from gateway.catalogue.facts import Grade
from gateway.lifecycle.retention.approval import FEW, REASONS_SHOWN, Consent, split
from gateway.lifecycle.retention.facts import PlanCheckpoint
from tests.support.t9.planner import checkpoint, made

APPROVED = Consent(versions=frozenset({"p0 v1", "p1 v2"}))


def run(name: bytes, count: int, first: int = 1) -> list[PlanCheckpoint]:
    return [
        checkpoint(n, n, run=name, path=b"%s/c%d" % (name, n)) for n in range(first, first + count)
    ]


def test_the_first_plan_of_a_version_is_asked_about() -> None:
    plan = made([checkpoint(n, n) for n in range(1, 11)], {"keep_newest": 9})
    assert len(plan.deletions) == 1
    admitted, asked = split(plan, Consent(), 1.0)
    assert admitted == []
    assert asked is not None
    assert asked.why == "no deletion by p0 v1 was approved yet"
    assert asked.policies == ["p0 v1"]
    assert split(plan, APPROVED, 1.0) == (plan.deletions, None)
    # Another version was approved.
    assert split(plan, Consent(versions={"p0 v2"}), 1.0)[0] == []
    # Of two policies that let it go, one was never approved.
    both = made([checkpoint(n, n) for n in range(1, 11)], {"keep_newest": 9}, {"keep_newest": 8})
    assert split(both, Consent(versions={"p0 v1"}), 1.0)[0] == []
    assert split(both, APPROVED, 1.0)[1] is None


def test_what_a_marker_shows_is_asked_about_each_time() -> None:
    checkpoints = [checkpoint(1, 1, grade=Grade.MARKED), *(checkpoint(n, n) for n in range(2, 11))]
    plan = made(checkpoints, {"delete_after_days": 99.9})
    assert {deletion.checkpoint.ino for deletion in plan.deletions} == {1, 2}
    admitted, asked = split(plan, APPROVED, 1.0)
    assert [decision.checkpoint.ino for decision in admitted] == [2]
    assert asked is not None
    assert asked.why == "only a marker shows that r/c1 is whole"
    token = asked.deletions[0].token
    assert split(plan, APPROVED._replace(tokens={token}), 1.0) == (plan.deletions, None)


def test_a_large_share_of_one_run_is_asked_about_however_many_others_there_are() -> None:
    others = [
        plan_checkpoint for n in range(40) for plan_checkpoint in run(b"s%d" % n, 20, 20 * n + 1000)
    ]
    tables = {"run": "r", "keep_newest": 1}, {"run": "s*", "keep_newest": 20}
    plan = made([*run(b"r", 500), *others], *tables)
    admitted, asked = split(plan, APPROVED, 0.5)
    assert admitted == []
    assert asked is not None
    assert len(asked.deletions) == 499
    assert "it deletes 100 % of the checkpoints of run r" in asked.why
    # One policy over all: the run alone is asked about.
    plan = made([*run(b"r", 40), *run(b"s", 20, 100), *others], {"keep_newest": 19})
    admitted, asked = split(plan, APPROVED, 0.5)
    assert asked is not None
    assert {deletion.checkpoint.run for deletion in asked.deletions} == {b"r"}
    assert asked.why == "it deletes 52 % of the checkpoints of run r"
    assert len(admitted) == 41


@pytest.mark.parametrize(("count", "keeps", "asks"), [(8, 4, False), (7, 3, True), (5, 1, True)])
def test_a_few_are_asked_about_if_the_run_keeps_fewer(count: int, keeps: int, asks: bool) -> None:
    plan = made([checkpoint(n, n) for n in range(1, count + 1)], {"keep_newest": keeps})
    assert len(plan.deletions) == FEW
    # A share of nothing would ask about each.
    assert (split(plan, APPROVED, 0.0)[1] is not None) == asks
    assert (split(plan, APPROVED, 0.5)[1] is not None) == asks
    # What was approved and is not gone yet is not what the run keeps.
    if not asks:
        more = made([checkpoint(n, n) for n in range(1, count + 1)], {"keep_newest": 2})
        tokens = {deletion.token for deletion in more.deletions[:2]}
        assert split(more, APPROVED._replace(tokens=tokens), 0.0)[1] is not None


def test_a_large_share_of_a_policy_is_asked_about() -> None:
    # Each of ten runs loses two of five, which are two of the three that one policy selects.
    runs = [
        plan_checkpoint for n in range(10) for plan_checkpoint in run(b"r%d" % n, 5, 10 * n + 1)
    ]
    plan = made(
        runs, {"path": "*/c*[1-3]", "keep_newest": 1}, {"path": "*/c*[45]", "keep_newest": 2}
    )
    assert len(plan.deletions) == 20
    assert split(plan, APPROVED, 0.7) == (plan.deletions, None)
    admitted, asked = split(plan, APPROVED, 0.5)
    assert admitted == []
    assert asked is not None
    assert asked.why == "it deletes 67 % of the checkpoints under p0 v1"


def test_few_large_ones_count_by_their_bytes() -> None:
    large = [checkpoint(n, n, size=1000 if n <= 5 else 600) for n in range(1, 21)]
    assert split(made(large, {"keep_newest": 15}), APPROVED, 0.5)[1] is None
    large = [checkpoint(n, n, size=10_000 if n <= 5 else 5000) for n in range(1, 11)]
    admitted, asked = split(made(large, {"keep_newest": 5}), APPROVED, 0.5)
    assert admitted == []
    assert asked is not None
    assert "it deletes 67 % of the bytes of run r" in asked.why


def test_an_approval_is_of_these_deletions() -> None:
    checkpoints = [checkpoint(n, n) for n in range(1, 11)]
    plan = made(checkpoints, {"keep_newest": 4})
    assert split(plan, APPROVED, 0.6) == (plan.deletions, None)
    admitted, asked = split(plan, APPROVED, 0.5)
    assert admitted == []
    assert asked is not None
    assert (len(asked.deletions), asked.size) == (6, 60)
    approved = APPROVED._replace(tokens={deletion.token for deletion in plan.deletions})
    assert split(plan, approved, 0.5) == (plan.deletions, None)
    # A checkpoint that changed, or a policy that changed, was not approved.
    other = [plan_checkpoint._replace(evidence="other") for plan_checkpoint in checkpoints]
    assert split(made(other, {"keep_newest": 4}), approved, 0.5)[0] == []
    assert split(made(checkpoints, {"keep_newest": 4}, {"keep_newest": 3}), approved, 0.5)[0] == []


def test_not_more_reasons_are_told_than_a_person_reads() -> None:
    runs = [plan_checkpoint for n in range(9) for plan_checkpoint in run(b"r%d" % n, 5, 10 * n + 1)]
    _admitted, asked = split(made(runs, {"keep_newest": 1}), APPROVED, 0.5)
    assert asked is not None
    assert asked.why.count(";") == REASONS_SHOWN
    assert asked.why.endswith("and 7 more reasons")
