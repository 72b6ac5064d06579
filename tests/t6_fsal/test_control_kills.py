"""Tests `spillway rm -r` through the NFS server while one of the two is killed, and without it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gateway.namespace.data_files import DataFiles
from gateway.rpc.control import UNDER_WAY
from tests.support import nfs4
from tests.support.clisite import PROGRAM
from tests.support.gateway import Gateway
from tests.support.s3server import RcloneServer
from tests.support.t6.trees import make_big
from tests.support.volumes import query
from tests.support.waiting import until

FILES = int(os.environ.get("SPILLWAY_CONTROL_FILES", "10000"))


def make_gateway(directory: Path) -> Gateway:
    """Return a gateway whose bucket never answers: changes of names do not need it."""
    return Gateway(directory, RcloneServer(directory / "s3"), say=print)


def count(gateway: Gateway) -> int:
    """Names there are."""
    with closing(sqlite3.connect(gateway.data_dir / "namespace.db")) as connection:
        [(found,)] = connection.execute(
            "SELECT count(*) FROM dirent JOIN inode ON inode.ino = dirent.ino WHERE reserved = 0"
        )
    return int(found)


@contextmanager
def removing(gateway: Gateway) -> Iterator[subprocess.Popen[str]]:
    """Start a removal, and stop the process after its first names, so that it cannot end before a
    kill."""
    before = count(gateway)
    with subprocess.Popen(
        [PROGRAM, "rm", "--config", gateway.config, "-r", "big"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        # What a removal that was killed had asked for may still go. Without a pause, because all of
        # it takes a second or two.
        while count(gateway) >= before - UNDER_WAY and time.monotonic() < deadline:
            pass
        process.send_signal(signal.SIGSTOP)
        yield process
        assert 1 < count(gateway) < before


def data_files(gateway: Gateway) -> set[int]:
    """Inodes with a data file, without those in the gateway's own directory."""
    settings = gateway.settings
    reserved = {ino for (ino,) in query(settings, "SELECT ino FROM inode WHERE reserved <> 0")}
    return {ino for ino, _epoch in DataFiles(settings.files_dir).walk()} - reserved


def test_a_removal_survives_kills_of_either_side(tmp_path: Path) -> None:
    gateway = make_gateway(tmp_path / "gateway")
    make_big(gateway.settings, FILES)
    assert len(data_files(gateway)) == FILES / 10
    with gateway:
        with removing(gateway) as command:
            command.send_signal(signal.SIGKILL)
            command.wait()
        with removing(gateway) as command:
            gateway.kill("ganesha")
            command.send_signal(signal.SIGCONT)
            _out, error = command.communicate(timeout=60)
            assert command.returncode == 1
            assert "the NFS server went away" in error
            assert "what was done stays done" in error
        gateway.kill_all()
    # The kill may leave data files whose rows were just deleted (gateway/CONCURRENCY.md).
    problems = json.loads(gateway.spillway("fsck", "--repair", "--json").stdout)["problems"]
    assert {problem["check"] for problem in problems} <= {"data file without inode"}
    with gateway:
        gateway.kill("ganesha")
        # The command can run at once: it waits for the server, which is restarted.
        done = gateway.spillway("rm", "-r", "big", timeout_seconds=120)
        assert "names removed" in done.stdout
        assert gateway.spillway("ls").stdout == ""
        with nfs4.Client(gateway.port) as client:
            assert client.names(client.handle("checkpoints")) == []
        assert count(gateway) == 0
        until(lambda: data_files(gateway) == set(), "the bytes to go")
    assert gateway.spillway("fsck").stdout == "0 problems found, 0 left\n"


def test_without_the_server_nothing_is_changed(tmp_path: Path) -> None:
    gateway = make_gateway(tmp_path / "gateway")
    with gateway:
        gateway.spillway("mkdir", "d")
    refused = gateway.spillway("rm", "-r", "d", check=False)
    assert refused.returncode == 2
    assert "the NFS server does not run: start it" in refused.stderr
    assert gateway.spillway("ls").stdout == "d\n"
