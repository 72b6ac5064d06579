"""Counts the TCP connections of clients, as the kernel knows them. Ganesha does not tell its own
count, and closes the connection that is one too many without a line in its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.settings import Settings

NEAR = 0.9
"""The share of ``nfs.max_connections`` from which on a person is told."""
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


def gather(settings: Settings) -> dict[str, Any]:
    """Return how many connections there are, how many there may be, and whether that is near."""
    found = sum(_count(table, settings.nfs.port) for table in _TABLES)
    most = settings.nfs.max_connections
    return {"open": found, "most": most, "near": found >= NEAR * most}


def _count(table: Path, port: int) -> int:
    """Count the established connections to a port in a table of the kernel (proc(5))."""
    suffix = f":{port:04X}"
    try:
        rows = (line.split(maxsplit=4) for line in table.read_text().splitlines()[1:])
    except OSError:
        return 0  # a kernel without IPv6
    return sum(row[1].endswith(suffix) and row[3] == _ESTABLISHED for row in rows)
