"""World with five durable checkpoints and a policy, for tests of retention."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.common import clock, failpoints
from gateway.common.clock import ClockReading
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.retention import transitions
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.retention.guard import Heads
from gateway.lifecycle.trash.trash import Trash
from tests.support.checkpoints.keeping import (
    Present,
    catch_up,
    put,
    save,
)
from tests.support.checkpoints.world import World
from tests.support.direct import answering
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings, make_volume


@pytest.fixture
def made(tmp_path: Path) -> Settings:
    settings = make_settings(tmp_path / "data")
    make_volume(settings)
    return settings


def with_share(settings: Settings, share: float = 0.8) -> Settings:
    """Return settings by which so much of a run goes without a question."""
    return replace(settings, retention=replace(settings.retention, approval_share=share))


@pytest.fixture
def world(made: Settings) -> Iterator[World]:
    """A run with five durable steps, and a policy that keeps the newest two."""
    opened = World(with_share(made), Namespace(made))
    save(opened, *(f"run/step-{step}" for step in range(1, 6)))
    put(opened, {"name": "two", "keep_newest": 2})
    catch_up(opened)
    yield opened
    opened.end()
    opened.namespace.close()


def live(
    settings: Settings, armed: str, read: ClockReading | None = None, heads: Heads | None = None
) -> None:
    """Apply until a failpoint kills this process, or all is done. The namespace answers in place of
    the server.

    Args:
        read: what the clocks say, or None for the real ones.
        heads: know what the bucket has, or None for a bucket that has everything.
    """
    if read is not None:
        clock.reading = lambda: read
    transitions.AT_ONCE = 1000
    failpoints.arm(armed)
    database = Database(settings.database_url)
    trash = Trash(settings, database)
    with answering():
        Applier(settings, database, threading.Event(), trash, heads or Present()).run_once()
