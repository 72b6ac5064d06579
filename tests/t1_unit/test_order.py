"""The order of draining, by itself."""

from __future__ import annotations

from gateway.drain.order import AGEING, Order


def never(_ino: int) -> bool:
    return False


def filled(*files: tuple[int, bytes, int]) -> Order:
    order = Order()
    for ino, top, directory in files:
        order.add(ino, top, directory, bumped=False)
    return order


def drain(order: Order) -> list[int]:
    taken = []
    while one := order.take(1, never):
        taken += one
    return taken


def test_the_directory_whose_newest_file_was_sealed_last_goes_first() -> None:
    # Directory 1 was begun first, and has the last file.
    files = [(ino, b"run", 1 if ino in (10, 11, 12, 30) else 2) for ino in range(10, 31)]
    taken = drain(filled(*files))
    newest = [ino for turn, ino in enumerate(taken, 1) if turn % AGEING]
    assert newest[:3] == [10, 11, 12]
    assert taken.index(30) <= 5
    assert sorted(taken) == list(range(10, 31))


def test_ageing_is_bounded_whatever_else_arrives() -> None:
    """After at most AGEING * (n + 1) picks a file is reached before which n others were sealed."""
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
    """The files are read anew all the time: that must not reset the ageing."""
    order = Order()
    for pick in range(AGEING):
        order = Order(order)
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
    # Ageing alone would have reached five of them.
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
