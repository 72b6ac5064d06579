"""Keeps the orders of the files that wait, one for each lane that uploads. Uses no database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gateway.drain.job import UPLOADS, Lane, upload_lane
from gateway.drain.plan.order import Order


class Orders:
    """Files that wait, each in the order of its lane.

    Parameters: before, the orders that these replace. These continue their turns.
    """

    def __init__(self, before: Orders | None = None) -> None:
        earlier = {} if before is None else before._of
        self._of: dict[Lane, Order] = {lane: Order(earlier.get(lane)) for lane in UPLOADS}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def waits_for(self, lanes: Sequence[Lane]) -> bool:
        """Return whether files wait for some lanes."""
        return any(self._of[lane] for lane in lanes)

    def add(
        self, ino: int, top: bytes, directory: int, size: int, bumped: bool, is_again: bool
    ) -> None:
        """Add a file, unless it waits already. One that was bumped, or has grown, changes lanes.

        Parameters: size, in bytes; the others as of ``Order.add``.
        """
        own = upload_lane(size, is_first=bumped)
        for lane, order in self._of.items():
            if lane is not own:
                order.discard(ino)
        if bumped or ino not in self._of[own]:
            self._of[own].add(ino, top, directory, bumped, is_again)

    def discard(self, ino: int) -> None:
        """Forget a file, if it waits."""
        for order in self._of.values():
            order.discard(ino)

    def put_first(self, complete: Iterable[tuple[bytes, int]]) -> None:
        """Say what goes first: see ``Order.put_first``."""
        places = list(complete)
        for order in self._of.values():
            order.put_first(places)

    def take(self, lane: Lane, most: int, skip: Callable[[int], bool]) -> list[int]:
        """Take the next files of a lane: see ``Order.take``."""
        return self._of[lane].take(most, skip)
