"""Runs each operation on a Namespace and on the model, and compares them after it.

Most operations name things that exist; some name things that a client saw long ago.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from gateway.common import clock, errors
from gateway.common.types import Attr, Cred, Dirent, InodeKind, Residency, SetAttr
from gateway.config.settings import Settings
from tests.support.namespace import Namespace
from tests.support.t3.model import Model
from tests.support.t3.node import AtLeast, Errors, Node, Refused

Volumes = Callable[[], AbstractContextManager[Settings]]
"""Makes a volume, and removes it at the end of the context."""
Place = tuple[int, bytes]
"""A directory and a name in it."""
T = TypeVar("T")
M = TypeVar("M")

ROOT = 2
NAMES = [b"a", b"b", b"c", b"d", b"e"]
ODD_NAMES = [b"", b".", b"..", b"a/b", b"a\0", b"\xff\x80", b"n" * 255, b"n" * 256]
a_name = st.sampled_from([*NAMES * 12, *ODD_NAMES])
seldom = st.sampled_from([False] * 4 + [True])


_ALWAYS = ("ino", "generation", "kind", "mode", "uid", "gid")
_BY_KIND = {
    InodeKind.REGULAR: ("size", "used", "residency", "epoch"),
    InodeKind.SYMLINK: ("size",),
    InodeKind.CHARACTER: ("rdev",),
    InodeKind.BLOCK: ("rdev",),
}


@dataclass
class Listing:
    """One client's listing of a directory, in any number of READDIRs."""

    ino: int
    owed: set[bytes]
    """The names that exist since the start and are not listed yet."""
    given: set[bytes] = field(default_factory=set)
    """The names that were listed and have existed since."""
    cookie: int = 0


def settle(node: Node, attr: Attr, nlink: int, now_ns: int) -> list[str]:
    """Compare an inode with the gateway's answer, and adopt the values left to the gateway."""
    expected = {name: getattr(node, name) for name in _ALWAYS}
    expected |= {name: getattr(node, name) for name in _BY_KIND.get(InodeKind(node.kind), ())}
    wrong = [
        f"inode {node.ino}: {name} is {getattr(attr, name)}, expected {value}"
        for name, value in (expected | {"nlink": nlink}).items()
        if getattr(attr, name) != value
    ]
    for name in ("atime_ns", "mtime_ns", "ctime_ns", "btime_ns", "change"):
        value, actual = getattr(node, name), getattr(attr, name)
        if isinstance(value, AtLeast):
            fits = value.low <= actual and (name == "change" or actual <= now_ns)
        else:
            fits = actual == value
        if not fits:
            wrong.append(f"inode {node.ino}: {name} is {actual}, expected {value}")
        setattr(node, name, actual)
    # A client does not see where the bytes are.
    seen, node.seen = node.seen, attr._replace(residency=Residency.RESIDENT, epoch=0)
    attr = node.seen
    if seen is not None and seen != attr and attr.change <= seen.change:
        wrong.append(f"inode {node.ino}: changed, but change is still {attr.change}")
    return wrong


