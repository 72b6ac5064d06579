"""Buffers of READs and WRITEs: their memory is kept while it is used, and given back after that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench import load
from tests.support.nfsserver import Server
from tests.support.waiting import until

CONNECTIONS = 8
FILE_MIB = 32
PASSES = 20
"""The memory grows for some passes, until each arena has what its threads use."""
FAULTS_MAX = 30
"""The most faults for the 256 pages of a MiB, in the best pass. By default there are 90 to 240."""
ARENAS = max(8, 4 * (os.cpu_count() or 1))
LEFT_MIB = 16 * ARENAS
"""What the arenas may keep at their ends when no client reads (``gateway/nfs/ganesha_conf.py``)."""


def faults(server: Server) -> int:
    """Return the pages that the kernel has made for a server since its start."""
    stat = Path(f"/proc/{server.pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[7])


@pytest.mark.alone
def test_the_memory_of_buffers_is_kept_while_clients_read(tmp_path: Path) -> None:
    with Server("spillway", tmp_path, tmp_path / "log") as server:
        at_first = server.resident_mib()
        files = ("--dir", "d", "--file", FILE_MIB * load.MIB, "--size", load.MIB)
        clients = ("--connections", CONNECTIONS, "--depth", 16)
        load.nfs(server.port, "write", *files, *clients)
        found = []
        for _ in range(PASSES):
            before = faults(server)
            load.nfs(server.port, "read", *files, *clients)
            found.append((faults(server) - before) / (CONNECTIONS * FILE_MIB))
            if found[-1] < FAULTS_MAX:
                break
        assert min(found) < FAULTS_MAX, found
        most = at_first + LEFT_MIB
        until(lambda: server.resident_mib() < most, "the memory is given back", 60.0)
