"""Fixtures of a gateway without its NFS server, on real S3 servers.

The servers run for the whole session. Each test has a bucket, a proxy and a gateway of its own. A
suite that needs them imports them into its conftest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.drainsite import Site
from tests.support.postgres import PostgresServer
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import MotoServer, RcloneServer, Server, WeedServer
from tests.support.t4.ceph import ON_CEPH, CephServer
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
