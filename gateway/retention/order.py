"""The order of the checkpoints of a run, and which of them have a newer trusted one. Pure.

Newer is what was complete later, in the order in which the gateway saw it. Neither steps nor clocks
count: after a rollback the newest is the one that was saved last. One that has no place in the
order yet is older and newer than none, so it is not deleted, and nothing is deleted for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from gateway.retention.facts import Checkpoint
from gateway.types import FIRST_NS


class Order:
    """The order of one run.

    Parameters: checkpoints, all of the run.
    """

    def __init__(self, checkpoints: Iterable[Checkpoint]) -> None:
        numbered = [one for one in checkpoints if one.is_complete and one.completion is not None]
        self.newest_first: Sequence[Checkpoint] = sorted(numbered, key=_place, reverse=True)
        """The complete ones that have a place in the order."""
        oldest_first = self.newest_first[::-1]
        trusted = [one for one in oldest_first if one.is_trusted]
        self._trusted = [_place(one) for one in trusted]
        self._since = _leasts([one.durable_ns or 0 for one in trusted])
        times = accumulate((one.recorded_ns or one.ready_ns for one in oldest_first), max)
        self._born = {one.ino: ns for one, ns in zip(oldest_first, times, strict=True)}

    def since_ns(self, one: Checkpoint) -> int | None:
        """Return the time since which a newer trusted one has been durable, or None if none is."""
        if one.completion is None:
            return None
        at = bisect_right(self._trusted, one.completion)
        return self._since[at] if at < len(self._since) else None

    def is_newest(self, one: Checkpoint) -> bool:
        """Return whether a checkpoint is the newest complete one."""
        return bool(self.newest_first) and self.newest_first[0].ino == one.ino

    def born_ns(self, one: Checkpoint) -> int | None:
        """Return the time from which the age of a complete checkpoint counts. None: it does not
        age, because no clock that was set has seen it.

        It is not before the completion of an older one: a clock that was behind during a save makes
        no old checkpoint. One that is taken back from the trash is complete since then, and makes
        no newer one younger.
        """
        found = max(one.ready_ns, self._born.get(one.ino, 0))
        return found if found >= FIRST_NS else None


class Successors:
    """The checkpoints of a run that stay and for which an older one may be deleted. They are added
    from the newest to the oldest.

    Parameters: least_share, of the bytes of what is deleted.
    """

    def __init__(self, least_share: float) -> None:
        self._least_share = least_share
        self._larger: list[Checkpoint] = []
        """Those that are larger than all newer ones. No other one is ever the newest that is large
        enough."""
        self._sizes: list[int] = []

    def add(self, one: Checkpoint) -> None:
        if one.is_trusted and (not self._sizes or one.size > self._sizes[-1]):
            self._larger.append(one)
            self._sizes.append(one.size)

    def of(self, one: Checkpoint) -> Checkpoint | None:
        """Return the newest that is not much smaller than an older one, or None."""
        at = bisect_left(self._sizes, self._least_share * one.size)
        return self._larger[at] if at < len(self._larger) else None


def successor(
    one: Checkpoint, checkpoints: Iterable[Checkpoint], least_share: float
) -> Checkpoint | None:
    """Return the newest checkpoint of a run for which one may be deleted, or None.

    Parameters: checkpoints of the run; least_share, of the bytes of one that it must have.
    """
    found = Successors(least_share)
    for two in Order(checkpoints).newest_first:
        if one.completion is None or _place(two) <= one.completion:
            break
        found.add(two)
    return found.of(one)


def _place(one: Checkpoint) -> int:
    assert one.completion is not None
    return one.completion


def _leasts(numbers: Sequence[int]) -> list[int]:
    """Return the least number from each place on."""
    return list(accumulate(reversed(numbers), min))[::-1]
