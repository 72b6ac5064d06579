"""S3 servers for the whole run, and a bucket, a proxy and a gateway for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.drainsite import Site
from tests.support.postgres import PostgresServer
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import MotoServer, RcloneServer, Server, WeedServer
from tests.support.t4.ceph import ON_CEPH, CephServer
from tests.support.t4.negotiated import configured, remembered
from tests.support.verifier import Verifier

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephServer]:
    with CephServer(tmp_path_factory.mktemp("s3") / "ceph") as server:
        yield server


def _running(
    request: pytest.FixtureRequest,
    kind: type[RcloneServer | MotoServer | WeedServer],
    directory: Path,
) -> Iterator[Server]:
    if ON_CEPH:
        yield request.getfixturevalue("ceph")
        return
    with kind(directory) as server:
        yield server


@pytest.fixture(scope="session")
def rclone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    yield from _running(request, RcloneServer, tmp_path_factory.mktemp("s3") / "rclone")


@pytest.fixture(scope="session")
def moto(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    yield from _running(request, MotoServer, tmp_path_factory.mktemp("s3") / "moto")


@pytest.fixture(scope="session")
def weed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    yield from _running(request, WeedServer, tmp_path_factory.mktemp("s3") / "weed")


Counted = Callable[[], int]


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Return a function that tells how many bytes were read with ``os.preadv`` since the start of
    the test."""
    honest = os.preadv
    counts: list[int] = []

    def counting(fd: int, buffers: list[memoryview], offset: int) -> int:
        counts.append(honest(fd, buffers, offset))
        return counts[-1]

    monkeypatch.setattr(os, "preadv", counting)
    return lambda: sum(counts)


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    """Return a function that makes a gateway on a given server. The gateways end with the test."""
    with ExitStack() as stack:

        def make(server: Server, database_url: str = "", verifier: Verifier | None = None) -> Site:
            number = next(_numbers)
            proxy = stack.enter_context(S3Proxy(server.port))
            proxy.verifier = verifier
            site = Site(tmp_path / str(number), server, f"bucket-{number}", proxy, database_url)
            stack.callback(site.close)
            return site

        yield make


@pytest.fixture(params=["rclone"] if ON_CEPH else ["rclone", "moto", "weed"])
def site(request: pytest.FixtureRequest, make_site: MakeSite) -> Site:
    """Make a gateway on each kind of server."""
    return make_site(request.getfixturevalue(request.param))


@pytest.fixture
def rclone_site(rclone: RcloneServer, make_site: MakeSite) -> Site:
    """Make a gateway on rclone, for tests in which the kind of server makes no difference."""
    return make_site(rclone)


@pytest.fixture(params=["sqlite", "postgres"])
def each_site(request: pytest.FixtureRequest, rclone: RcloneServer, make_site: MakeSite) -> Site:
    """A gateway on each engine."""
    if request.param == "sqlite":
        return make_site(rclone)
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return make_site(rclone, database_url=postgres.create_database())


@pytest.fixture
def moto_site(moto: MotoServer, make_site: MakeSite) -> Site:
    """Make a gateway on moto, for tests that need the answers of AWS."""
    return make_site(moto)


@pytest.fixture
def verifier() -> Verifier:
    return Verifier()


@pytest.fixture
def verifying_site(moto: MotoServer, make_site: MakeSite, verifier: Verifier) -> Site:
    return configured(make_site(moto, verifier=verifier), "auto")


@pytest.fixture(params=["crc64nvme", "crc32c"])
def newer_site(request: pytest.FixtureRequest, moto: MotoServer, make_site: MakeSite) -> Site:
    """A store that verifies one newer checksum, and was found to."""
    site = configured(make_site(moto, verifier=Verifier([request.param])), "auto")
    site.drain()
    assert remembered(site) == [request.param]
    site.proxy.forget()
    return site


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the transport wait for an answer, however long a busy machine takes, before the body."""
    monkeypatch.setattr("gateway.objectstore.transport.CONTINUE_SECONDS", 30.0)