class Pair(RuleBasedStateMachine):
    """A Namespace and its model.

    Args:
        step: called for every operation.
    """

    def __init__(self, volumes: Volumes, step: Callable[[], object]) -> None:
        super().__init__()
        self._step = step
        self._volume = volumes()
        self._settings = self._volume.__enter__()
        self.ns = Namespace(self._settings)
        self.model = Model(self.ns.getattr(ROOT))
        self.inos = [ROOT]
        """Every inode number that was ever answered: clients may still use it."""
        self.names: list[Place] = []
        """Every name that was ever made."""
        self.cookies: dict[int, dict[int, bytes]] = {}
        """The name of each cookie that was ever used, by directory."""
        self.listings: list[Listing] = []

    def teardown(self) -> None:
        self.ns.close()
        self._volume.__exit__(None, None, None)

    def data_file(self, node: Node) -> Path:
        return self.ns.files.path(node.ino, node.epoch)

    # ---- choosing inodes and names ----

    def an_inode(self, data: st.DataObject, kind: InodeKind | None = None) -> int:
        there = [n.ino for n in self.model.nodes.values() if kind in (None, n.kind)]
        if not there or data.draw(seldom):
            there = self.inos
        return data.draw(st.sampled_from(there), label="inode")

    def an_entry(self, data: st.DataObject) -> Place:
        there = [(d.ino, name) for d in self.model.directories() for name in d.entries]
        if not there or data.draw(seldom):
            there = self.names
        if not there or data.draw(seldom):
            return self.a_place(data)
        return data.draw(st.sampled_from(there), label="entry")

    def a_place(self, data: st.DataObject) -> Place:
        return self.an_inode(data, InodeKind.DIRECTORY), data.draw(a_name, label="name")

    # ---- running operations ----

    def both(self, expect: Callable[[], M], act: Callable[[], T]) -> tuple[M, T] | None:
        """Run one operation on the model and the gateway, and compare success and error.

        Returns both answers, or None if the gateway refused as the model allows.
        """
        self._step()
        self.model.now_ns = clock.now_ns()
        refused: Refused | None = None
        try:
            expected = expect()
        except Refused as exc:
            refused = exc
        try:
            answer = act()
        except errors.NamespaceError as exc:
            assert refused is not None, f"answered {exc!r}, expected success"
            assert exc.errno in refused.errnos, f"answered {exc!r}, expected {refused}"
            return None
        if refused is not None:
            assert refused.or_nothing, f"succeeded, expected {refused}"
            return None
        return expected, answer

    def same(self, expect: Callable[[], Node], act: Callable[[], Attr]) -> Node | None:
        """Run an operation that answers with an inode's attributes."""
        done = self.both(expect, act)
        if done is None:
            return None
        node, attr = done
        assert attr.ino == node.ino
        assert attr == self.ns.getattr(node.ino)
        return node

    def make(
        self,
        cred: Cred,
        place: Place,
        wanted: SetAttr,
        kind: InodeKind,
        act: Callable[[], Attr],
        also: Errors | None = None,
    ) -> Node | None:
        """Run an operation that makes an inode."""
        done = self.both(lambda: self.model.make(cred, *place, wanted, kind, also or ()), act)
        if done is None:
            return None
        node, attr = done
        assert attr.ino not in self.inos, "an inode number was used again"
        node.generation = self.ns.boot.generation
        self.model.bind(node, attr.ino)
        self.inos.append(attr.ino)
        self.names.append(place)
        assert attr == self.ns.getattr(attr.ino)
        assert self.ns.verifier(attr.ino) is None or kind == InodeKind.REGULAR
        return node

    # ---- comparing: the whole tree after every operation ----

    def go_on_listing(self, listing: Listing, most: int) -> None:
        done = self.both(
            lambda: self.model.directory(listing.ino),
            lambda: self.ns.readdir(listing.ino, listing.cookie, most),
        )
        if done is None:
            return
        dirents = done[1]
        assert len(dirents) <= most
        for entry in dirents:
            assert entry.name not in listing.given, f"{entry.name!r} was listed twice"
            assert entry.cookie > listing.cookie
            assert entry.attr == self.ns.getattr(entry.attr.ino)
            listing.given.add(entry.name)
            listing.owed.discard(entry.name)
            listing.cookie = entry.cookie
        assert dirents or not listing.owed, f"never listed: {listing.owed}"

    @invariant()
    def every_inode_agrees(self) -> None:
        wrong: list[str] = []
        for node in self.model.nodes.values():
            attr = self.ns.getattr(node.ino)
            wrong += settle(node, attr, self.model.nlink(node), clock.now_ns())
            assert self.ns.verifier(node.ino) == node.verifier
            path = self.data_file(node)
            size = path.stat().st_size if path.exists() else None
            if size != node.data:
                wrong.append(f"inode {node.ino}: data file has {size} bytes, not {node.data}")
        assert not wrong, "\n".join(wrong)
        for ino in set(self.inos) - set(self.model.nodes):
            with pytest.raises(errors.Stale):
                self.ns.getattr(ino)

    @invariant()
    def every_directory_agrees(self) -> None:
        for node in self.model.directories():
            listed = self.ns.readdir(node.ino, 0, 10_000)
            assert {e.name: e.attr.ino for e in listed} == {
                name: entry.ino for name, entry in node.entries.items()
            }
            assert self.ns.lookup_parent(node.ino).ino == self.model.parent(node).ino
            self.check_cookies(node, listed)
        for listing in self.listings:
            directory = self.model.nodes.get(listing.ino)
            there = set() if directory is None else set(directory.entries)
            listing.owed &= there
            listing.given &= there

    def check_cookies(self, node: Node, listed: list[Dirent]) -> None:
        """Require unique cookies that stay with a name and are never used for another name."""
        cookies = [entry.cookie for entry in listed]
        assert cookies == sorted(set(cookies))
        assert not cookies or cookies[0] > 2, "0 to 2 are reserved"
        known = self.cookies.setdefault(node.ino, {})
        for entry in listed:
            assert known.setdefault(entry.cookie, entry.name) == entry.name, "a cookie was reused"
        now = {(entry.name, entry.attr.ino): entry.cookie for entry in listed}
        for key, cookie in now.items():
            assert node.cookies.get(key, cookie) == cookie, f"{key[0]!r}: another cookie"
        node.cookies = now
