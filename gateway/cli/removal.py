"""Removes a tree from the bottom up: what is left at any moment is a tree."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.cli.backlog import printable
from gateway.cli.progress import Line
from gateway.door.frames import Answer, Op, Request
from gateway.namespace.browse import Browser
from gateway.types import Kind

TOGETHER = 512
"""The names whose removal is requested at a time."""
TRIES = 3
"""The tries for a tree that clients fill again meanwhile."""
SHOWN = 10
"""The failures that are kept, to be shown."""
GONE = (0, errno.ENOENT, errno.ESTALE)
"""The answers that mean that a name is gone, whichever process removed it."""

Run = Callable[[Sequence[Request]], list[Answer]]


class _Name(NamedTuple):
    parent: int
    name: bytes
    ino: int
    path: str
    """The path below the top, to be shown."""


class Removal:
    """One removal. Memory grows with the directories of the tree, not with its files.

    Parameters: browser; run, which asks at the door.
    """

    def __init__(self, browser: Browser, run: Run) -> None:
        self._browser = browser
        self._run = run
        self._line = Line(quiet=False)
        self._waiting: list[_Name] = []
        self.removed = 0
        self.failures: list[tuple[str, int]] = []
        """The first paths below the top that are left, each with its errno."""

    def tree(self, parent: int, name: bytes, ino: int) -> None:
        """Remove a directory and everything in it. Raises DoorClosed, TryAgain."""
        top = _Name(parent, name, ino, "")
        try:
            for _ in range(TRIES):
                self.failures = []
                self._once(top)
                # Any other error will be the same at the next try.
                if not self.failures or any(why != errno.ENOTEMPTY for _, why in self.failures):
                    break
        finally:
            self._line.end()

    def _once(self, top: _Name) -> None:
        levels = [[top]]
        while levels[-1]:
            below: list[_Name] = []
            for directory in levels[-1]:
                for entry in self._browser.entries(directory.ino):
                    path = f"{directory.path}/{printable(entry.name)}"
                    found = _Name(directory.ino, entry.name, entry.attr.ino, path)
                    if entry.attr.kind == Kind.DIRECTORY:
                        below.append(found)
                    else:
                        self._remove(found)
            levels.append(below)
        for level in reversed(levels):
            self._flush()
            for directory in level:
                self._remove(directory)
        self._flush()

    def _remove(self, name: _Name) -> None:
        self._waiting.append(name)
        if len(self._waiting) >= TOGETHER:
            self._flush()

    def _flush(self) -> None:
        names, self._waiting = self._waiting, []
        if not names:
            return
        requests = [Request(Op.REMOVE, name.parent, name.name) for name in names]
        for name, answer in zip(names, self._run(requests), strict=True):
            if answer.errno in GONE:
                self.removed += 1
            elif len(self.failures) < SHOWN:
                self.failures.append((name.path, answer.errno))
        self._line.show(f"{self.removed:,} names removed")
