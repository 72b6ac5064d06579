"""Which dirty file goes next. Pure: knows inode numbers, directories and times, and no database.

- What a person bumped goes before everything else.
- Of the others, every ``AGEING``-th is the one that was sealed first of all. So a file before which
  n others were sealed is reached after at most AGEING * (n + 1) picks, whatever else arrives.
- The rest is dealt out in turn to the top-level directories, so that the burst of one job does not
  keep the others waiting; within each, the directory whose newest file was sealed last goes first.

About 150 bytes of memory for each file.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

AGEING = 4


class Order:
    """Files that wait.

    Parameters: before, the order that this one replaces, whose turns it continues.
    """

    def __init__(self, before: Order | None = None) -> None:
        self._waiting: set[int] = set()
        self._bumped: deque[int] = deque()
        self._by_age: deque[int] = deque()
        self._tops: OrderedDict[bytes, OrderedDict[int, deque[int]]] = OrderedDict()
        """By top-level directory and directory; what was sealed last is last."""
        self._turn: int = 0 if before is None else before._turn
        self._served: dict[bytes, int] = {} if before is None else before._served
        """The turn in which a top-level directory had its last file."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, ino: int, top: bytes, directory: int, bumped: bool) -> None:
        """Add a file that was sealed after all that were added before."""
        self._waiting.add(ino)
        if bumped:
            self._bumped.append(ino)
            return
        self._by_age.append(ino)
        directories = self._tops.setdefault(top, OrderedDict())
        directories.setdefault(directory, deque()).append(ino)
        directories.move_to_end(directory)
        self._tops.move_to_end(top)

    def take(self, most: int, skip: Callable[[int], bool]) -> list[int]:
        """The next files, at most so many; they wait no more.

        Parameters: skip, whether a file is not to be had now; it is dropped and uses no turn.
        """
        taken: list[int] = []
        while len(taken) < most and (ino := self._next(skip)) is not None:
            taken.append(ino)
        if not self._waiting:
            self._by_age.clear()
            self._tops.clear()
            self._served = {}
        return taken

    def _next(self, skip: Callable[[int], bool]) -> int | None:
        ino = self._pop(self._bumped, skip)
        if ino is not None:
            return ino
        if (self._turn + 1) % AGEING == 0:
            ino = self._pop(self._by_age, skip)
        else:
            ino = self._newest(skip)
        if ino is not None:
            self._turn += 1
        return ino

    def _newest(self, skip: Callable[[int], bool]) -> int | None:
        while self._tops:
            # Of those that were never served, the newest.
            top = min(reversed(self._tops), key=lambda name: self._served.get(name, 0))
            directories = self._tops[top]
            while directories:
                directory = next(reversed(directories))
                ino = self._pop(directories[directory], skip)
                if ino is not None:
                    self._served[top] = self._turn + 1
                    return ino
                del directories[directory]
            del self._tops[top]
        return None

    def _pop(self, files: deque[int], skip: Callable[[int], bool]) -> int | None:
        """The first that still waits: every file stands in two places."""
        while files:
            ino = files.popleft()
            if ino in self._waiting:
                self._waiting.discard(ino)
                if not skip(ino):
                    return ino
        return None
