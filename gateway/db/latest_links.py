"""Guard of checkpoints that a link of ``/.spillway/runs`` names: the link goes before a change.

Such a link tells a job that the checkpoint is complete, or durable. So the first change of a
checkpoint that is named is refused with ``HeldByLatestLink``, before anything of it is written. The
caller removes the link and tries again (fsal/native/change.c, gateway/namespace/facade.py). Without
this, the link would name a partial checkpoint until the catalogue has seen the change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar

from gateway.common.errors import TryAgain

K = TypeVar("K")
V = TypeVar("V")


class LatestLink(NamedTuple):
    """A link, by its name."""

    directory: int
    """Inode number."""
    name: bytes


class HeldByLatestLink(TryAgain):
    """A link names the checkpoint that would change. The link must be removed first."""

    def __init__(self, link: LatestLink) -> None:
        super().__init__(f"{link.name!r} in directory {link.directory} names it")
        self.link = link


class Guard(NamedTuple):
    """The inodes of a checkpoint that a link names."""

    ino: int
    """Its own."""
    inside: frozenset[int]
    """Its directories, or the file that it consists of."""
    way: frozenset[int]
    """What its path leads through, with its own."""


class LinkGuards:
    """The guards of one namespace. Only the thread that has the writer's turn uses it.

    A guard begins before the transaction that has a link name the checkpoint is committed, and ends
    after the one that ends this. So a link has several guards meanwhile, and keeps too many if a
    transaction fails: then a change removes the link without need, and the catalogue has it back.
    """

    def __init__(self) -> None:
        self._guards: defaultdict[LatestLink, list[Guard]] = defaultdict(list)
        self._inside: defaultdict[int, list[LatestLink]] = defaultdict(list)
        self._way: defaultdict[int, list[LatestLink]] = defaultdict(list)

    def __bool__(self) -> bool:
        return bool(self._guards)

    def of(self, link: LatestLink) -> Sequence[Guard]:
        """Return the guards of a link."""
        return tuple(self._guards.get(link, ()))

    def add(self, link: LatestLink, inside: Collection[int], way: Sequence[int]) -> None:
        """Guard what a link names.

        Args:
            inside: inode numbers of the directories of the checkpoint, or of the file that it
                consists of.
            way: those that its path leads through, and last its own.
        """
        guard = Guard(way[-1], frozenset(inside), frozenset(way))
        self._guards[link].append(guard)
        for known, inos in self._known(guard):
            for ino in inos:
                known[ino].append(link)

    def drop(self, link: LatestLink, guards: Collection[Guard]) -> None:
        """End guards of a link. Those that have ended are passed over."""
        for guard in guards:
            if guard in self._guards.get(link, ()):
                _take(self._guards, link, guard)
                for known, inos in self._known(guard):
                    for ino in inos:
                        _take(known, ino, link)

    def entered(self, ino: int) -> None:
        """Entries of a directory, or bytes of a file, are about to change. Raises
        HeldByLatestLink."""
        if ino in self._inside:
            raise HeldByLatestLink(self._inside[ino][0])

    def moved(self, ino: int) -> None:
        """An inode is about to lose a name. Raises HeldByLatestLink."""
        if ino in self._way:
            raise HeldByLatestLink(self._way[ino][0])

    def _known(
        self, guard: Guard
    ) -> Sequence[tuple[defaultdict[int, list[LatestLink]], frozenset[int]]]:
        return (self._inside, guard.inside), (self._way, guard.way)


def _take(lists: defaultdict[K, list[V]], key: K, value: V) -> None:
    """Remove a value from a list, and the list with its last value."""
    lists[key].remove(value)
    if not lists[key]:
        del lists[key]
