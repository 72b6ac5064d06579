"""Random operations compare every answer and the whole tree with a model of POSIX.

``SPILLWAY_PROPERTY_STEPS=10000`` runs at least this many steps from a random seed, and prints it.
``SPILLWAY_PROPERTY_SEED`` sets the first seed, for example to repeat a failure.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from gateway.common import errors
from gateway.common.types import ROOT_CRED, Cred, InodeKind, RemovedName, SetAttr
from gateway.config.settings import Settings
from gateway.db.checkpoint_models import Base
from gateway.db.engine import Database
from gateway.namespace import data_files, fsck, volume
from tests.support.namespace import Namespace
from tests.support.t3.contentrules import ContentRules
from tests.support.t3.machine import ROOT, Listing, Place, Volumes, seldom
from tests.support.t3.node import Errors, Node
from tests.support.t3.regressions import FAR_NS, REGRESSIONS, Regression

STEPS = int(os.environ.get("SPILLWAY_PROPERTY_STEPS", "0"))
SEED = int(os.environ.get("SPILLWAY_PROPERTY_SEED", "0"))
BOUNDED = hypothesis.settings(
    max_examples=12,
    stateful_step_count=50,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)

CREDS = [
    ROOT_CRED,
    ROOT_CRED,
    Cred(1000, 1000, (1000, 5000)),
    Cred(1001, 1001, (5000, 1000)),
    Cred(1002, 1002),
]
MODES = [0o755, 0o777, 0o777, 0o1777, 0o2777, 0o3775, 0o700, 0o070, 0o007, 0o6755, 0o2755, 0o766]
TARGETS = [b"x", b"x", b"../\xff y", b"y" * 300, b"z" * 4095, b"z" * 4096, b"", b"a\0"]
KINDS = [*InodeKind, InodeKind.FIFO, InodeKind.SOCKET, InodeKind.BLOCK]
times = st.sampled_from([None, None, None, 0, 1_500_000_000_123_456_789, FAR_NS])
creds = st.sampled_from(CREDS)
wanted_new = st.builds(
    SetAttr,
    mode=st.sampled_from(MODES),
    uid=st.sampled_from([None] * 6 + [1000, 1002]),
    gid=st.sampled_from([None] * 6 + [1000, 5000]),
    mtime_ns=times,
    atime_ns=times,
)
wanted_change = st.builds(
    SetAttr,
    mode=st.sampled_from([None, *MODES]),
    uid=st.sampled_from([None, None, 1000, 1001, 1002]),
    gid=st.sampled_from([None, None, 1000, 5000]),
    atime_ns=times,
    mtime_ns=times,
)


names_only = precondition(lambda machine: not machine.is_about_bytes)


class NamespaceMachine(ContentRules):
    """The verbs of the namespace, as rules.

    In half of the runs most rules of names are left out: files change hands more often then.
    """

    is_about_bytes = False

    @initialize(is_about_bytes=st.booleans())
    def furnish(self, is_about_bytes: bool) -> None:
        self.is_about_bytes = is_about_bytes
        self.same(
            lambda: self.model.setattr(ROOT, SetAttr(mode=0o777)),
            lambda: self.ns.setattr(ROOT, SetAttr(mode=0o777)),
        )
        for name, mode in ((b"a", 0o1777), (b"b", 0o2777)):
            self.mkdir_at(ROOT_CRED, (ROOT, name), SetAttr(mode=mode, uid=1000, gid=5000))
        for directory in list(self.model.directories()):
            wanted = SetAttr(mode=0o666, uid=1001, gid=1001)
            self.create_at(ROOT_CRED, (directory.ino, b"c"), wanted, None, True)
            self.mkdir_at(ROOT_CRED, (directory.ino, b"d"), SetAttr(mode=0o777, uid=1001))
            self.mkdir_at(ROOT_CRED, (directory.ino, b"e"), SetAttr(mode=0o755))
            self.start_listing(directory.ino)
        self.every_inode_agrees()
        for ino in [node.ino for node in self.model.nodes.values() if node.write_open]:
            self.write_to(ino, 5000)
            self.drain_one(ino, is_closed=True)

    def create_at(
        self,
        cred: Cred,
        place: Place,
        wanted: SetAttr,
        verifier: bytes | None,
        for_writing: bool,
    ) -> None:
        act = lambda: self.ns.create(cred, *place, wanted, verifier, for_writing)  # noqa: E731
        node = self.make(cred, place, wanted, InodeKind.REGULAR, act)
        if node is not None:
            node.verifier, node.write_open = verifier, for_writing

    @rule(data=st.data(), cred=creds, wanted=wanted_new, for_writing=st.booleans())
    def create(self, data: st.DataObject, cred: Cred, wanted: SetAttr, for_writing: bool) -> None:
        self.create_at(cred, self.a_place(data), wanted, None, for_writing)

    @names_only
    @rule(data=st.data(), cred=creds, wanted=wanted_new, verifier=st.binary(min_size=8, max_size=8))
    def create_exclusive(
        self, data: st.DataObject, cred: Cred, wanted: SetAttr, verifier: bytes
    ) -> None:
        self.create_at(cred, self.a_place(data), wanted, verifier, True)

    def mkdir_at(self, cred: Cred, place: Place, wanted: SetAttr) -> None:
        act = lambda: self.ns.mkdir(cred, *place, wanted)  # noqa: E731
        self.make(cred, place, wanted, InodeKind.DIRECTORY, act)

    @names_only
    @rule(data=st.data(), cred=creds, wanted=wanted_new)
    def mkdir(self, data: st.DataObject, cred: Cred, wanted: SetAttr) -> None:
        self.mkdir_at(cred, self.a_place(data), wanted)

    @names_only
    @rule(
        data=st.data(),
        cred=creds,
        wanted=wanted_new,
        text=st.sampled_from(
            [b"x", b"x", b"../\xff y", b"y" * 300, b"z" * 4095, b"z" * 4096, b"", b"a\0"]
        ),
    )
    def symlink(self, data: st.DataObject, cred: Cred, wanted: SetAttr, text: bytes) -> None:
        place = self.a_place(data)
        also: Errors = {errors.InvalidArgument} if text in (b"", b"a\0") else set()
        also |= {errors.NameTooLong} if len(text) > 4095 else set()
        act = lambda: self.ns.symlink(cred, *place, text, wanted)  # noqa: E731
        node = self.make(cred, place, wanted, InodeKind.SYMLINK, act, also)
        if node is not None:
            node.target, node.size = text, len(text)

    @names_only
    @rule(
        data=st.data(),
        cred=creds,
        wanted=wanted_new,
        kind=st.sampled_from(KINDS),
    )
    def mknod(self, data: st.DataObject, cred: Cred, wanted: SetAttr, kind: InodeKind) -> None:
        place, rdev = self.a_place(data), 8 << 32 | 17
        also: Errors = set()
        if kind in (InodeKind.REGULAR, InodeKind.DIRECTORY, InodeKind.SYMLINK):
            also = {errors.InvalidArgument}
        elif kind in (InodeKind.CHARACTER, InodeKind.BLOCK) and cred.uid != 0:
            also = {errors.NotPermitted}
        act = lambda: self.ns.mknod(cred, *place, kind, rdev, wanted)  # noqa: E731
        node = self.make(cred, place, wanted, kind, act, also)
        if node is not None:
            node.rdev = rdev

    @rule(data=st.data(), cred=creds)
    def link(self, data: st.DataObject, cred: Cred) -> None:
        kind = None if data.draw(seldom) else InodeKind.REGULAR
        ino, place = self.an_inode(data, kind), self.a_place(data)
        if self.same(
            lambda: self.model.link(cred, ino, *place), lambda: self.ns.link(cred, ino, *place)
        ):
            self.names.append(place)

    @rule(data=st.data(), cred=creds)
    def remove(self, data: st.DataObject, cred: Cred) -> None:
        self.remove_at(cred, self.an_entry(data))

    def remove_at(self, cred: Cred, place: Place) -> None:
        done = self.both(
            lambda: self.model.remove(cred, *place), lambda: self.ns.remove(cred, *place)
        )
        if done is not None:
            victim, removed = done
            self.check_removed(removed, victim)

    def check_removed(self, removed: RemovedName, victim: Node) -> None:
        left = self.left(victim)
        assert removed[:4] == (victim.ino, victim.kind, left, victim.epoch)
        if left:
            assert removed.change == self.ns.getattr(victim.ino).change

    def left(self, victim: Node) -> int:
        """Return the number of names of an inode that has just lost one."""
        return 0 if victim.kind == InodeKind.DIRECTORY else self.model.nlink(victim)

    @rule(data=st.data(), cred=creds)
    def rename(self, data: st.DataObject, cred: Cred) -> None:
        old = self.an_entry(data)
        self.rename_at(cred, old, self.an_entry(data) if data.draw(seldom) else self.a_place(data))

    @rule(data=st.data(), cred=creds)
    def replace(self, data: st.DataObject, cred: Cred) -> None:
        """Rename over a name of the same kind. Random names would be refused more often."""
        directories = data.draw(st.booleans(), label="directories")
        names = [
            (parent.ino, name)
            for parent in self.model.directories()
            for name, entry in parent.entries.items()
            if (entry.kind == InodeKind.DIRECTORY) == directories
        ]
        if names:
            old, new = (data.draw(st.sampled_from(names), label=label) for label in ("old", "new"))
            self.rename_at(cred, old, new)

    def rename_at(self, cred: Cred, old: Place, new: Place) -> None:
        done = self.both(
            lambda: self.model.rename(cred, *old, *new), lambda: self.ns.rename(cred, *old, *new)
        )
        if done is None:
            return
        (moved, replaced), (attr, removed) = done
        self.names.append(new)
        assert attr == self.ns.getattr(moved.ino)
        assert (replaced is None) == (removed is None)
        if replaced is not None and removed is not None:
            self.check_removed(removed, replaced)

    @names_only
    @rule(data=st.data(), wanted=wanted_change)
    def setattr(self, data: st.DataObject, wanted: SetAttr) -> None:
        ino = self.an_inode(data, InodeKind.REGULAR if data.draw(st.booleans()) else None)
        node = self.same(
            lambda: self.model.setattr(ino, wanted), lambda: self.ns.setattr(ino, wanted)
        )
        # The C side does this too: while a file is written, its data file has the mtime.
        if node and node.write_open and node.data is not None and wanted.mtime_ns is not None:
            os.utime(self.data_file(node), ns=(wanted.mtime_ns, wanted.mtime_ns))

    # ---- ends ----

    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        ino = self.an_inode(data, InodeKind.REGULAR)
        epoch = self.model.nodes[ino].epoch if ino in self.model.nodes else 0
        self.both(lambda: self.model.reclaim(ino), lambda: self.ns.reclaim(ino, epoch))
        with pytest.raises(errors.Stale):
            self.ns.setattr(1, SetAttr())  # the writer works in order, so the reclaim is done now

    @rule(really=seldom)
    def restart(self, really: bool) -> None:
        if not really:
            return
        # The largest number is free in the table again, but the next inode must not get it.
        self.mkdir_at(ROOT_CRED, (ROOT, b"last"), SetAttr(mode=0o755))
        self.remove_at(ROOT_CRED, (ROOT, b"last"))
        boot = self.ns.boot
        self.ns.close()
        database = Database(self._settings.database_url)
        problems = fsck.check(database, self.ns.files)
        database.close()
        assert not problems
        written = [node for node in self.model.nodes.values() if node.writes > 0]
        found = {node.ino: self.on_disk(node) for node in written}
        done = self.both(lambda: self.model.restart(found), lambda: Namespace(self._settings))
        assert done is not None
        recovered, self.ns = done
        assert self.ns.recovered == recovered
        assert self.ns.boot.boot == boot.boot + 1
        assert self.ns.boot.fs_id == boot.fs_id
        there = {(n.ino, n.epoch) for n in self.model.nodes.values() if n.data is not None}
        assert set(self.ns.files.walk()) == there

    # ---- reading ----

    @names_only
    @rule(data=st.data(), cookie=st.sampled_from([0, 17, 1 << 40]))
    def read(self, data: st.DataObject, cookie: int) -> None:
        ino, (parent, name) = self.an_inode(data), self.an_entry(data)
        self.same(lambda: self.model.lookup(parent, name), lambda: self.ns.lookup(parent, name))
        self.same(lambda: self.model.node(ino), lambda: self.ns.getattr(ino))
        self.same(
            lambda: self.model.parent(self.model.directory(ino)),
            lambda: self.ns.lookup_parent(ino),
        )
        done = self.both(lambda: self.model.readlink(ino), lambda: self.ns.readlink(ino))
        assert done is None or done[0] == done[1]
        self.both(lambda: self.model.directory(ino), lambda: self.ns.readdir(ino, cookie, 9))

    @names_only
    @rule(data=st.data(), most=st.integers(1, 4), anew=st.booleans())
    def list_some(self, data: st.DataObject, most: int, anew: bool) -> None:
        if anew or not self.listings:
            self.start_listing(self.an_inode(data, InodeKind.DIRECTORY))
        listing = data.draw(st.sampled_from(self.listings), label="listing")
        self.go_on_listing(listing, most)

    def start_listing(self, ino: int) -> None:
        if ino in self.model.nodes:
            self.listings.append(Listing(ino, set(self.model.nodes[ino].entries)))


@pytest.fixture
def volumes(settings: Settings) -> Volumes:
    """Make empty volumes, one after the other, in one database of the tested engine."""

    @contextmanager
    def fresh() -> Iterator[Settings]:
        yield settings
        database = Database(settings.database_url)
        engine = database.engine()
        with engine.begin() as connection:
            for table in reversed(Base.metadata.sorted_tables):
                if table.name != "fence":  # a migration made its row
                    connection.execute(table.delete())
        engine.dispose()
        volume.create(database)
        database.close()
        (settings.files_dir / data_files.NAME).unlink(missing_ok=True)
        for path in settings.files_dir.glob("*/*"):
            path.unlink()

    return fresh


def drive(volumes: Volumes, settings: hypothesis.settings, seed: int | None = None) -> int:
    """Run the machine. Returns how many operations it did. Prints how to repeat a failure."""
    steps = count()

    def machine() -> NamespaceMachine:
        return NamespaceMachine(volumes, lambda: next(steps))

    seeded: Callable[[], NamespaceMachine] = (
        machine if seed is None else hypothesis.seed(seed)(machine)
    )
    run_state_machine_as_test(seeded, settings=settings)  # type: ignore[arg-type]
    return next(steps)


def drive_long(volumes: Volumes) -> int:
    """Run the machine with new seeds for at least STEPS steps. Returns how many steps it did."""
    done = 0
    settings = hypothesis.settings(BOUNDED, derandomize=False, stateful_step_count=120)
    for seed in count(SEED or secrets.randbits(32)):
        print(f"SPILLWAY_PROPERTY_SEED={seed} after {done} steps", flush=True)
        done += drive(volumes, settings, seed)
        if done >= STEPS:
            break
    print(f"{done} steps")
    return done


@pytest.mark.timeout(0 if STEPS else 300)
def test_the_namespace_is_the_model(volumes: Volumes) -> None:
    """The steps are some hundreds and always the same, unless STEPS asks for others."""
    if STEPS:
        assert drive_long(volumes) >= STEPS
    else:
        assert drive(volumes, BOUNDED) >= 300


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda case: case.__name__)
def test_regression(namespace: Namespace, settings: Settings, regression: Regression) -> None:
    regression(namespace, settings)
