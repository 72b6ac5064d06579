"""Says which files of a tree are what killed saves have left, by the checkpoints in the catalogue.

The drain may hold such a file for ever. The checkpoint is whole without it.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.checkpoints import statements as own
from gateway.checkpoints.facts import State
from gateway.checkpoints.rules import Rules, is_removed
from gateway.db.compiled import Session
from gateway.namespace.lookup import way_up
from gateway.types import Extent, Kind


class Inside(NamedTuple):
    """The checkpoint that a directory is, or is in."""

    rule: str
    is_deep: bool
    """Whether what is in the directories below belongs to it too."""
    is_complete: bool
    """Whether no save is under way in it."""


class Leftovers:
    """What killed saves have left.

    Parameters: session, in a transaction that reads; rules.
    """

    def __init__(self, session: Session, rules: Rules) -> None:
        self._session = session
        self._rules = rules

    def at(self, top: int) -> Inside | None:
        """Return the checkpoint that a directory is, or is in."""
        found: Inside | None = None
        for ino, _parent, _name in reversed(list(way_up(self._session, top))):
            found = self.below(ino, found)
        return found

    def below(self, directory: int, above: Inside | None) -> Inside | None:
        """Return the checkpoint that a directory is, or is in. Parameters: above, that of the
        directory that it is in."""
        row = self._session.one(own.RULE, ino=directory)
        if row is not None:
            return Inside(row[0], row[1] == Extent.TREE, row[2] != State.WRITING)
        return above if above is not None and above.is_deep else None

    def has(self, inside: Inside | None, kind: int, name: bytes, is_open: bool) -> bool:
        """Return whether a file is one. Parameters: inside, of its directory; kind of the inode;
        its name; is_open, whether it is open for writing."""
        if kind == Kind.REGULAR and is_removed(name):
            return True
        if inside is None or kind != Kind.REGULAR or is_open:
            return False
        if self._rules.leaves(inside.rule, name):
            return True
        return inside.is_complete and self._rules.holds.holds((), name)
