"""The order of draining, without a drain."""

from __future__ import annotations

import random
import time

from gateway.drain.plan.order import AGEING, UploadOrder


def never(_ino: int) -> bool:
    return False


def filled(*files: tuple[int, bytes, int]) -> UploadOrder:
    order = UploadOrder()
    for ino, top, directory in files:
        order.add(ino, top, directory, bumped=False)
    return order


def drain(order: UploadOrder) -> list[int]:
    taken = []
    while one := order.take(1, never):
        taken += one
    return taken


def test_the_directory_whose_newest_file_was_sealed_last_goes_first() -> None:
    # Directory 1 has the first file and the last one.
    files = [(ino, b"run", 1 if ino in (10, 11, 12, 30) else 2) for ino in range(10, 31)]
    taken = drain(filled(*files))
    newest = [ino for turn, ino in enumerate(taken, 1) if turn % AGEING]
    assert newest[:3] == [10, 11, 12]
    assert taken.index(30) <= 5
    assert sorted(taken) == list(range(10, 31))


def test_the_newest_complete_checkpoint_goes_before_a_save_that_has_begun() -> None:
    # Directories 1 and 2 are complete, directory 3 was sealed last. File 40 is a checkpoint.
    files = [(ino, b"run", 1 + (ino - 10) // 10) for ino in range(10, 40)]
    order = filled(*files, (40, b"run", 4), (41, b"run", 4), (50, b"other", 5))
    order.put_first([(b"run", 1), (b"run", 2), (b"run", 40), (b"gone", 9)])
    taken = [order.take(1, never)[0] for _ in range(len(order))]
    assert sorted(taken) == [*range(10, 42), 50]
    # Each fourth pick is the oldest file, and the other run has its turn.
    newest = [ino for turn, ino in enumerate(taken, 1) if turn % AGEING and ino != 50]
    assert newest[:11] == [40, *range(20, 30)]
    assert max(map(taken.index, range(10, 30))) < min(map(taken.index, [*range(30, 40), 41]))


def test_ageing_is_bounded_whatever_else_arrives() -> None:
    """A file with n older files is taken after at most AGEING * (n + 1) picks."""
    older = 7
    order = filled(*((ino, b"old", 1) for ino in range(older + 1)))
    wanted = older
    for pick in range(1, AGEING * (older + 1) + 1):
        order.add(1000 + 2 * pick, b"new-%d" % pick, 1000 + pick, bumped=False)
        order.add(1001 + 2 * pick, b"new-%d" % pick, 1000 + pick, bumped=False)
        if order.take(1, never) == [wanted]:
            return
    raise AssertionError("starved")


def test_turns_go_on_in_the_order_that_replaces_another() -> None:
    """The files are read again repeatedly, which must not reset the ageing."""
    order = UploadOrder()
    for pick in range(AGEING):
        order = UploadOrder(order)
        order.add(1, b"run", 1, bumped=False)
        for ino in range(100 + 10 * pick, 110 + 10 * pick):
            order.add(ino, b"run", 2, bumped=False)
        if order.take(1, never) == [1]:
            return
    raise AssertionError("starved")


def test_top_level_directories_take_turns() -> None:
    small = [(ino, b"small", 1) for ino in range(1, 11)]
    burst = [(ino, b"burst", 100 + ino % 200) for ino in range(1000, 21_000)]
    first = filled(*small, *burst).take(20, never)
    # With ageing alone, only five of them would have been taken.
    assert {ino for ino, _, _ in small} <= set(first)
    assert len([ino for ino in first if ino >= 1000]) == 10


def test_what_a_person_bumped_goes_first_and_uses_no_turn() -> None:
    order = filled((1, b"a", 1), (2, b"a", 1))
    order.add(3, b"b", 2, bumped=True)
    order.add(4, b"b", 2, bumped=True)
    assert order.take(2, never) == [3, 4]
    assert sorted(order.take(9, never)) == [1, 2]


def test_what_is_not_to_be_had_uses_no_turn() -> None:
    order = filled(*((ino, b"x", 1) for ino in range(1, 101)))
    assert order.take(100, lambda ino: ino <= 95) == [96, 97, 98, 99, 100]
    assert len(order) == 0


def test_a_file_that_is_sealed_twice_is_taken_once() -> None:
    order = filled((1, b"a", 1), (2, b"a", 1), (1, b"a", 1))
    assert sorted(order.take(9, never)) == [1, 2]


def test_a_file_that_comes_back_is_older_than_all_others() -> None:
    """Its next try puts its directory neither before nor behind the others."""
    order = filled((1, b"a", 1), *((ino, b"a", 2) for ino in range(2, 9)))
    order.add(20, b"a", 3, bumped=False, is_again=True)
    order.add(21, b"a", 1, bumped=False, is_again=True)
    order.add(22, b"a", 2, bumped=False, is_again=True)
    taken = order.take(99, never)
    # Every fourth turn is of the oldest; of the others, the newest directory goes first.
    assert (taken[3], taken[7]) == (22, 21)
    assert set(taken[:7]) <= {*range(2, 9), 22}
    assert taken[-2:] == [1, 20]


class Linear(UploadOrder):
    """An order that compares all top-level directories for each pick: slow and simple."""

    def _next_top(self) -> bytes:
        return min(self._recent(), key=lambda name: self._served.get(name, 0))

    def _recent(self) -> list[bytes]:
        return sorted(self._tops, key=lambda name: -self.added.index(name))

    def add(
        self, ino: int, top: bytes, directory: int, bumped: bool, is_again: bool = False
    ) -> None:
        self.added = [*(one for one in getattr(self, "added", []) if one != top), top]
        super().add(ino, top, directory, bumped, is_again)


def test_top_level_directories_are_dealt_to_as_if_all_were_looked_at_each_time() -> None:
    """This holds also while an order is replaced by one that was filled meanwhile."""
    for seed in range(10):
        draw = random.Random(seed)
        fast, slow = UploadOrder(), Linear()
        next_fast, next_slow = UploadOrder(fast), Linear(slow)
        for step in range(300):
            if draw.random() < 0.5:
                ino, top = draw.randrange(500), b"%d" % draw.randrange(12)
                for order in (fast, slow, next_fast, next_slow):
                    order.add(ino, top, ino % 3, bumped=False)
            else:
                most = draw.randrange(1, 5)
                assert fast.take(most, never) == slow.take(most, never), (seed, step)
            if draw.random() < 0.03:
                fast, slow = next_fast, next_slow
                next_fast, next_slow = UploadOrder(fast), Linear(slow)


def test_a_pick_does_not_take_longer_with_more_top_level_directories() -> None:
    order = filled(*((ino, b"%d" % (ino % 20_000), ino % 20_000) for ino in range(40_000)))
    started = time.process_time()
    assert len(order.take(10_000, never)) == 10_000
    assert time.process_time() - started < 2
