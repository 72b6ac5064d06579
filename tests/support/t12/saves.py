"""Names and files as the log of a client says that they are.

The log is JSON lines outside of the gateway: an operation before it is asked for, and its answer.
An operation without an answer, because the server was killed, is settled by the client that comes
next: it looks whether it was done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

EMPTY = 0
"""The number of the content of a file that has no bytes yet."""


class Entry(NamedTuple):
    """What has a name, without what it contains."""

    kind: str
    """"file", "link" or "dir"."""
    mode: int
    uid: int
    gid: int
    target: str
    xattrs: tuple[tuple[str, str], ...]


@dataclass
class Node:
    """An inode."""

    number: int
    """That of the operation that made it."""
    entry: Entry
    ino: int = 0
    size: int = 0
    contents: list[int] = field(default_factory=list)
    """The numbers of the operations that wrote it, in their order."""


class Operation(NamedTuple):
    """An operation of the log."""

    number: int
    name: str
    arguments: list[Any]
    begun_ns: int
    acked_ns: int | None
    """None: it got no answer."""
    ino: int
    was_done: bool | None
    """None: it is not known."""


class Tree:
    """The names of a namespace, which operations change."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}

    def copy(self) -> Tree:
        """Return a tree that changes by itself."""
        made = Tree()
        nodes = {id(node): copy(node) for node in self.names.values()}
        for node in nodes.values():
            node.contents = list(node.contents)
        made.names = {path: nodes[id(node)] for path, node in self.names.items()}
        return made

    def below(self, path: str) -> list[str]:
        """Return a path and all that are below it."""
        return [one for one in self.names if one == path or one.startswith(f"{path}/")]

    def files(self, below: str = "") -> list[str]:
        """Return the paths of files below a directory."""
        return [
            path
            for path, node in self.names.items()
            if node.entry.kind == "file" and path.startswith(below)
        ]

    def touched(self, operation: Operation) -> set[int]:
        """Return the numbers of the inodes that an operation changes, or whose paths."""
        paths = [one for one in operation.arguments[:2] if isinstance(one, str)]
        found = {self.names[one].number for path in paths for one in self.below(path)}
        return found | {operation.number}

    def apply(self, done: Operation) -> None:
        """Change it as an operation does."""
        getattr(self, f"_{done.name}")(done, *done.arguments)

    def _mkdir(self, done: Operation, path: str) -> None:
        self.names[path] = Node(done.number, Entry("dir", 0o755, 0, 0, "", ()), done.ino)

    def _create(self, done: Operation, path: str, size: int) -> None:
        entry = Entry("file", 0o640, 1000, 100, "", ())
        self.names[path] = Node(done.number, entry, done.ino, size, [EMPTY])

    def _write(self, done: Operation, path: str) -> None:
        self.names[path].contents.append(done.number)

    def _symlink(self, done: Operation, path: str, target: str) -> None:
        self.names[path] = Node(done.number, Entry("link", 0o777, 0, 0, target, ()), done.ino)

    def _link(self, _done: Operation, old: str, new: str) -> None:
        self.names[new] = self.names[old]

    def _rename(self, _done: Operation, old: str, new: str) -> None:
        for path in self.below(old):
            self.names[new + path.removeprefix(old)] = self.names.pop(path)

    def _unlink(self, _done: Operation, path: str) -> None:
        del self.names[path]

    _rmdir = _unlink

    def _trash(self, _done: Operation, path: str) -> None:
        for one in self.below(path):
            del self.names[one]

    def _xattr(self, _done: Operation, path: str, value: str) -> None:
        self._set(path, xattrs=(("user.note", value),))

    def _chmod(self, _done: Operation, path: str, mode: int) -> None:
        self._set(path, mode=mode)

    def _chown(self, _done: Operation, path: str, uid: int, gid: int) -> None:
        self._set(path, uid=uid, gid=gid)

    def _pin(self, _done: Operation, path: str) -> None:
        """Change no name."""

    def _promote(self, _done: Operation, path: str, name: str) -> None:
        """Change no name of clients."""

    def _set(self, path: str, **changes: Any) -> None:
        node = self.names[path]
        node.entry = node.entry._replace(**changes)


def read(log: Path) -> list[Operation]:
    """Return the operations of a log, but for those that were not done."""
    found: dict[int, Operation] = {}
    for line in log.read_bytes().splitlines():
        facts = json.loads(line)
        number = facts["n"]
        if "op" in facts:
            name, *arguments = facts["op"]
            found[number] = Operation(number, name, arguments, facts["ns"], None, 0, None)
        else:
            answer = {"ino": facts.get("ino", 0), "was_done": facts["done"]}
            if facts.get("acked", True):
                answer["acked_ns"] = facts["ns"]
            found[number] = found[number]._replace(**answer)
    return [one for one in found.values() if one.was_done is not False]


def replayed(operations: list[Operation]) -> Tree:
    """Return the tree that operations make."""
    tree = Tree()
    for one in operations:
        tree.apply(one)
    return tree


def moments(operations: list[Operation], first: int) -> Iterator[tuple[int, Tree]]:
    """Yield the tree after so many operations, from ``first`` of them on."""
    tree = replayed(operations[:first])
    yield first, tree.copy()
    for at, one in enumerate(operations[first:], first + 1):
        tree.apply(one)
        yield at, tree.copy()


def content(number: int, size: int) -> bytes:
    """Return the bytes that a write with a number writes."""
    return (b"%010d." % number * (size // 11 + 1))[:size] if number else b""


def number_of(body: bytes) -> int | None:
    """Return the number of a write, or None if the bytes are not those of one."""
    if not body:
        return EMPTY
    head = body[:10]
    if not head.isdigit() or body != content(int(head), len(body)):
        return None
    return int(head)
