"""Counts the TCP connections of clients, as the kernel knows them. Ganesha does not tell its own
count, and closes the connection that is one too many without a line in its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.serialize import Model
from gateway.settings import Settings

NEAR = 0.9
"""The share of ``nfs.max_connections`` from which on a person is told."""
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class Connections(Model):
    """TCP connections of clients."""

    open: int
    most: int
    """`nfs.max_connections`: one more is closed at once."""
    near: bool
    """Whether nine of ten are in use."""


def gather(settings: Settings) -> Connections:
    """Return how many connections there are, how many there may be, and whether that is near."""
    found = sum(_count(table, settings.nfs.port) for table in _TABLES)
    most = settings.nfs.max_connections
    return Connections(open=found, most=most, near=found >= NEAR * most)


def _count(table: Path, port: int) -> int:
    """Count the established connections to a port in a table of the kernel (proc(5))."""
    suffix = f":{port:04X}"
    try:
        rows = (line.split(maxsplit=4) for line in table.read_text().splitlines()[1:])
    except OSError:
        return 0  # a kernel without IPv6
    return sum(row[1].endswith(suffix) and row[3] == _ESTABLISHED for row in rows)
