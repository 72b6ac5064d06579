"""Reader of the objects of files below a directory, a bounded number of names at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.common.types import InodeKind
from gateway.drain import statements as own
from gateway.drain.context import DrainView
from gateway.drain.rows import ObjectRow

NAMES_PAGE = 1024
"""The names that are read at a time."""


@dataclass
class _Level:
    """A directory that is being read."""

    ino: int
    cookie: int = 0
    """The cookie of the last name that was read."""
    directories: list[int] = field(default_factory=list)
    """The directories of the last page of names that are still to be read."""
    is_read: bool = False


class SubtreeReader:
    """A reading of what is below a directory. It keeps its place between transactions.

    Args:
        ino: ino of the directory.
    """

    def __init__(self, ino: int) -> None:
        self._levels = [_Level(ino)]

    @property
    def is_read(self) -> bool:
        """Whether the last page was read."""
        return not self._levels

    def page(self, view: DrainView) -> list[ObjectRow]:
        """Return the objects of the next page of names."""
        object_rows: list[ObjectRow] = []
        budget = NAMES_PAGE
        while self._levels and budget > 0:
            level = self._levels[-1]
            if level.directories:
                self._levels.append(_Level(level.directories.pop()))
                continue
            if level.is_read:
                self._levels.pop()
                continue
            after = {"parent": level.ino, "cookie": level.cookie}
            rows = view.session.all(own.CHILDREN, **after, most=budget)
            level.is_read = len(rows) < budget
            # An empty directory costs a query too.
            budget -= len(rows) + 1
            for cookie, ino, kind, *stored in rows:
                level.cookie = cookie
                if kind == InodeKind.DIRECTORY:
                    level.directories.append(ino)
                elif stored[0] is not None:
                    object_rows.append(ObjectRow(*stored))
        return object_rows
