"""Removal of a tree from the bottom up: what is left at any moment is a tree.

Names are removed only with the inodes that were found there, and only in directories that still
have their places below the top.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gateway.common.text import printable
from gateway.common.types import ROOT_CRED, Cred, InodeKind
from gateway.namespace.lookup import Browser
from gateway.rpc.frames import Op, RpcReply, RpcRequest

TOGETHER = 512
"""The names whose removal is requested at a time."""
TRIES = 3
"""The tries for a tree that clients fill again meanwhile."""
SHOWN = 10
"""The failures that are kept, to be shown."""
GONE = (0, errno.ENOENT, errno.ESTALE)
"""The answers that mean that a name is gone or is another inode's, whichever process did that."""

Run = Callable[[Sequence[RpcRequest]], list[RpcReply]]


class _Name(NamedTuple):
    parent: int
    name: bytes
    ino: int
    path: str
    """The path below the top, to be shown."""
    above: _Name | None
    """The directory with the name, or None for the top."""


class _Level(NamedTuple):
    """A directory on the way from the top to what is listed now."""

    inside: list[_Name]
    """The directories inside it."""
    unlisted: Iterator[_Name]
    """Those of them that are not listed yet."""


class TreeRemoval:
    """One removal. Memory grows with the directories beside the way to the one that is listed.

    Args:
        run: asks over the control socket.
        on_removed: called now and then with the number of names that are removed by then.
        cred: cred in whose name.
    """

    def __init__(
        self,
        browser: Browser,
        run: Run,
        on_removed: Callable[[int], None] = lambda _count: None,
        cred: Cred = ROOT_CRED,
    ) -> None:
        self._browser = browser
        self._run = run
        self._on_removed = on_removed
        self._cred = cred
        self._waiting: list[_Name] = []
        self.removed = 0
        self.failures: list[tuple[str, int]] = []
        """The first paths below the top that are left, each with its errno."""

    def tree(self, parent: int, name: bytes, ino: int) -> None:
        """Remove a directory and everything in it, or a file. Raises ControlSocketClosed,
        TryAgain."""
        top = _Name(parent, name, ino, "", None)
        for _ in range(TRIES):
            self.failures = []
            self._once(top)
            # Any other error will be the same at the next try.
            if not self.failures or any(why != errno.ENOTEMPTY for _, why in self.failures):
                break

    def _once(self, top: _Name) -> None:
        levels = [_level([top])]
        while levels:
            directory = next(levels[-1].unlisted, None)
            if directory is not None:
                levels.append(_level(self._list(directory)))
                continue
            inside = levels.pop().inside
            if inside:
                self._flush()  # what is in them is gone before they are
                for emptied in inside:
                    self._remove(emptied)
        self._flush()

    def _list(self, directory: _Name) -> list[_Name]:
        """Remove what is in a directory, except the directories. Returns those."""
        if not self._is_in_place(directory):
            return []
        inside = []
        for entry in self._browser.entries(directory.ino):
            path = f"{directory.path}/{printable(entry.name)}"
            name = _Name(directory.ino, entry.name, entry.attr.ino, path, directory)
            if entry.attr.kind == InodeKind.DIRECTORY:
                inside.append(name)
            else:
                self._remove(name)
        return inside

    def _is_in_place(self, directory: _Name | None) -> bool:
        """Return whether a directory and all above it have their names. What a client has moved
        elsewhere is not below the top any more, and must stay."""
        while directory is not None:
            entry = self._browser.entry(directory.parent, directory.name)
            if entry is None or entry.attr.ino != directory.ino:
                [answer] = self._run([RpcRequest(Op.GETATTR, directory.ino)])
                if answer.errno != errno.ESTALE:
                    self._fail(directory, errno.ESTALE)
                return False
            directory = directory.above
        return True

    def _fail(self, name: _Name, why: int) -> None:
        if len(self.failures) < SHOWN and (name.path, why) not in self.failures:
            self.failures.append((name.path, why))

    def _remove(self, name: _Name) -> None:
        self._waiting.append(name)
        if len(self._waiting) >= TOGETHER:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        # A client may have moved directories since they were listed.
        directories = {name.parent: name.above for name in waiting}
        moved = {ino for ino, above in directories.items() if not self._is_in_place(above)}
        names = [name for name in waiting if name.parent not in moved]
        if not names:
            return
        requests = [
            RpcRequest(Op.REMOVE, name.parent, name.name, name.ino, cred=self._cred)
            for name in names
        ]
        for name, answer in zip(names, self._run(requests), strict=True):
            self.removed += answer.errno == 0
            if answer.errno not in GONE:
                self._fail(name, answer.errno)
        self._on_removed(self.removed)


def _level(inside: list[_Name]) -> _Level:
    return _Level(inside, iter(inside))
