"""After random changes the catalogue equals one that is rebuilt from the namespace."""

from __future__ import annotations

import random

import pytest

from gateway.catalogue import store as catalogue_module
from gateway.catalogue import tracker as follower_module
from gateway.catalogue.tracker import Follower
from tests.support.checkpoints.layouts import index, tensors
from tests.support.checkpoints.world import World, follow, rebuilt, rows_of

NAMES = ["a", "run", "step-1", "iter_0000001", "global_step2", "checkpoint-3", "x.tmp", "4"]
FILES = [
    *(".metadata", "__0_0.distcp", "latest", "latest_checkpointed_iteration.txt", "ckpt-1.pt"),
    *("trainer_state.json", "m.index.json", "commit_success.txt", "step-1-unfinished", "x.tmp"),
]
DATA = [b"", b"1", b"{}", b"global_step2", tensors(), index("x.tmp"), index(".metadata")]


def change(world: World, draw: random.Random, files: list[str]) -> None:
    """Make one random change.

    Args:
        files: the paths of files that were made.
    """
    directory = "/".join(draw.choices(NAMES, k=draw.randint(1, 3)))
    kind = draw.randrange(8)
    if kind < 4 or not files:
        path = f"{directory}/{draw.choice(FILES)}"
        world.write(path, draw.choice(DATA))
        files.append(path)
    elif kind == 4:
        world.remove(draw.choice(files))
    elif kind == 5:
        world.drain(draw.choice(files))
    else:
        old = draw.choice(files)
        cut = draw.randint(1, old.count("/") + 1)
        world.rename("/".join(old.split("/")[:cut]), directory)


def change_some(world: World, draw: random.Random, files: list[str]) -> None:
    for _ in range(draw.randint(1, 12)):
        try:
            change(world, draw, files)
        except Exception as exc:
            # The namespace refuses what makes no sense: a rename into itself, say.
            if not hasattr(exc, "errno"):
                raise


@pytest.mark.parametrize("seed", range(3))
def test_following_gives_what_a_rebuild_gives(
    seed: int, world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "READ_INOS", 5)
    monkeypatch.setattr(follower_module, "WRITTEN_AT_ONCE", 2)
    monkeypatch.setattr(catalogue_module, "PAGE", 2)
    monkeypatch.setattr("gateway.catalogue.tree.PAGE", 2)
    draw = random.Random(seed)
    files: list[str] = []
    for _ in range(6):
        change_some(world, draw, files)
        follow(follower)
        followed = rows_of(world.settings)
        assert followed == rebuilt(world)
        follower = world.follower()


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_wait_are_not_lost(
    seed: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "WRITTEN_AT_ONCE", 4)
    monkeypatch.setattr(follower_module, "SAVE_ROWS", 30)
    draw = random.Random(seed)
    files: list[str] = []
    for _ in range(3):
        follower = world.follower(writing_seconds=3600.0)
        for _ in range(4):
            change_some(world, draw, files)
            follow(follower)
        # The process ends here, and another one begins where the position is.
    follow(world.follower())
    followed = rows_of(world.settings)
    assert followed == rebuilt(world)
