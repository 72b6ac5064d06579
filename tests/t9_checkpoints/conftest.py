"""A namespace on each engine, and a follower that has read everything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.catalogue.receipt_reconciler import ReceiptReconciler
from gateway.catalogue.tracker import Follower
from gateway.config.settings import Settings
from gateway.lifecycle.trash import expiry
from tests.support.checkpoints.world import World, follow
from tests.support.drainsite import Site
from tests.support.namespace import Namespace
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import RcloneServer
from tests.support.t9.rotating import Job
from tests.support.volumes import make_volume, write_settings


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


@pytest.fixture
def reconciler(world: World) -> Iterator[ReceiptReconciler]:
    made = ReceiptReconciler(world.settings, threading.Event())
    yield made
    made._database.close()


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[World]:
    """A namespace on SQLite with a configuration file, which commands read."""
    settings = write_settings(tmp_path)
    make_volume(settings)
    made = World(settings, Namespace(settings))
    yield made
    made.end()
    made.namespace.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A namespace that the real drain brings to a real store."""
    with RcloneServer(tmp_path / "s3") as server, S3Proxy(server.port) as proxy:
        made = Site(tmp_path, server, "checkpoints", proxy)
        yield made
        made.close()


@pytest.fixture
def job(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(expiry, "PASS_SECONDS", 0.0)
    made = Job(site)
    yield made
    made.end()
