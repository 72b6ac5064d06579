"""Remembers what must not change while a link of ``/.spillway/runs`` names a checkpoint.

Such a link tells a job that the checkpoint is complete, or durable. So the first change of a
checkpoint that is named is refused with ``StillNamed``, before anything of it is written. The
caller removes the link and tries again (fsal/native/change.c, gateway/door/direct.py). Without
this, the link would name a partial checkpoint until the catalogue has seen the change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from gateway.errors import TryAgain


class Link(NamedTuple):
    """A link, by its name."""

    directory: int
    """Inode number."""
    name: bytes


class StillNamed(TryAgain):
    """A link names the checkpoint that would change. The link must be removed first."""

    def __init__(self, link: Link) -> None:
        super().__init__(f"{link.name!r} in directory {link.directory} names it")
        self.link = link


class _Guarded(NamedTuple):
    """The inodes of the checkpoint that a link names."""

    ino: int
    """Its own."""
    inside: frozenset[int]
    """Its directories, or the file that it consists of."""
    way: frozenset[int]
    """What its path leads through, with its own."""


class Named:
    """The links of one namespace. Only the thread that has the writer's turn uses it."""

    def __init__(self) -> None:
        self._links: defaultdict[Link, list[_Guarded]] = defaultdict(list)
        """What each link names, after what it named before and may name again, if the transaction
        that replaced it is not committed."""
        self._inside: defaultdict[int, set[Link]] = defaultdict(set)
        self._way: defaultdict[int, set[Link]] = defaultdict(set)

    def __bool__(self) -> bool:
        return bool(self._links)

    def of(self, link: Link) -> list[int]:
        """Return the checkpoints that a link may name: one, or none if nothing is guarded for it,
        or more while a transaction replaces it."""
        return [guarded.ino for guarded in self._links.get(link, ())]

    def add(self, link: Link, inside: Collection[int], way: Sequence[int]) -> None:
        """Guard what a link names. What it named before stays guarded until ``settle``.

        Parameters: inside, inode numbers of the directories of the checkpoint, or of the file that
        it consists of; way, those that its path leads through, and last its own.
        """
        guarded = _Guarded(way[-1], frozenset(inside), frozenset(way))
        self._links[link].append(guarded)
        self._guard(link, guarded)

    def settle(self, link: Link) -> None:
        """The transaction of the last ``add`` is committed: forget what the link named before."""
        last = self._links[link][-1]
        self.forget(link)
        self._links[link] = [last]
        self._guard(link, last)

    def forget(self, link: Link) -> None:
        """The link is gone, durably."""
        for guarded in self._links.pop(link, ()):
            for known, inos in ((self._inside, guarded.inside), (self._way, guarded.way)):
                for ino in inos:
                    known[ino].discard(link)
                    if not known[ino]:
                        del known[ino]

    def entered(self, ino: int) -> None:
        """Entries of a directory, or bytes of a file, are about to change. Raises StillNamed."""
        if ino in self._inside:
            raise StillNamed(min(self._inside[ino]))

    def moved(self, ino: int) -> None:
        """An inode is about to lose a name. Raises StillNamed."""
        if ino in self._way:
            raise StillNamed(min(self._way[ino]))

    def _guard(self, link: Link, guarded: _Guarded) -> None:
        for ino in guarded.inside:
            self._inside[ino].add(link)
        for ino in guarded.way:
            self._way[ino].add(link)
