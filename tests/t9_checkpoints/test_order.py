"""The order of the checkpoints of a run, also of one that began again and wrote lower steps."""

from __future__ import annotations

import random
from typing import ClassVar

from gateway.retention.facts import Checkpoint
from gateway.retention.order import Order


class Counted(int):
    """A time that counts how often such times are compared."""

    compared: ClassVar[int] = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > int(other)

    def __le__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) <= int(other)


def checkpoint(ino: int, step: int, complete_ns: int, durable_ns: int | None) -> Checkpoint:
    state = "complete" if durable_ns is None else "durable"
    path = b"run/step-%d" % ino
    return Checkpoint(
        ino, path, b"run", step, 0, state, None, 1, 1, complete_ns, durable_ns, str(ino)
    )


def test_newer_ones_are_those_with_a_higher_step_and_a_later_time() -> None:
    random_ = random.Random(16)
    for _ in range(300):
        run = [
            checkpoint(
                ino,
                random_.randrange(8),
                random_.randrange(1, 12),
                random_.choice([None, random_.randrange(1, 30)]),
            )
            for ino in range(1, random_.randrange(2, 12))
        ]
        order = Order(run)
        for one in run:
            later = [
                two
                for two in run
                if two.is_durable
                and (two.step or 0) > (one.step or 0)
                and two.ready_ns > one.ready_ns
            ]
            found = order.newer(one)
            assert (found is None) == (not later)
            if found is not None:
                assert found.since_ns == min(two.durable_ns or 0 for two in later)
                assert found.stays in later
                assert order.newer(found.stays) is None


def test_a_run_that_began_again_takes_no_square_of_comparisons() -> None:
    """Ten times the same 400 steps, each time later."""
    steps = range(400)
    run = [
        checkpoint(
            1 + turn * 400 + step,
            step,
            Counted(1 + turn * 400 + step),
            Counted(1 + turn * 400 + step),
        )
        for turn in range(10)
        for step in steps
    ]
    Counted.compared = 0
    order = Order(run)
    assert order.newer(run[0]) is not None
    assert Counted.compared < 100 * len(run)
