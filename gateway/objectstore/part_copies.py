"""Copies in parts: several numbered requests at a time, resumed after an interruption."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from gateway.objectstore.objects import BegunCopy


class PartCopy(Protocol):
    """What is remembered of one copy from one try to the next."""

    def begun(self) -> BegunCopy | None:
        """Return the upload that an earlier try has begun, of the same bytes to the same key."""

    def record(self, begun: BegunCopy) -> None:
        """Remember an upload, before its first part."""

    def ended(self) -> None:
        """Forget the upload: it has become the object, or was aborted."""

    def is_wanted(self) -> bool:
        """Return whether more parts may be copied. It is asked after each part."""


class InMemory:
    """A copy that only the same process resumes.

    Args:
        all_begun: where the process remembers its copies.
        what: all that makes this one another copy than any other.
    """

    def __init__(self, all_begun: MutableMapping[Hashable, BegunCopy], copy_key: Hashable) -> None:
        self._all, self._what = all_begun, copy_key

    def begun(self) -> BegunCopy | None:
        return self._all.get(self._what)

    def record(self, begun: BegunCopy) -> None:
        self._all[self._what] = begun

    def ended(self) -> None:
        self._all.pop(self._what, None)

    def is_wanted(self) -> bool:
        return True


T = TypeVar("T")


def in_flight(
    numbers: Sequence[int],
    concurrency: int,
    send_one: Callable[[int], T],
    go_on: Callable[[T], bool],
) -> list[T] | None:
    """Send parts in order, so many at a time.

    Args:
        send_one: what it raises is raised when the parts under way have ended.
        go_on: called with each result in order; if it is False, no more parts begin.

    Returns:
        The results, or None if told to stop.
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
