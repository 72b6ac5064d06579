"""Random runs, layouts, kills, removals, rollbacks, clocks and policies, with an oracle that knows
which checkpoints are whole.

- No checkpoint that is not whole is ever complete with the grade ``listed`` or ``alike``.
- No policy, and no job that rotates its checkpoints, leaves the bucket without a whole checkpoint
  of a run that had one.
- What is whole is complete as soon as nothing more is written.

``SPILLWAY_CHECKPOINT_STEPS`` says how many steps are done, and ``SPILLWAY_CHECKPOINT_SEED``
repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.catalogue.facts import TRUSTED, CheckpointState, Grade
from gateway.catalogue.tracker import Follower
from gateway.common import clock
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.retention.guard import DeletionGuard
from gateway.lifecycle.trash.expiry import Expiry
from gateway.lifecycle.trash.rows import TrashRow
from gateway.objectstore import key_mapper
from gateway.processes.checkpoints import _reason_against
from tests.support.checkpoints import keeping
from tests.support.checkpoints.layouts import deepspeed_states, metadata, tensors
from tests.support.checkpoints.trashing import opener, trash_of
from tests.support.checkpoints.world import World, follow
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings, make_volume, query

STEPS = int(os.environ.get("SPILLWAY_CHECKPOINT_STEPS", "2000"))
SEED = os.environ.get("SPILLWAY_CHECKPOINT_SEED")
"""Empty: a new one for each run. It is printed."""
NS = clock.NS
Files = dict[str, bytes]


def dcp(_step: int) -> Files:
    """Return the files of a checkpoint in the order in which they are written, by paths in it."""
    shards = [f"__{rank}_0.distcp" for rank in range(3)]
    return {**dict.fromkeys(shards, b"x" * 100), ".metadata": metadata(*shards, size=100)}


def trainer(_step: int) -> Files:
    files = {f"rng_state_{rank}.pth": tensors() for rank in range(3)}
    return {"optimizer.pt": tensors(), **files, "trainer_state.json": b"{}"}


def deepspeed(_step: int) -> Files:
    rank = "zero_pp_rank_{}_mp_rank_00_optim_states.pt"
    files = {rank.format(number): tensors() for number in range(3)}
    return {"mp_rank_00_model_states.pt": deepspeed_states(3), **files}


def single(_step: int) -> Files:
    return {"": tensors()}


LAYOUTS: dict[str, tuple[str, Callable[[int], Files]]] = {
    "dcp": ("step-{}", dcp),
    "trainer": ("checkpoint-{}", trainer),
    "deepspeed": ("global_step{}", deepspeed),
    "single": ("model-step-{}.pt", single),
}


@dataclass
class Save:
    """A checkpoint as a job saves it."""

    path: str
    files: Files
    inos: dict[str, int] = field(default_factory=dict)
    """The inodes of the files that were written, by paths in the checkpoint."""
    is_removed: bool = False
    """Whether the job has removed it, or some of it."""

    def at(self, name: str) -> str:
        return f"{self.path}/{name}" if name else self.path


POLICY = {"name": "keep", "run": "*", "keep_newest": 1, "wait_hours": 0, "approve": "automatic"}


class Gateway:
    """One gateway with the clients, the drain and the tasks in one thread."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world, self.draw = world, draw
        self.saves: dict[str, list[Save]] = {f"{name}-run": [] for name in LAYOUTS}
        self.known: set[str] = set()
        """The runs of which a whole checkpoint was complete. Before that, nothing tells two halves
        of saves from two checkpoints."""
        self.had: set[str] = set()
        """The runs of which the bucket had a whole checkpoint."""
        self.step = dict.fromkeys(self.saves, 0)
        self.elapsed_seconds = 0.0
        self.done: Counter[str] = Counter()
        """What policies and trash did, and how often: a run that deletes nothing shows nothing."""
        self._last_action = 0
        self.follower: Follower = world.follower()
        self.names: dict[str, int] = {}
        self.sizes: dict[int, int] = {}
        """The inodes that the bucket has as they are, with their sizes."""
        settings = world.settings
        guard = DeletionGuard(settings, self._database(), keeping.Present())

        def reason_against(entry: TrashRow) -> str | None:
            return _reason_against(guard, entry)

        stop = threading.Event()
        self._expiry = Expiry(
            settings, self._database(), stop, reason_against, open_control=opener(world.namespace)
        )
        trash = trash_of(world)
        self._applier = Applier(settings, self._database(), stop, trash, keeping.Present())

    def _database(self) -> Database:
        made = Database(self.world.settings.database_url)
        self.world._databases.append(made)
        return made

    # What is true.

    def read(self) -> None:
        """Read the names, and what the bucket has."""
        below: dict[int, list[tuple[str, int]]] = {}
        for parent, name, ino in query(self.world.settings, "SELECT parent, name, ino FROM dirent"):
            below.setdefault(parent, []).append((bytes(name).decode(), ino))
        self.names = {}
        waiting = [(ROOT_INO, "")]
        while waiting:
            directory, above = waiting.pop()
            for name, ino in below.get(directory, ()):
                path = f"{above}/{name}" if above else name
                self.names[path] = ino
                waiting.append((ino, path))
        self.sizes = dict(
            query(
                self.world.settings,
                "SELECT o.ino, o.size FROM object o JOIN inode i ON i.ino = o.ino WHERE i.nlink > 0"
                " AND o.content_version = i.content_version AND i.write_open = 0",
            )
        )

    def is_whole(self, save: Save) -> bool:
        """Return whether each file is at its path as the job wrote it."""
        return save.inos.keys() == save.files.keys() and all(
            self.names.get(save.at(name)) == ino for name, ino in save.inos.items()
        )

    def is_in_bucket(self, save: Save) -> bool:
        """Return whether the bucket has each file as the job wrote it, wherever its name is."""
        return save.inos.keys() == save.files.keys() and all(
            self.sizes.get(ino) == len(save.files[name]) for name, ino in save.inos.items()
        )

    # What happens.

    def begin(self, run: str) -> None:
        """Write a checkpoint, or the first files of it: then its job was killed."""
        layout, make = LAYOUTS[run.removesuffix("-run")]
        self.step[run] += self.draw.choice([1, 1, 1, 10])
        if self.draw.random() < 0.05 and self.saves[run]:
            # The run begins again from an earlier step.
            self.step[run] = max(1, self.step[run] - 5)
        save = Save(f"{run}/{layout.format(self.step[run])}", make(self.step[run]))
        if any(one.path == save.path for one in self.saves[run]):
            return
        self.saves[run].append(save)
        names = list(save.files)
        if self.draw.random() < 0.3:
            self.draw.shuffle(names)  # a copy
        whole = self.draw.random() < 0.6
        written = names if whole else names[: self.draw.randrange(len(names) + 1)]
        if not whole and self.draw.random() < 0.5:
            # A rank was killed, and the others were not.
            killed = self.draw.choice(names)
            written = [name for name in names if name != killed]
        for name in written:
            self.write(save, name)
            if self.draw.random() < 0.2:
                follow(self.follower)
        if run.startswith("deepspeed") and self.draw.random() < 0.8:
            # The first rank writes it whether or not the others are done.
            self.world.write(f"{run}/latest", save.path.rpartition("/")[2].encode())
        if not whole and names and self.draw.random() < 0.3:
            self.cut(save, self.draw.choice(names))

    def write(self, save: Save, name: str) -> None:
        save.inos[name] = self.world.write(save.at(name), save.files[name])

    def cut(self, save: Save, name: str) -> None:
        """Leave the first half of a file: its writer was killed."""
        if name not in save.inos:
            self.world.write(save.at(name), save.files[name][: len(save.files[name]) // 2])

    def finish(self, run: str) -> None:
        """Write what is missing of a checkpoint: a rank was late."""
        save = self.draw.choice(self.saves[run])
        if save.is_removed:
            return
        for name in save.files:
            if name not in save.inos and self.draw.random() < 0.7:
                if save.at(name) in self.names:
                    self.world.remove(save.at(name))
                self.write(save, name)

    def drain(self, run: str) -> None:
        """Bring files of a run into the bucket: all of some checkpoints, or some of all."""
        everything = self.draw.random() < 0.6
        for save in self.saves[run]:
            for name, ino in save.inos.items():
                is_there = self.names.get(save.at(name)) == ino and ino not in self.sizes
                if is_there and (everything or self.draw.random() < 0.5):
                    self.upload(save.at(name), ino)

    def upload(self, path: str, ino: int) -> None:
        """Upload a file. What the trash has at its key makes way, as in the drain."""
        key = key_mapper.key_of(self.world.settings.bucket.prefix, tuple(path.encode().split(b"/")))
        query(
            self.world.settings,
            "UPDATE object SET key = key || ' in the trash ' || ino"
            " WHERE key = :key AND ino <> :ino",
            key=key,
            ino=ino,
        )
        self.world.drain(path)

    def rotate(self, run: str) -> None:
        """Remove all checkpoints but the last, as a job does that keeps one."""
        for save in self.saves[run][:-1]:
            self.remove_one(save, is_killed=False)

    def remove(self, run: str) -> None:
        """Remove a checkpoint, or only some files of it: the removal was killed."""
        self.remove_one(self.draw.choice(self.saves[run]), is_killed=self.draw.random() < 0.3)

    def remove_one(self, save: Save, *, is_killed: bool) -> None:
        names = [name for name in save.files if save.at(name) in self.names]
        self.draw.shuffle(names)
        for name in names[: len(names) // 2] if is_killed else names:
            self.world.remove(save.at(name))
        if not is_killed and "" not in save.files and save.path in self.names:
            self.world.remove(save.path)
        save.is_removed = True

    def restart(self, _run: str) -> None:
        """Kill the process of the catalogue, and start another one."""
        before = self.follower._database
        self.world._databases.remove(before)
        before.close()
        self.follower = self.world.follower()

    def govern(self, _run: str) -> None:
        """Let the tasks do what the policy says, and what the trash has kept for long enough."""
        self._applier._next_at = 0.0
        self._applier.run_once()
        self._expiry.run_once()
        # The gateway forgets its actions after 90 days, of which each long run has many.
        actions = query(
            self.world.settings, "SELECT id, what FROM action WHERE id > :id", id=self._last_action
        )
        self._last_action = max((number for number, _what in actions), default=self._last_action)
        self.done.update(what for _id, what in actions)

    def jump(self, _run: str) -> None:
        """Let time pass."""
        self.elapsed_seconds += self.draw.choice([1.0, 70.0, 4000.0, 10 * 86_400.0])

    # The deletion guards.

    def check(self) -> None:
        follow(self.follower)
        self.read()
        grades = {
            bytes(path).decode(): grade
            for path, grade in query(self.world.settings, "SELECT path, grade FROM checkpoint")
        }
        alive = {*self.names.values(), *self.sizes}
        for run, saves in self.saves.items():
            members = Counter(frozenset(save.inos) for save in saves)
            for save in saves:
                grade = grades.get(save.path)
                is_repeated = members[frozenset(save.inos)] > 1
                # Saves that lack the same files each time look alike: a limit that README states.
                if grade == Grade.LISTED or (
                    grade == Grade.ALIKE and run in self.known and not is_repeated
                ):
                    assert self.is_whole(save), f"{save.path} is {grade}"
                if grade is not None and self.is_whole(save):
                    self.known.add(run)
                    if self.is_in_bucket(save) and grade in TRUSTED:
                        self.had.add(run)
            if run in self.had:
                assert any(map(self.is_in_bucket, saves)), f"{run} has none in the bucket"
            self.saves[run] = [
                save for save in saves if not save.is_removed or alive & {*save.inos.values()}
            ]


@contextmanager
def clocks(gateway: Gateway) -> Iterator[None]:
    """Let the time be what the gateway says has passed. The wall clock was set wrongly now and
    then."""
    now_ns, uptime_ns = clock.now_ns, clock.uptime_ns
    monotonic_seconds = clock.monotonic_seconds

    def passed_ns() -> int:
        return int(gateway.elapsed_seconds * NS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now_ns", lambda: now_ns() + passed_ns())
        patch.setattr(clock, "uptime_ns", lambda: uptime_ns() + passed_ns())
        patch.setattr(
            clock, "monotonic_seconds", lambda: monotonic_seconds() + gateway.elapsed_seconds
        )
        yield


ACTIONS = (
    *("begin",) * 6,
    *("finish", "drain", "drain", "drain", "remove", "rotate", "rotate"),
    *("govern", "govern", "govern", "jump", "jump", "restart"),
)


@pytest.fixture
def governed(tmp_path: Any, database_url: str) -> Iterator[World]:
    """A namespace with a policy that keeps one checkpoint of each run, and keeps a trash for a
    day. What clients remove is held until a newer one is there, however long that takes."""
    values: dict[str, dict[str, Any]] = {
        "namespace": {"url": database_url},
        "retention": {"approval_share": 1.0, "trash_seconds": 86_400.0, "rotation_hours": 1e6},
        "checkpoints": {"quiet_seconds": 60.0},
    }
    settings = make_settings(tmp_path / "data", values)
    make_volume(settings)
    made = World(settings, Namespace(settings))
    keeping.put(made, POLICY)
    yield made
    made.end()
    made.namespace.close()


@pytest.mark.timeout(600 + STEPS // 5)
def test_nothing_deletes_the_last_whole_checkpoint(governed: World) -> None:
    seed = SEED or str(random.SystemRandom().randrange(1 << 32))
    print(f"SPILLWAY_CHECKPOINT_SEED={seed}")
    gateway = Gateway(governed, random.Random(seed))
    # The rules are the same on both engines, and each step waits for the disk.
    is_sqlite = governed.settings.database_url.startswith("sqlite")
    steps = STEPS if is_sqlite else STEPS // 8
    with clocks(gateway):
        for number in range(steps):
            if number % 10_000 == 9_999:
                print(f"{number + 1:,} steps", flush=True)
            run = gateway.draw.choice(list(gateway.saves))
            action = gateway.draw.choice(ACTIONS)
            if action in ("finish", "remove", "rotate") and not gateway.saves[run]:
                continue
            getattr(gateway, action)(run)
            try:
                gateway.check()
            except AssertionError as exc:
                raise AssertionError(f"step {number}, {action} {run}, seed {seed}: {exc}") from exc
        # What is whole is complete when nothing more is written.
        gateway.restart("")
        for _ in range(3):
            gateway.check()
            gateway.elapsed_seconds += 4000.0
        whole = [
            save for saves in gateway.saves.values() for save in saves if gateway.is_whole(save)
        ]
        for save in whole:
            row = governed.row(save.path)
            assert row is not None, (save.path, seed)
            assert row.state not in (CheckpointState.WRITING, CheckpointState.BROKEN), (row, seed)
    print(f"{len(whole)} whole ones are left; {dict(gateway.done)}")
    # How many depends on the seed; none at all would say that the deletion guards were not tried.
    assert gateway.done["trash"] > steps / 500
    assert gateway.done["remove"] > steps / 500
