"""The order of the checkpoints of a run, and which of them have a newer durable one. Pure.

Steps give the order, but a run that begins again writes lower steps after higher ones. So one
checkpoint is newer than another only if both its step and its time are higher. One without a step
is compared by its time, and by the time since which it is durable: an old one that a person takes
back from the trash is complete since then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from gateway.retention.facts import Checkpoint


class Newer(NamedTuple):
    """The newer durable checkpoints of one."""

    stays: Checkpoint
    """One that has no newer durable one itself, so that no plan deletes it."""
    since_ns: int
    """The time since which a newer one has been durable."""


class Order:
    """The order of one run.

    Parameters: checkpoints, all of the run.
    """

    def __init__(self, checkpoints: Sequence[Checkpoint]) -> None:
        complete = [one for one in checkpoints if one.is_complete]
        self._durable = sorted((one for one in complete if one.is_durable), key=_time)
        self._times = [one.ready_ns for one in self._durable]
        self._since = _least([one.durable_ns or 0 for one in self._durable])
        stepped = [one for one in complete if one.step is not None]
        self._newer = _newer(stepped)
        self._born = _born(stepped)
        self._last_step = max(map(_step, stepped), default=0)
        self._last_ns = max(map(_time, complete), default=0)

    def newer(self, one: Checkpoint) -> Newer | None:
        """Return the newer durable checkpoints of one, or None if there are none."""
        if one.step is not None:
            return self._newer.get(one.ino)
        at = bisect_right(self._times, one.ready_ns)
        if at == len(self._durable):
            return None
        since_ns = one.durable_ns or 0
        if self._since[at] > since_ns:
            return Newer(self._durable[-1], self._since[at])
        # Some of them became durable earlier: they were complete again, back from the trash.
        later = [two for two in self._durable[at:] if (two.durable_ns or 0) > since_ns]
        # One with a step may have a newer one by its step, which a plan deletes it for.
        stays = [two for two in later if two.ino not in self._newer]
        if not stays:
            return None
        return Newer(stays[-1], min(two.durable_ns or 0 for two in later))

    def is_newest(self, one: Checkpoint) -> bool:
        """Return whether a complete checkpoint is the newest complete one, by step or by time."""
        if one.ready_ns >= self._last_ns:
            return True
        return one.step is not None and one.step >= self._last_step

    def born_ns(self, one: Checkpoint) -> int:
        """Return the time from which the age of a complete checkpoint counts.

        It is not before the completion of an earlier step: a clock that was behind during a save
        makes no old checkpoint.
        """
        return self._born.get(one.ino, one.ready_ns)


def _time(one: Checkpoint) -> int:
    return one.ready_ns


def _step(one: Checkpoint) -> int:
    assert one.step is not None
    return one.step


def _newer(stepped: Sequence[Checkpoint]) -> dict[int, Newer]:
    found: dict[int, Newer] = {}
    durable = sorted((one for one in stepped if one.is_durable), key=_step)
    last: list[Checkpoint] = []
    """The checkpoint with the latest time from each place in ``durable`` on."""
    for one in reversed(durable):
        last.append(one if not last or one.ready_ns > last[-1].ready_ns else last[-1])
    last.reverse()
    steps = [_step(one) for one in durable]
    # Some of the higher steps may be older, because the run began again. So the newest times come
    # first, and each one finds the durable ones with later times.
    waiting = sorted(enumerate(durable), key=lambda pair: pair[1].ready_ns)
    since = _Leasts(len(durable))
    for one in sorted(stepped, key=_time, reverse=True):
        while waiting and waiting[-1][1].ready_ns > one.ready_ns:
            place, two = waiting.pop()
            since.put(place, two.durable_ns or 0)
        at = bisect_right(steps, _step(one))
        least_ns = since.from_place(at)
        if least_ns is not None:
            found[one.ino] = Newer(last[at], least_ns)
    return found


class _Leasts:
    """Numbers at places, of which the least from a place on is asked for: a Fenwick tree, with
    about as many steps for each number as the number of places has bits."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._least: list[int | None] = [None] * (places + 1)

    def put(self, place: int, number: int) -> None:
        at = self._places - place
        while at <= self._places:
            least = self._least[at]
            self._least[at] = number if least is None else min(least, number)
            at += at & -at

    def from_place(self, place: int) -> int | None:
        """Return the least number at or after a place, or None if there is none."""
        found: int | None = None
        at = self._places - place
        while at > 0:
            least = self._least[at]
            if least is not None and (found is None or least < found):
                found = least
            at -= at & -at
        return found


def _least(numbers: Sequence[int]) -> list[int]:
    """Return the least number from each place on."""
    return list(accumulate(reversed(numbers), min))[::-1]


def _born(stepped: Sequence[Checkpoint]) -> dict[int, int]:
    found: dict[int, int] = {}
    newest_ns = 0
    for one in sorted(stepped, key=lambda one: (_step(one), one.ready_ns)):
        newest_ns = max(newest_ns, one.ready_ns)
        found[one.ino] = newest_ns
    return found
