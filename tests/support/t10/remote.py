"""Gateway that serves its admin API over TLS, and commands that are run against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from admin_api.access.principal import Role
from admin_api.access.tokens import create
from admin_api.store import open_store
from admin_api.tls import paths
from gateway.cli.main import main
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from tests.support.checkpoints.keeping import catch_up, put, save
from tests.support.checkpoints.world import World
from tests.support.clisite import PROGRAM, Running, Site, environ
from tests.support.direct import DirectServer
from tests.support.namespace import Namespace
from tests.support.ports import free_port

ONLY_HERE = {
    *("init", "up", "admin", "serve", "drain", "upgrade", "adopt", "fsck"),
    *("first-boot", "restore", "reconcile", "scrub", "backup", "import"),
    *("support-bundle", "webhook test"),
}
"""The commands that run on the gateway only."""


CLIENT = os.environ.get("SPILLWAY_TEST_CLIENT")
"""The client without a gateway (make client-test), or None: commands are run in this process."""

ODD = b"odd\x1b\xff%41"


Run = Callable[..., tuple[int, str, str]]


class Remote(NamedTuple):
    """A gateway with checkpoints, whose admin API serves over TLS."""

    settings: Settings
    url: str
    files: Path
    """A directory of files of mode 0600, each with a token, named by its role."""
    certificate: Path

    def options(self, role: str = "admin") -> list[str]:
        token_file = str(self.files / role)
        trust = ["--ca", str(self.certificate), "--token-file", token_file]
        return ["--gateway", self.url, *trust]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    directory = tmp_path_factory.mktemp("remote")
    site = Site(directory, free_port())
    where = ["--config", str(site.config), "--data-dir", str(directory / "data")]
    away = f"http://127.0.0.1:{free_port()}"
    assert main(["init", *where, "--bucket", "b", "--endpoint-url", away]) == 0
    site.edit("admin", "port", str(free_port()))
    site.edit("admin", "tls", '"self-signed"')
    site.edit("admin", "busy_share", "1")
    site.edit("drain", "settle_seconds", "0")  # no state changes between two commands
    settings = site.settings
    world = World(settings, Namespace(settings))
    _fill(world)
    world.end()
    world.namespace.close()
    store = open_store(settings)
    for role in Role:
        path = directory / role.word
        with store.writing() as session:
            path.write_text(create(session, role.word, role, None, "tests")[1] + "\n")
        path.chmod(0o600)
    store.close()
    with Running([str(PROGRAM), "admin", "--config", str(site.config)], environ()) as admin:
        admin.expect("listening on https://")
        url = f"https://localhost:{settings.admin.port}"
        yield Remote(settings, url, directory, paths(settings)[0])


def _fill(world: World) -> None:
    save(world, *(f"jobs/a/step-{step}" for step in range(1, 5)))
    save(world, "jobs/b/step-1", durable=False)
    for name in ("a", "e", "w"):
        world.write(f"d/{name}", b"12345678")
    world.drain("d/a")
    world.drain("d/e")
    world.evict("d/e")
    above = world.directory("d")
    world.namespace.symlink(ROOT_CRED, above, b"link", b"a", SetAttr())
    world.namespace.mkdir(ROOT_CRED, above, ODD, SetAttr(mode=0o755))
    put(world, {"name": "newest", "keep_newest": 2}, {"name": "old", "delete_after_days": 30})
    catch_up(world)


@pytest.fixture
def server(remote: Remote) -> Iterator[None]:
    """Let a server answer over the control socket."""
    with DirectServer(remote.settings):
        yield


@pytest.fixture
def run(remote: Remote, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command against the gateway, or with ``here`` on it. Returns its exit status and what
    it printed."""

    def ran(
        *words: str, role: str = "admin", here: bool = False, options: list[str] | None = None
    ) -> tuple[int, str, str]:
        verb, *rest = words
        where = ["--config", str(remote.settings.source)]
        given = remote.options(role) if options is None else options
        argv = [verb, *where, *rest] if here else [*given, *words]
        capsys.readouterr()
        status = _by_client(argv) if CLIENT and "--gateway" in argv else main(argv)
        out, err = capsys.readouterr()
        return status, out, err

    return ran


def _by_client(argv: list[str]) -> int:
    assert CLIENT is not None
    ended = subprocess.run(
        [CLIENT, *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    sys.stdout.write(ended.stdout)
    sys.stderr.write(ended.stderr)
    return ended.returncode


def done(run: Run, *words: str) -> str:
    """Run a command that succeeds. Returns what it printed."""
    status, out, err = run(*words)
    assert (status, err) == (0, ""), (words, out, err)
    return out
