"""The services, as systemd runs them: real processes, with the socket of a service manager."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gateway.common import clock
from gateway.common.models import to_json
from gateway.common.process import STALL_SECONDS, LoopProgress
from gateway.nfs import server
from gateway.service import status
from tests.support.clisite import PROGRAM, Running, Site, assert_refused, environ, spillway
from tests.support.gateway import PLUGINS_DIR
from tests.support.s3server import RcloneServer
from tests.support.stopping import stop


class Manager:
    """The end of a service manager.

    Args:
        directory: directory of its socket.
    """

    def __init__(self, directory: Path) -> None:
        self.address = directory / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.address))
        self._socket.settimeout(30)

    def expect(self, message: str) -> None:
        """Receive until a message comes. Raises TimeoutError."""
        while self._socket.recv(256) != message.encode():
            pass

    def close(self) -> None:
        self._socket.close()


@contextmanager
def service(site: Site, name: str, **env: str) -> Iterator[tuple[Running, Manager]]:
    """Run a service as its unit does."""
    argv = [str(PROGRAM), "serve", name, "--config", str(site.config)]
    # The address of a socket has 107 bytes at most. The directory of a test may have more.
    with TemporaryDirectory() as directory, closing(Manager(Path(directory))) as manager:
        watchdog = {"NOTIFY_SOCKET": str(manager.address), "WATCHDOG_USEC": "300000"}
        with Running(argv, environ(**watchdog, **env)) as running:
            yield running, manager


def shown(site: Site) -> Mapping[str, Any]:
    processes: Mapping[str, Any] = to_json(status.gather(site.settings).processes)
    return processes


def end(site: Site, name: str, **result: str) -> None:
    assert spillway("serve", name, "--ended", "--config", site.config, env=result).returncode == 0


@pytest.fixture
def real(site: Site, bucket: RcloneServer) -> Site:
    """A gateway with the real NFS server."""
    site.edit("nfs", "plugins_dir", f'"{PLUGINS_DIR}"')
    site.edit("nfs", "ganesha", '"/usr/bin/ganesha.nfsd"')
    return site


def test_services_are_a_gateway(real: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready, watched, shown by status, alone on the data directory, and restarted after a kill."""
    site = real
    with service(site, "drain") as (drain, drain_manager):
        drain_manager.expect("READY=1")
        assert_refused(spillway("up", "--config", site.config), "stop spillway.target")
        assert_refused(spillway("serve", "drain", "--config", site.config), "runs already")
        with service(site, "nfs") as (nfs, nfs_manager):
            nfs_manager.expect("READY=1")
            nfs_manager.expect("WATCHDOG=1")
            drain_manager.expect("WATCHDOG=1")
            processes = shown(site)
            up = {"alive": True, "pid": None, "phase": "units of systemd"}
            unknown = {"running_seconds": None, "restarts": 0, "last_exit": ""}
            assert processes["up"] == up | unknown
            assert processes["ganesha"]["pid"] == nfs.process.pid
            assert processes["drain"]["pid"] == drain.process.pid
            assert {processes[name]["phase"] for name in ("ganesha", "drain")} == {"ready"}
            assert not processes["cache"]["alive"]
            assert spillway("mkdir", "--config", site.config, "/checkpoints/a").returncode == 0
            assert_refused(spillway("fsck", "--config", site.config), "stop spillway.target")
            assert server.answers(site.settings)
            # The kernel accepts connections for a server that hangs. That is not enough.
            stop(nfs.process.pid)
            monkeypatch.setattr(server, "ANSWER_SECONDS", 0.5)
            assert not server.answers(site.settings)
            os.kill(nfs.process.pid, signal.SIGKILL)
            nfs.wait()
        end(site, "nfs", SERVICE_RESULT="signal", EXIT_CODE="killed", EXIT_STATUS="KILL")
        assert shown(site)["ganesha"]["last_exit"] == "killed by KILL (signal)"
        with service(site, "nfs") as (_nfs, nfs_manager):
            nfs_manager.expect("READY=1")
            assert shown(site)["ganesha"]["restarts"] == 1
    end(site, "drain", SERVICE_RESULT="success", EXIT_CODE="exited", EXIT_STATUS="0")
    assert shown(site)["drain"]["phase"] == "stopped"
    # All locks ended with their processes.
    assert spillway("fsck", "--config", site.config).returncode == 0


def test_the_other_processes_are_services(site: Site, bucket: RcloneServer) -> None:
    """They take the credentials that the service manager hands over."""
    handed = site.directory / "handed"
    handed.mkdir()
    site.settings.credentials_file.rename(handed / "bucket")
    given = {"CREDENTIALS_DIRECTORY": str(handed)}
    with (
        service(site, "cache", **given) as (cache, cache_manager),
        service(site, "checkpoints", **given) as (_catalogue, manager),
        service(site, "recovery", **given) as (_recovery, recovery_manager),
    ):
        for one in (cache_manager, manager, recovery_manager):
            one.expect("READY=1")
            one.expect("WATCHDOG=1")
        environment = Path(f"/proc/{cache.process.pid}/environ").read_bytes()
        assert f"SPILLWAY_BUCKET_CREDENTIALS_FILE={handed}/bucket".encode() in environment


def test_notes_of_services_leave_the_report_of_up_alone(site: Site) -> None:
    before = json.dumps({"pid": 1, "children": {"drain": {"pid": 1}}})
    path = site.settings.run_dir / "up.json"
    path.write_text(before)
    end(site, "drain", SERVICE_RESULT="signal")
    assert path.read_text() == before


def test_a_loop_that_stands_still_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = 1000.0, 1
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now)
    rounds = LoopProgress(lambda: made)
    assert rounds.go_on()
    now += STALL_SECONDS - 1
    assert rounds.go_on()
    now += 2
    assert not rounds.go_on()
    made += 1
    assert rounds.go_on()
