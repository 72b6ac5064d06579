"""The supervisor, with real child processes in place of the NFS server, the drain and the cache."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest

from gateway.common.process import start_ticks
from gateway.nfs import server
from tests.support.checkout import ROOT
from tests.support.clisite import (
    DEADLINE_SECONDS,
    PROGRAM,
    Running,
    Site,
    assert_refused,
    environ,
    spillway,
)
from tests.support.gateway import PLUGINS_DIR
from tests.support.s3server import RcloneServer
from tests.support.waiting import until

UP_WITH_FAKES = ROOT / "tests/support/t5/up_with_fakes.py"


def start(site: Site, stop_seconds: float = 20.0, **env: str) -> Running:
    drain = site.directory / "fake_child.py"
    argv = [sys.executable, str(UP_WITH_FAKES), str(site.config), str(drain), str(stop_seconds)]
    return Running(argv, environ(**env))


def behave(site: Site, how: str) -> None:
    (site.directory / "behaviour").write_text(how)


CHILDREN = ("ganesha", "drain", "cache", "checkpoints", "recovery")


def state(site: Site) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((site.settings.run_dir / "up.json").read_text())
    return document


def pid_of(site: Site, name: str) -> int:
    pid = state(site)["children"][name]["pid"]
    assert isinstance(pid, int)
    return pid


def ready(running: Running) -> None:
    running.expect("ganesha ready")
    running.expect("drain: environment")
    running.expect("cache: environment")
    running.expect("checkpoints: environment")
    running.expect("recovery: environment")


def gone(pid: int) -> bool:
    return start_ticks(pid) is None


def test_starts_serves_and_stops_in_order(site: Site) -> None:
    site.edit("admin", "enabled", "true")
    with start(site) as up:
        ready(up)
        up.expect("admin: environment")
        pids = [pid_of(site, name) for name in (*CHILDREN, "admin")]
        line = up.expect("ganesha ready")
        assert f"mount -t nfs4 -o port={site.port} 127.0.0.1:/checkpoints" in line
        until(lambda: state(site)["children"]["ganesha"]["phase"] == "ready", "up.json: ready")
        assert state(site)["pid"] == up.process.pid
        up.process.terminate()
        assert up.wait() == 0
    assert up.lines[-8:] == [
        "spillway: stopping (SIGTERM)",
        "spillway: admin stopped (exit code 0)",
        "spillway: recovery stopped (exit code 0)",
        "spillway: checkpoints stopped (exit code 0)",
        "spillway: cache stopped (exit code 0)",
        "spillway: drain stopped (exit code 0)",
        "spillway: ganesha stopped (exit code 0)",
        "spillway: stopped",
    ]
    assert all(gone(pid) for pid in pids)
    assert state(site)["state"] == "stopped"
    assert state(site)["children"]["ganesha"]["pid"] is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_that_stop(site: Site, number: signal.Signals) -> None:
    with start(site) as up:
        ready(up)
        up.process.send_signal(number)
        assert up.wait() == 0
    assert f"spillway: stopping ({number.name})" in up.lines


@pytest.mark.parametrize("name", CHILDREN)
def test_a_killed_child_is_restarted(site: Site, name: str) -> None:
    with start(site) as up:
        ready(up)
        first, seen = pid_of(site, name), len(up.lines)
        os.kill(first, signal.SIGKILL)
        up.expect(f"{name} died: killed by SIGKILL; next start in 0.5 s", seen)
        up.expect(f"{name} restarted after 0.5 s", seen)
        if name == "ganesha":
            up.expect("ganesha ready", seen)
        else:
            up.expect(f"{name}: environment", seen)
        until(lambda: state(site)["children"][name]["restarts"] == 1, "up.json: one restart")
        second = pid_of(site, name)
        assert second != first
        os.kill(second, signal.SIGKILL)
        up.expect(f"{name} restarted after 1 s", seen)


def test_children_die_with_a_killed_supervisor_and_it_can_start_again(site: Site) -> None:
    with start(site) as up:
        ready(up)
        pids = [pid_of(site, name) for name in CHILDREN]
        up.process.kill()
        up.wait()
        until(lambda: all(gone(pid) for pid in pids), "the children's end")
    with start(site) as up:
        ready(up)
        up.process.terminate()
        assert up.wait() == 0


def test_a_server_that_cannot_start(site: Site) -> None:
    behave(site, "die")
    with start(site) as up:
        up.expect("ganesha died: exit code 7; next start in 0.5 s")
        assert up.expect("ganesha.log: ") == "ganesha.log: a line of the server's log"
        line = up.expect("ganesha died 5 times in a row without serving")
        assert str(site.settings.log_dir / "ganesha.log") in line
        assert str(site.directory / "libfsalpython.so") in line
        up.process.terminate()
        assert up.wait() == 0
    starts = [line for line in up.lines if line.startswith("ganesha.log: ")]
    assert len(starts) == 5, "each death shows only what that start logged"


def test_a_server_that_starts_at_the_second_try(site: Site) -> None:
    behave(site, "die")
    with start(site) as up:
        up.expect("ganesha died: exit code 7; next start in 0.5 s")
        behave(site, "")
        up.expect("ganesha ready")


def test_a_program_that_cannot_be_executed(site: Site) -> None:
    (site.directory / "fake_child.py").write_text("#!/nowhere/python\n")
    with start(site) as up:
        up.expect("ganesha cannot start: ")
        up.expect("next start in 1 s")
        up.process.terminate()
        assert up.wait() == 0


def test_stubborn_children_are_killed_at_the_deadline(site: Site) -> None:
    behave(site, "stubborn")
    with start(site, stop_seconds=0.5) as up:
        ready(up)
        up.process.terminate()
        assert up.wait() == 0
    assert "spillway: drain did not stop within 0.5 s: killing it" in up.lines
    assert "spillway: ganesha stopped (killed by SIGKILL)" in up.lines


def test_a_second_signal_kills_at_once(site: Site) -> None:
    behave(site, "stubborn")
    with start(site, stop_seconds=600) as up:
        ready(up)
        up.process.terminate()
        up.expect("stopping (SIGTERM)")
        up.process.terminate()
        assert up.wait() == 0
    assert "spillway: second signal: killing" in up.lines
    assert "spillway: ganesha stopped (killed by SIGKILL)" in up.lines


def test_the_server_gets_no_secrets(site: Site) -> None:
    with start(site, AWS_SECRET_ACCESS_KEY="s3cr3t", SPILLWAY_TEST="1") as up:
        ready(up)
        assert up.expect("ganesha: environment").endswith("[] ['SPILLWAY_TEST']")
        assert up.expect("drain: environment").endswith(
            "['AWS_SECRET_ACCESS_KEY'] ['SPILLWAY_TEST']"
        )
    assert not any("s3cr3t" in line for line in up.lines)


def test_goes_on_when_nobody_reads_its_lines(site: Site) -> None:
    reader, writer = os.pipe()
    argv = [sys.executable, str(UP_WITH_FAKES), str(site.config)]
    argv += [str(site.directory / "fake_child.py"), "20"]
    with subprocess.Popen(argv, env=environ(), stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        try:
            until(lambda: (site.settings.run_dir / "up.json").exists() or None, "up.json")
            first = until(lambda: state(site)["children"]["drain"]["pid"], "the drain")
            os.close(reader)
            os.kill(first, signal.SIGKILL)
            until(lambda: state(site)["children"]["drain"]["pid"] not in (first, None), "restart")
            process.terminate()
            assert process.wait(DEADLINE_SECONDS) == 0
            assert process.stderr is not None
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_edits_of_the_configuration_reach_the_server(site: Site) -> None:
    site.edit("nfs", "lease_seconds", "33")
    with start(site) as up:
        ready(up)
        assert "Lease_Lifetime = 33;" in site.settings.ganesha_conf.read_text()


def test_only_one_up_per_data_directory(site: Site) -> None:
    with start(site) as up:
        ready(up)
        second = spillway("up", "--config", site.config)
        assert_refused(second, "another spillway up", f"kill {up.process.pid}")
        assert state(site)["pid"] == up.process.pid


def test_a_server_without_its_plugin_is_not_ready(site: Site) -> None:
    """The real server dies of a plugin that is no library. It starts without one that is of
    another version, as a library is that registers nothing, and answers calls."""
    site.edit("nfs", "ganesha", '"/usr/bin/ganesha.nfsd"')
    plugin = site.directory / "libfsalpython.so"  # it is empty
    with Running([str(PROGRAM), "up", "--config", str(site.config)], environ()) as up:
        assert "Could not dlopen module" in up.expect(f"{plugin} Error")
        shutil.copy("/usr/lib/x86_64-linux-gnu/libuuid.so.1", plugin)
        line = up.expect("s and does not serve: read ")
        assert "built for this nfs-ganesha" in line
        up.expect(f"Failed to load module ({plugin})")
        assert server.answers(site.settings)
        assert state(site)["children"]["ganesha"]["phase"] == "starting"
        up.process.terminate()
        assert up.wait() == 0
    assert not any("ganesha ready" in line for line in up.lines)


def test_the_program_itself_with_the_real_drain(site: Site, bucket: RcloneServer) -> None:
    site.edit("nfs", "ganesha", '"/usr/bin/ganesha.nfsd"')
    site.edit("nfs", "plugins_dir", f'"{PLUGINS_DIR}"')
    with Running([str(PROGRAM), "up", "--config", str(site.config)], environ()) as up:
        up.expect("ganesha ready")
        up.expect("bucket b is reachable")
        healthy = spillway("status", "--config", site.config)
        assert healthy.returncode == 0, healthy.stdout
        seen = len(up.lines)
        os.kill(pid_of(site, "drain"), signal.SIGKILL)
        up.expect("drain restarted", seen)
        up.expect("bucket b is reachable", seen)
        up.process.terminate()
        assert up.wait() == 0
    assert not any("Traceback" in line for line in up.lines)
    stopped = spillway("status", "--config", site.config)
    assert stopped.returncode == 1
    assert "NOT RUNNING" in stopped.stdout
