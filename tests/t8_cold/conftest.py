"""A gateway with absent files on each kind of server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.s3proxy import S3Proxy
from tests.support.s3server import MotoServer, RcloneServer, Server
from tests.support.t8.evicting import Cold, tmpfs
from tests.support.t8.site import ColdSite

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RcloneServer]:
    with RcloneServer(tmp_path_factory.mktemp("s3") / "rclone") as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with MotoServer(tmp_path_factory.mktemp("s3") / "moto") as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of hydrators in this process."""
    monkeypatch.setattr("gateway.cache.hydration.SAVE_SECONDS", 0.3)
    monkeypatch.setattr("gateway.cache.hydrator.PAUSE_SECONDS", 0.2)
    monkeypatch.setattr("gateway.cache.fetch_scheduler.PAUSE_MAX_SECONDS", 0.3)


def _made(directory: Path, server: Server) -> Iterator[ColdSite]:
    with S3Proxy(server.port) as proxy:
        made = ColdSite(directory, server, f"cold-{next(_numbers)}", proxy)
        yield made
        made.close()


@pytest.fixture
def site(tmp_path: Path, rclone: RcloneServer) -> Iterator[ColdSite]:
    """A gateway on rclone, which heeds no If-Match."""
    yield from _made(tmp_path, rclone)


@pytest.fixture
def aws_site(tmp_path: Path, moto: MotoServer) -> Iterator[ColdSite]:
    """A gateway on moto, which answers conditions, versions and archives as AWS does."""
    yield from _made(tmp_path, moto)


@pytest.fixture
def cold(rclone: RcloneServer, tmp_path: Path) -> Iterator[Cold]:
    """Make a gateway whose data files are on a disk of 16 MiB: the watermarks are 12.8 and 8."""
    with tmpfs(tmp_path / "gateway" / "data" / "files"), S3Proxy(rclone.port) as proxy:
        made = Cold(tmp_path / "gateway", rclone, f"small-{next(_numbers)}", proxy)
        made.asked = []
        made.configure("space", reserve_bytes=0)
        made.configure("cache", evict_from=0.8, evict_to=0.5)
        try:
            yield made
        finally:
            made.close()
