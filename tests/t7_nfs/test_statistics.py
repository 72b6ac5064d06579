"""The NFS server counts what clients ask for, exactly, and other processes read the counts."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.common import clock
from gateway.common.errors import ControlSocketClosed
from gateway.rpc import statistics
from gateway.rpc.statistics import Statistics
from tests.support import nfs4
from tests.support.nfs4 import op, opaque, putfh
from tests.support.nfsserver import Server
from tests.support.volumes import make_settings
from tests.support.waiting import until

KIB = 1024
DIRECTORY = struct.pack(">I", 2)
SYMLINK = struct.pack(">I", 5)
MODE = struct.pack(">IIIII", 2, 0, 1 << 1, 4, 0o755)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("statistics")
    values = {"acknowledge": {"rule": [{"path": "durable"}]}}
    with Server("spillway", directory, directory / "log", values) as started:
        until((started.settings.run_dir / "nfs.sock").exists, "the control socket")
        yield started


def moved(before: Statistics, after: Statistics, kind: str) -> int:
    """Return how many operations of a kind were answered for good."""
    old, new = before.operations[kind].latency, after.operations[kind].latency
    return new.count - old.count


def create(name: str, kind: bytes) -> bytes:
    return op(nfs4.CREATE) + kind + opaque(name.encode()) + MODE


def test_known_operations_are_counted_exactly(server: Server) -> None:
    before = statistics.read(server.settings)
    with nfs4.Client(server.port) as client:
        root = client.handle("export")
        client.call(putfh(root), create("directory", DIRECTORY))
        client.call(putfh(root), create("link", SYMLINK + opaque(b"directory")))
        with client.opened(root, "file") as file:
            for number in range(5):
                file.write(b"x" * KIB, number * KIB)
        for _ in range(3):
            with client.opened(root, "file", reads=True) as file:
                assert client.read(file.handle, 0, 2 * KIB) == b"x" * 2 * KIB
        rename = op(nfs4.RENAME) + opaque(b"file") + opaque(b"other")
        client.call(putfh(root), op(nfs4.SAVEFH), rename)
        link = op(nfs4.LINK) + opaque(b"second")
        client.call(putfh(client.handle("export", "other")), op(nfs4.SAVEFH), putfh(root), link)
        with pytest.raises(nfs4.Status):
            client.call(putfh(root), create("directory", DIRECTORY))
        for name in ("other", "second", "directory", "link"):
            client.remove(root, name)
    after = statistics.read(server.settings)
    assert after.started_ns == before.started_ns
    expected = {"mkdir": 2, "symlink": 1, "create": 1, "open": 3, "close": 4, "write": 5, "read": 3}
    expected |= {"rename": 1, "link": 1, "remove": 4, "setxattr": 0, "mknod": 0}
    assert {kind: moved(before, after, kind) for kind in expected} == expected
    written = after.operations["write"].bytes - before.operations["write"].bytes
    read = after.operations["read"].bytes - before.operations["read"].bytes
    assert (written, read) == (5 * KIB, 3 * 2 * KIB)
    refused = {
        kind: (
            sum(after.operations[kind].errors.values())
            - sum(before.operations[kind].errors.values())
        )
        for kind in expected
    }
    assert refused == dict.fromkeys(expected, 0) | {"mkdir": 1}
    assert after.operations["mkdir"].errors["exists"] == 1
    for kind, counts in after.operations.items():
        assert counts.delayed == before.operations[kind].delayed, kind
    # Each change was answered after a commit, and the latency has the commit in it.
    assert after.commit_sizes.count == after.commit_seconds.count > before.commit_sizes.count
    assert after.commit_sizes.sum - before.commit_sizes.sum >= 9
    assert after.operations["create"].latency.sum > 0


def test_what_is_delayed_is_counted_apart(server: Server) -> None:
    before = statistics.read(server.settings)
    with nfs4.Client(server.port) as client:
        root = client.handle("export")
        client.call(putfh(root), create("durable", DIRECTORY))
        file = client.open(client.handle("export", "durable"), "never in the bucket")
        file.write(b"bytes")
        for _ in range(3):
            with pytest.raises(nfs4.Status, match=str(nfs4.DELAY)):
                file.close()
    after = statistics.read(server.settings)
    assert after.operations["close"].delayed - before.operations["close"].delayed == 3
    assert moved(before, after, "close") == 0
    assert after.operations["close"].errors == before.operations["close"].errors


def test_the_command_shows_them(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["statistics", "--config", str(server.settings.source)]
    assert main(arguments) == 0
    _, head, *rows, commits = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["operation", "answered", "delayed"]
    assert "getattr" in [row.split()[0] for row in rows]
    assert "changes each" in commits
    assert main([*arguments, "--json"]) == 0
    assert clock.nanoseconds_of(json.loads(capsys.readouterr().out)["started_at"]) > 0


def test_nobody_answers_for_a_server_that_is_down(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    settings.run_dir.mkdir()
    with pytest.raises(ControlSocketClosed, match="no NFS server answers"):
        statistics.read(settings)
