"""After random changes the catalogue equals one that is rebuilt from the namespace."""

from __future__ import annotations

import random

import pytest

from gateway.catalogue import store as catalogue_module
from gateway.catalogue import tracker as follower_module
from gateway.catalogue.tracker import Follower
from tests.support.checkpoints.world import World, follow, rebuilt, rows_of
from tests.support.t9.random import change_some


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
