"""The load generator does its work, and reports content that it did not write."""

from __future__ import annotations

import fnmatch
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.datafiles import data_files
from tests.support.nfsserver import EXPORT, LEASE_SECONDS, Server
from tests.support.waiting import until

NFSLOAD = Path(__file__).parents[2] / "build" / "bench" / "nfsload"
FILE_BYTES = 8 << 20
BOTH = ("--connections", "2", "--depth", "4")


def load(server: Server, workload: str, *options: str, status: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [NFSLOAD, "127.0.0.1", str(server.port), EXPORT, workload, *options],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("nfsload")
    with Server("spillway", directory, directory / "ganesha.log") as running:
        yield running


def written_files(server: Server) -> list[Path]:
    """Return the data files that have the size of a whole file of a workload."""
    files = data_files(server.settings.files_dir)
    return [path for path, stat in files.items() if stat.st_size == FILE_BYTES]


def test_it_reads_what_it_wrote_and_sees_a_changed_byte(server: Server) -> None:
    size = ("--file", str(FILE_BYTES))
    written = load(server, "write", *BOTH, *size)
    assert written["bytes"] == 2 * FILE_BYTES
    assert load(server, "read", "--verify", *BOTH, *size)["bytes"] == 2 * FILE_BYTES
    path = written_files(server)[0]
    with path.open("r+b") as file:
        file.seek(5 << 20 | 12345)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    document = load(server, "read", "--verify", *BOTH, *size, status=1)
    assert (document["errors"], document["first_error"]) == (1, f"wrong content at {5 << 20}")


def test_names_come_and_go(server: Server) -> None:
    names = ("--dir", "names", "--count", "300")
    for workload, found in (("create", "f"), ("stat", "f"), ("lookup", "f"), ("rename", "f")):
        assert load(server, workload, *BOTH, *names, "--prefix", found)["ops"] == 300
    assert load(server, "list", *names)["ops"] == 300
    assert load(server, "unlink", *BOTH, *names, "--prefix", "t")["ops"] == 300
    gone = load(server, "stat", *BOTH, *names, "--prefix", "t", status=1)
    assert gone["errors"] == 300
    assert "NFS4ERR 2" in gone["first_error"]


def test_truncating_a_file_empties_it(server: Server) -> None:
    one = ("--dir", "emptied", "--file", str(FILE_BYTES))
    # Workloads on names use numbers with seven digits, so this file gets the name f0000000.
    load(server, "write", *one, "--prefix", "f000000")
    written = written_files(server)
    assert load(server, "truncate", "--dir", "emptied", "--count", "1")["ops"] == 1
    assert len(written_files(server)) == len(written) - 1


def test_connections_apart_have_directories(server: Server) -> None:
    apart = ("--dir", "apart", "--count", "20")
    assert load(server, "create", *BOTH, *apart, "--apart")["ops"] == 20
    assert load(server, "list", "--dir", "apart", "--count", "2")["ops"] == 2
    assert load(server, "list", "--dir", "apart/c1", "--count", "10")["ops"] == 10


def test_a_save_ends_under_the_final_names(server: Server) -> None:
    ranks = ("--connections", "3", "--depth", "2", "--dir", "save", "--prefix", "shard")
    saved = load(server, "save", *ranks, "--file", str(FILE_BYTES))
    assert saved["bytes"] == 3 * FILE_BYTES
    assert load(server, "list", "--dir", "save", "--count", "3")["ops"] == 3
    assert load(server, "read", *ranks, "--file", str(FILE_BYTES), "--verify")["errors"] == 0


def test_appends(server: Server) -> None:
    logs = ("--dir", "logs", "--connections", "4", "--count", "80", "--size", "4096")
    assert load(server, "append", *logs)["ops"] == 80
    assert load(server, "append", *logs, "--commit")["ops"] == 80


def test_mixed_work_finds_what_it_left(server: Server) -> None:
    mixed = load(server, "mixed", "--connections", "4", "--count", "400", "--dir", "mixed")
    assert mixed["ops"] == 400
    assert (mixed["errors"], mixed["lost_leases"]) == (0, 0)


def test_a_refill_reads_what_it_saved_and_sees_other_bytes(server: Server) -> None:
    saves = ("--connections", "3", "--count", "3", "--pause", "0.3", "--dir", "refill")
    size = ("--file", str(3 << 20 | 16))
    document = load(server, "refill", *saves, *size)
    assert document["errors"] == 0
    assert document["ops"] > 0
    assert document["longest_write_ms"] > 0
    assert load(server, "list", "--dir", "refill", "--count", "3")["ops"] == 3
    # The same checkpoints are there already, and with this seed they should have other bytes.
    wrong = load(server, "refill", *saves, *size, "--seed", "2", status=1)
    assert "wrong bytes at" in wrong["first_error"]


def remembered(server: Server) -> list[str]:
    """Return the recovery entry of nfsload's first connection, while the server keeps one.

    The server removes entries meanwhile. os.walk passes over what is gone; rglob raises an error.
    """
    entries = (directory for directory, _, _ in os.walk(server.settings.recovery_dir))
    return [entry for entry in entries if fnmatch.fnmatch(entry, "*nfsload-*-0)")]


def test_a_lost_lease_is_counted_and_replaced(server: Server) -> None:
    """A client is stopped until the server has forgotten it, and then continues."""
    with subprocess.Popen(
        [
            *(NFSLOAD, "127.0.0.1", str(server.port), EXPORT),
            *("mixed", "--count", "3000", "--dir", "lost"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        until(lambda: remembered(server), "the client's lease")
        client.send_signal(signal.SIGSTOP)
        try:
            until(lambda: not remembered(server), "the end of the lease", 4 * LEASE_SECONDS)
        finally:
            client.send_signal(signal.SIGCONT)
        document = json.loads(client.communicate()[0])
    assert client.returncode == 1
    assert (document["lost_leases"], document["errors"]) == (1, 1)
    assert document["ops"] == 2999


def test_in_grace_it_asks_again(server: Server) -> None:
    crashed = subprocess.Popen(
        [
            NFSLOAD,
            "127.0.0.1",
            str(server.port),
            EXPORT,
            "mixed",
            "--seconds",
            "60",
            "--dir",
            "crash",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with crashed:
        until(lambda: remembered(server), "the client's lease")
        server.crash()
        _output, said = crashed.communicate()
    assert crashed.returncode == 2
    assert b"the server closed the connection" in said
    names = ("--dir", "grace", "--count", "8", "--depth", "4")
    created = load(server, "create", *names)
    assert created["delays"] > 0
    assert (created["ops"], created["errors"]) == (8, 0)
