"""Runs numbered requests of one object in order, several at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def in_flight(
    numbers: Sequence[int],
    concurrency: int,
    send_one: Callable[[int], T],
    go_on: Callable[[T], bool],
) -> list[T] | None:
    """Send parts in order, so many at a time. Returns the results, or None if told to stop.

    Parameters: go_on, called with each result in order; if it is False, no more parts begin. What
    ``send_one`` raises is raised when the parts under way have ended.
    """
    if not numbers:
        return []
    done: list[T] = []
    sending: deque[Future[T]] = deque()
    with ThreadPoolExecutor(min(len(numbers), concurrency), thread_name_prefix="part") as pool:
        for number in numbers:
            sending.append(pool.submit(send_one, number))
            is_last = number == numbers[-1]
            if len(sending) < concurrency and not is_last:
                continue
            while sending and (is_last or len(sending) >= concurrency):
                done.append(sending.popleft().result())
                if not go_on(done[-1]):
                    return None
    return done
