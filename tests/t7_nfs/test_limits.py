"""The server serves many connections, and the gateway says when few of what is limited are left."""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gateway.common.models import from_json
from gateway.service import alarms
from gateway.service.alarms import alarms_of
from gateway.service.status import Status
from tests.support import nfs4
from tests.support.gateway import Gateway, running
from tests.support.nfs4 import Client
from tests.support.volumes import alarms_in
from tests.support.waiting import until

MANY = 1500
CLIENTS, CALLS, READ_BYTES = 128, 16, 65536
"""A burst: so many clients make so many calls each before they take an answer."""
REMEDIES = {"threads": "raise nfs.threads", "descriptors": "raise LimitNOFILE"}


@contextmanager
def open_files(number: int) -> Iterator[None]:
    """Let this process, and what it starts, have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(number, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_1500_connections_are_served(tmp_path: Path) -> None:
    with open_files(2 * MANY), running(tmp_path) as gateway, ExitStack() as stack:
        port = gateway.port
        clients = [stack.enter_context(Client(port)) for _ in range(MANY)]
        # Each is asked when all are there.
        roots = {client.handle("checkpoints") for client in clients}
        assert len(roots) == 1
        facts = gateway.status()
        assert facts["connections"] == {"open": MANY, "most": 10_000, "near": False}


def test_the_limit_is_told_before_it_is_reached(tmp_path: Path) -> None:
    with running(tmp_path, {"nfs": {"max_connections": 64}}) as gateway, ExitStack() as stack:
        clients = [stack.enter_context(Client(gateway.port)) for _ in range(60)]
        for client in clients:
            client.handle("checkpoints")
        facts = gateway.status()
        assert facts["connections"]["near"] and facts["healthy"]
        assert alarms_in(facts)[alarms.CONNECTIONS_NEAR_LIMIT] == 1
        assert "NEAR THE LIMIT" in gateway.spillway("status").stdout
        stack.close()
        until(lambda: not gateway.status()["connections"]["near"], "they are closed")


def require_told(gateway: Gateway, facts: dict[str, Any], kind: str, alarm: str) -> None:
    """Require that a limit that is near is told wherever alarms are, and healthy all the same."""
    assert facts["healthy"]
    assert alarms_in(facts)[alarm] == 1
    [told] = [one for one in alarms_of(from_json(Status, facts)) if kind in one.text]
    assert told.kind == "warn" and REMEDIES[kind] in told.remedy
    lines = gateway.spillway("status").stdout.splitlines()
    [line] = [line for line in lines if line.startswith(kind)]
    assert "NEAR THE LIMIT" in line and REMEDIES[kind] in line


def test_threads_that_are_nearly_all_busy_are_told(tmp_path: Path) -> None:
    with running(tmp_path) as gateway, ExitStack() as stack:
        port = gateway.port
        clients = [stack.enter_context(Client(port)) for _ in range(CLIENTS)]
        with clients[0].opened(clients[0].handle("checkpoints"), "file") as file:
            file.write(bytes(READ_BYTES))
        handle = clients[0].handle("checkpoints", "file")
        read = nfs4.op(nfs4.READ) + bytes(16) + struct.pack(">QI", 0, READ_BYTES)
        until(lambda: gateway.status()["threads"]["open"] is not None, "the first count")
        facts = gateway.status()
        assert facts["threads"]["most"] == 512 and not facts["threads"]["near"]
        assert alarms_in(facts)[alarms.THREADS_NEAR_LIMIT] == 0

        def near() -> bool:
            nonlocal facts
            for client in clients:
                for _ in range(CALLS):
                    client.send(nfs4.putfh(handle), read)
            for client in clients:
                for _ in range(CALLS):
                    client.answer()
            facts = gateway.status()
            return bool(facts["threads"]["near"])

        until(near, "nearly all threads", 180)
        assert 0.9 * 512 <= facts["threads"]["open"] <= 512
        require_told(gateway, facts, "threads", alarms.THREADS_NEAR_LIMIT)
        until(lambda: not gateway.status()["threads"]["near"], "the end of idle ones", 180)


def test_descriptors_that_are_nearly_used_up_are_told(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        until(lambda: gateway.status()["descriptors"]["open"] is not None, "the first count")
        facts = gateway.status()
        pid = gateway.pid("ganesha")
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        assert facts["descriptors"]["most"] == soft and not facts["descriptors"]["near"]
        assert alarms_in(facts)[alarms.DESCRIPTORS_NEAR_LIMIT] == 0
        present = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        assert abs(facts["descriptors"]["open"] - present) < 10
        limits = (present + present // 20, hard)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        until(lambda: gateway.status()["descriptors"]["near"], "the next count", 60)
        facts = gateway.status()
        assert facts["descriptors"]["most"] == limits[0]
        require_told(gateway, facts, "descriptors", alarms.DESCRIPTORS_NEAR_LIMIT)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        until(lambda: not gateway.status()["descriptors"]["near"], "the next count", 60)


def test_what_a_server_used_that_does_not_run_is_not_told(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        until(lambda: gateway.status()["threads"]["open"] is not None, "the first count")
        assert gateway.status()["connections"]["open"] == 0
    facts = gateway.status()
    for kind in ("connections", "threads", "descriptors"):
        assert facts[kind]["open"] is None and not facts[kind]["near"]
    said = gateway.spillway("status", check=False).stdout.splitlines()
    assert {line.split()[0] for line in said if line.endswith("not known")} == {
        *("clients", "threads", "descriptors")
    }
