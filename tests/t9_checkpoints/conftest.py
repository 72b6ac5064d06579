"""A namespace on each engine, and a follower that has read everything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.checkpoints.follower import Follower
from gateway.settings import Settings
from tests.support.namespace import Namespace
from tests.t9_checkpoints.world import World, follow


@pytest.fixture
def world(settings: Settings, namespace: Namespace) -> Iterator[World]:
    made = World(settings, namespace)
    yield made
    made.end()


@pytest.fixture
def follower(world: World) -> Follower:
    made = world.follower()
    follow(made)
    return made
