"""The server serves many connections, and the gateway says when few are left."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gateway.control import alarms
from tests.support.nfs4 import Client
from tests.support.site import running
from tests.support.volumes import alarms_in
from tests.support.waiting import until

MANY = 1500


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
    with open_files(2 * MANY), running(tmp_path) as site, ExitStack() as stack:
        port = site.gateway.port
        clients = [stack.enter_context(Client(port)) for _ in range(MANY)]
        # Each is asked when all are there.
        roots = {client.handle("checkpoints") for client in clients}
        assert len(roots) == 1
        facts = site.gateway.status()
        assert facts["connections"] == {"open": MANY, "most": 10_000, "near": False}


def test_the_limit_is_told_before_it_is_reached(tmp_path: Path) -> None:
    with running(tmp_path, {"nfs": {"max_connections": 64}}) as site, ExitStack() as stack:
        clients = [stack.enter_context(Client(site.gateway.port)) for _ in range(60)]
        for client in clients:
            client.handle("checkpoints")
        facts = site.gateway.status()
        assert facts["connections"]["near"] and facts["healthy"]
        assert alarms_in(facts)[alarms.CONNECTIONS_NEAR_LIMIT] == 1
        assert "NEAR THE LIMIT" in site.gateway.spillway("status").stdout
        stack.close()
        until(lambda: not site.gateway.status()["connections"]["near"], "they are closed")
