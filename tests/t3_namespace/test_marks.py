"""A tree is reserved and given back in pages while clients change it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from gateway.common.errors import NamespaceError
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.namespace import fingerprint
from gateway.namespace import reserved as reserved_module
from tests.support.namespace import Namespace
from tests.support.volumes import query

MODE = SetAttr(mode=0o755)


class Clients:
    """Make, move, link and remove names at random, inside a tree and around it."""

    def __init__(self, namespace: Namespace, top: int, seed: int) -> None:
        self._namespace = namespace
        self._random = random.Random(seed)
        self.top = top
        self._outside = namespace.mkdir(ROOT_CRED, ROOT_INO, b"outside", MODE).ino
        self.directories = [top, self._outside]
        for _ in range(60):
            self._change()

    def work(self) -> None:
        """Try a few changes. Those of what is reserved are refused."""
        for _ in range(4):
            self._change()

    def _change(self) -> None:
        choose = self._random.choice
        name, other = (b"%d" % self._random.randrange(6) for _ in range(2))
        at, to = choose(self.directories), choose(self.directories)
        verb = choose(("mkdir", "create", "rename", "rename", "link", "remove"))
        with suppress(NamespaceError):
            if verb == "mkdir":
                self.directories.append(self._namespace.mkdir(ROOT_CRED, at, name, MODE).ino)
            elif verb == "create":
                self._namespace.create(ROOT_CRED, at, name, SetAttr(), for_writing=False)
            elif verb == "rename":
                self._namespace.rename(ROOT_CRED, at, name, to, other)
            elif verb == "link":
                attr = self._namespace.lookup(at, name)
                self._namespace.link(ROOT_CRED, attr.ino, to, other)
            else:
                self._namespace.remove(ROOT_CRED, at, name)


@contextmanager
def few_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reserved_module, "AT_ONCE", 1)
        patch.setattr(reserved_module, "LOOK_COST", 0)
        yield


@pytest.mark.parametrize("seed", range(8))
def test_what_is_reserved_stays_below_and_all_of_it_is_given_back(
    namespace: Namespace, settings: Settings, seed: int
) -> None:
    top = namespace.mkdir(ROOT_CRED, ROOT_INO, b"top", MODE).ino
    clients = Clients(namespace, top, seed)
    reserved = "SELECT count(*) FROM inode WHERE reserved = 1"
    with closing(Database(settings.database_url)) as database, few_at_once():
        reserved_module.reserve(database, top, clients.work)
        with database.reading() as session:
            seen = fingerprint.of(session, top)
        assert seen.is_reserved
        clients.work()
        with database.reading() as session:
            assert fingerprint.of(session, top).number == seen.number
        reserved_module.give_back(database, top, clients.work)
    assert query(settings, reserved) == [(5,)]


def test_nothing_that_is_reserved_leaves_while_it_is_given_back(
    namespace: Namespace, settings: Settings
) -> None:
    """A kill that follows at once would leave it reserved for ever."""
    outside, top = (namespace.mkdir(ROOT_CRED, ROOT_INO, name, MODE).ino for name in (b"out", b"t"))
    first = namespace.mkdir(ROOT_CRED, top, b"d", MODE).ino
    second = namespace.mkdir(ROOT_CRED, first, b"d", MODE).ino
    for directory in (top, first, second):
        namespace.create(ROOT_CRED, directory, b"f", SetAttr(), for_writing=False)
    moved: list[int] = []

    def leave() -> None:
        for directory in (first, top):
            if directory not in moved:
                with suppress(NamespaceError):
                    namespace.rename(ROOT_CRED, directory, b"d", outside, b"%d" % directory)
                    moved.append(directory)
                    raise InterruptedError

    with closing(Database(settings.database_url)) as database, few_at_once():
        reserved_module.reserve(database, top)
        for _ in range(3):
            with suppress(InterruptedError):
                reserved_module.give_back(database, top, leave)
    assert len(moved) == 2
    assert query(settings, "SELECT count(*) FROM inode WHERE reserved = 1") == [(5,)]


def test_a_transaction_marks_few_inodes(namespace: Namespace, settings: Settings) -> None:
    top = namespace.mkdir(ROOT_CRED, ROOT_INO, b"top", MODE).ino
    for number in range(9):
        namespace.create(ROOT_CRED, top, b"%d" % number, SetAttr(), for_writing=False)
    counts: list[int] = []

    def count() -> None:
        counts.extend(query(settings, "SELECT count(*) FROM inode WHERE reserved = 1")[0])

    with closing(Database(settings.database_url)) as database, few_at_once():
        reserved_module.reserve(database, top, count)
        reserved_module.give_back(database, top, count)
    steps = [abs(after - before) for before, after in zip([5, *counts], counts, strict=False)]
    assert max(steps) == 2 and max(counts) == 15 and counts[-1] == 5
