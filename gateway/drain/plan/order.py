"""Order of uploads: picks the next dirty file by inode numbers, directories and times. Pure.

- What a person bumped, and what clients wait for in a CLOSE, goes before everything else.
- Of the others, every ``AGEING``-th is the file that was sealed first. So a file before which n
  others were sealed is reached after at most AGEING * (n + 1) picks, whatever else arrives.
- The rest is dealt out in turn to the top-level directories, so that the burst of one job does not
  keep the others waiting. Within each, the newest complete checkpoint goes first, so that a save
  that has begun does not keep it waiting. Then comes the directory whose newest file was sealed
  last.

Each ``Lane`` that uploads has an order of its own. Each file takes about 150 bytes of memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import count

from gateway.drain.job import UPLOADS, Lane, upload_lane

AGEING = 4


class UploadOrder:
    """Files that wait.

    This order continues its turns.

    Args:
        before: the order that this one replaces.
    """

    def __init__(self, before: UploadOrder | None = None) -> None:
        self._waiting: set[int] = set()
        self._bumped: deque[int] = deque()
        self._by_age: deque[int] = deque()
        self._tops: dict[bytes, OrderedDict[int, deque[int]]] = {}
        """The files by top-level directory and directory. What was sealed last is last."""
        self._picks: int = 0 if before is None else before._picks
        self._served: dict[bytes, int] = {} if before is None else before._served
        """When each top-level directory had its last file, as a number of ``_serves``."""
        self._serves: Iterator[int] = count(1) if before is None else before._serves
        self._first: dict[bytes, list[int]] = {}
        """The directories and files of complete checkpoints by top-level directory, the newest
        checkpoint last."""
        self._unserved: OrderedDict[bytes, None] = OrderedDict()
        """The top-level directories that have had no file yet, the newest last."""
        self._queue: list[tuple[int, bytes]] = []
        """A heap of the other top-level directories by that number. The order before this one may
        serve them meanwhile, so an entry of either may be out of date. It is corrected when its
        turn comes."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, ino: int) -> bool:
        return ino in self._waiting

    def add(
        self, ino: int, top: bytes, directory: int, bumped: bool, is_again: bool = False
    ) -> None:
        """Add a file that was sealed after all that were added before.

        Args:
            is_again: whether the file was taken before: then it counts as sealed before all others.
        """
        self._waiting.add(ino)
        if bumped:
            self._bumped.append(ino)
            return
        if is_again:
            self._by_age.appendleft(ino)
        else:
            self._by_age.append(ino)
        if top not in self._tops and top in self._served:
            heappush(self._queue, (self._served[top], top))
        elif top not in self._served:
            self._unserved[top] = None
            self._unserved.move_to_end(top)
        directories = self._tops.setdefault(top, OrderedDict())
        is_first = directory not in directories
        directories.setdefault(directory, deque()).append(ino)
        if is_first or not is_again:
            directories.move_to_end(directory, last=not is_again)

    def discard(self, ino: int) -> None:
        """Forget a file, if it waits."""
        self._waiting.discard(ino)

    def put_first(self, complete: Iterable[tuple[bytes, int]]) -> None:
        """Say what goes first. It replaces what was said before.

        Args:
            complete: the directories and files that complete checkpoints consist of, the oldest
                checkpoint first: top-level directory and inode of each.
        """
        self._first = {}
        for top, ino in complete:
            self._first.setdefault(top, []).append(ino)

    def take(self, most: int, skip: Callable[[int], bool]) -> list[int]:
        """Take the next files, at most so many. They no longer wait.

        Such a file is dropped and uses no turn.

        Args:
            skip: returns whether a file cannot be sent now.
        """
        taken: list[int] = []
        while len(taken) < most and (ino := self._next(skip)) is not None:
            taken.append(ino)
        if not self._waiting:
            self._by_age.clear()
            self._tops.clear()
            self._unserved.clear()
            self._queue.clear()
            self._served = {}
        return taken

    def _next(self, skip: Callable[[int], bool]) -> int | None:
        ino = self._pop(self._bumped, skip)
        if ino is not None:
            return ino
        if (self._picks + 1) % AGEING == 0:
            ino = self._pop(self._by_age, skip)
        else:
            ino = self._newest(skip)
        if ino is not None:
            self._picks += 1
        return ino

    def _newest(self, skip: Callable[[int], bool]) -> int | None:
        while self._tops:
            top = self._next_top()
            ino = self._complete(top, skip)
            if ino is None:
                ino = self._sealed_last(self._tops[top], skip)
            if ino is not None:
                self._served[top] = next(self._serves)
                if self._unserved.pop(top, self) is None:
                    heappush(self._queue, (self._served[top], top))
                return ino
            del self._tops[top]
            self._unserved.pop(top, None)
        return None

    def _complete(self, top: bytes, skip: Callable[[int], bool]) -> int | None:
        """Take a file of the newest complete checkpoint below a top-level directory."""
        first = self._first.get(top, [])
        while first:
            files = self._tops[top].get(first[-1], deque(first[-1:]))
            if (ino := self._pop(files, skip)) is not None:
                return ino
            first.pop()
        return None

    def _sealed_last(
        self, directories: OrderedDict[int, deque[int]], skip: Callable[[int], bool]
    ) -> int | None:
        while directories:
            directory = next(reversed(directories))
            if (ino := self._pop(directories[directory], skip)) is not None:
                return ino
            del directories[directory]
        return None

    def _next_top(self) -> bytes:
        """Return the newest top-level directory that was never served, else the one that was served
        longest ago."""
        while self._unserved:
            top = next(reversed(self._unserved))
            if top not in self._served:
                return top
            del self._unserved[top]
            heappush(self._queue, (self._served[top], top))
        while True:
            served, top = self._queue[0]
            if top not in self._tops:
                heappop(self._queue)
            elif served != self._served[top]:
                heapreplace(self._queue, (self._served[top], top))
            else:
                return top

    def _pop(self, files: deque[int], skip: Callable[[int], bool]) -> int | None:
        """Take the first file that still waits. Every file is in two places, so some are gone."""
        while files:
            ino = files.popleft()
            if ino in self._waiting:
                self._waiting.discard(ino)
                if not skip(ino):
                    return ino
        return None


class Orders:
    """Files that wait, each in the order of its lane.

    These continue their turns.

    Args:
        before: the orders that these replace.
    """

    def __init__(self, before: Orders | None = None) -> None:
        earlier = {} if before is None else before._of
        self._of: dict[Lane, UploadOrder] = {
            lane: UploadOrder(earlier.get(lane)) for lane in UPLOADS
        }

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def waits_for(self, lanes: Sequence[Lane]) -> bool:
        """Return whether files wait for some lanes."""
        return any(self._of[lane] for lane in lanes)

    def add(
        self, ino: int, top: bytes, directory: int, size: int, bumped: bool, is_again: bool
    ) -> None:
        """Add a file, unless it waits already. One that was bumped, or has grown, changes lanes.

        Args:
            ino, top, directory, bumped, is_again: as of ``Order.add``.
            size: in bytes.
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
