"""The order of the checkpoints of a run: what was complete last is the newest, whatever steps and
clocks say."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gateway.catalogue.facts import CheckpointState, Grade
from gateway.common.types import FIRST_NS
from gateway.lifecycle.retention.facts import PlanCheckpoint
from gateway.lifecycle.retention.keep_rules import RunOrder, Successors, successor

HALF = 0.5


def checkpoint(ino: int, **given: Any) -> PlanCheckpoint:
    """Return a durable checkpoint that was the ``ino``-th to become complete."""
    values: dict[str, Any] = {
        "completion": ino,
        "complete_ns": FIRST_NS + ino,
        "durable_ns": FIRST_NS + ino,
    }
    values |= {
        "grade": Grade.LISTED,
        "state": CheckpointState.DURABLE,
        "step": ino,
        "size": 10,
        **given,
    }
    return PlanCheckpoint(
        *(ino, b"run/step-%d" % ino, b"run", values["step"], 0, str(values["state"]), None, 1),
        *(values["size"], values["complete_ns"], values["durable_ns"], str(ino)),
        grade=values["grade"],
        completion=values["completion"],
    )


@pytest.mark.parametrize(
    "given",
    [
        {"state": CheckpointState.WRITING},
        {"state": CheckpointState.COMPLETE, "durable_ns": None},
        {"state": CheckpointState.DRAINING, "durable_ns": None},
        {"state": CheckpointState.BROKEN},
        {"grade": Grade.MARKED},
        {"grade": None},
        {"completion": None},
        {"completion": 1},
        {"size": 4},
        {"complete_ns": None},
        {"durable_ns": None},
    ],
)
def test_one_that_is_not_newer_durable_trusted_and_as_large_stands_for_none(
    given: dict[str, Any],
) -> None:
    old = checkpoint(1)
    assert successor(old, [old, checkpoint(2)], HALF) == checkpoint(2)
    assert successor(old, [old, checkpoint(2, **given)], HALF) is None


def test_the_order_is_that_of_completion_and_of_nothing_else() -> None:
    # After a rollback step 20 was saved last, by a clock that was behind.
    last = checkpoint(3, step=20, complete_ns=FIRST_NS)
    run = [checkpoint(1, step=900), checkpoint(2, step=1000), last]
    assert successor(run[1], run, HALF) == last
    assert successor(last, run, HALF) is None
    assert [RunOrder(run).is_newest(plan_checkpoint) for plan_checkpoint in run] == [
        False,
        False,
        True,
    ]
    # What has no place in the order is older and newer than none.
    waiting = checkpoint(9, completion=None)
    assert successor(waiting, [*run, waiting], HALF) is None
    assert not RunOrder([*run, waiting]).is_newest(waiting)
    assert RunOrder([*run, waiting]).since_ns(waiting) is None


def test_the_newest_that_is_large_enough_stands_for_an_older_one() -> None:
    random_ = random.Random(16)
    for _ in range(300):
        run = [
            checkpoint(ino, size=random_.choice([0, 1, 5, 9, 10, 50]))
            for ino in random_.sample(range(1, 30), random_.randrange(2, 12))
        ]
        for plan_checkpoint in run:
            fit = [
                two
                for two in run
                if (two.completion or 0) > (plan_checkpoint.completion or 0)
                and two.size >= HALF * plan_checkpoint.size
            ]
            newest = max(fit, key=lambda two: two.completion or 0, default=None)
            assert successor(plan_checkpoint, run, HALF) == newest


def test_the_wait_begins_when_the_first_newer_one_is_durable() -> None:
    random_ = random.Random(17)
    for _ in range(300):
        run = [
            checkpoint(
                ino,
                durable_ns=FIRST_NS + random_.randrange(30),
                grade=random_.choice([*Grade, Grade.ALIKE]),
            )
            for ino in range(1, random_.randrange(2, 12))
        ]
        order = RunOrder(run)
        for plan_checkpoint in run:
            times = [
                two.durable_ns for two in run if two.ino > plan_checkpoint.ino and two.is_trusted
            ]
            assert order.since_ns(plan_checkpoint) == min((ns or 0 for ns in times), default=None)


def test_an_age_begins_at_no_earlier_time_than_that_of_an_older_one() -> None:
    # The clock was not set during the first save, and behind during the fourth.
    times = (1, FIRST_NS + 50, FIRST_NS + 60, FIRST_NS + 5, FIRST_NS + 70)
    run = [checkpoint(ino, complete_ns=ns) for ino, ns in enumerate(times, 1)]
    order = RunOrder(run)
    found = [order.born_ns(plan_checkpoint) for plan_checkpoint in run]
    assert found == [None, *(FIRST_NS + ns for ns in (50, 60, 60, 70))]


def test_a_run_of_many_sizes_takes_no_square_of_comparisons() -> None:
    """The newer half is small, and stands for no one of the older half."""
    count = 20_000
    successors = Successors(HALF)
    for place in range(count):
        successors.add(checkpoint(count - place, size=1))
    assert len(successors._larger) == 1
    assert successors.of(checkpoint(1, size=100)) is None
