"""Fixtures of more than one layer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import botocore.session
import hypothesis
import pytest

from gateway.config.settings import Settings
from tests.support.direct import answering
from tests.support.gateway import Gateway, running
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.volumes import make_settings, make_volume

# A shell starts what it puts into the background with SIGINT ignored, and children inherit that.
# Tests that interrupt a command would then wait for its end.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Most tests save checkpoints that nothing but a marker shows to be whole, and have no time to wait.
# Those of the wait set it.
os.environ["SPILLWAY_CHECKPOINTS_QUIET_SECONDS"] = "0"

# The machine's own settings would be used too. AWS_CA_BUNDLE alone is 25 ms of processor time for
# each client that is made.
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]

# The other half of the tests keeps both cores busy, so that any example may take long.
hypothesis.settings.register_profile("spillway", deadline=None)
hypothesis.settings.load_profile("spillway")


@pytest.fixture(scope="session", autouse=True)
def one_loader() -> Iterator[None]:
    """Let all sessions of botocore read its models once. Each server, site and drain makes a
    client, and reading the models is more than half of the time that this takes."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
        yield


@pytest.fixture
def control_socket_of_namespace() -> Iterator[None]:
    """Let the namespace answer over the control socket of a gateway whose NFS server does not
    run."""
    with answering():
        yield


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Run one PostgreSQL server for the session. Each test creates a database of its own."""
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database, on each engine in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/namespace.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create_database()


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    """Return settings of a gateway, and make its volume."""
    made = make_settings(tmp_path / "data", {"namespace": {"url": database_url}})
    make_volume(made)
    return made


@pytest.fixture
def namespace(settings: Settings) -> Iterator[Namespace]:
    """Open the namespace."""
    opened = Namespace(settings)
    yield opened
    opened.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """Run a whole gateway, and the S3 server of its bucket behind a proxy."""
    with running(tmp_path) as made:
        yield made
