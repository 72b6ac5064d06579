"""What the NFS server uses of what it may have: connections, threads, descriptors.

Ganesha closes the connection that is one too many, and lets calls wait for a thread, without a line
in its log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gateway import state
from gateway.namespace import used
from gateway.serialize import Model
from gateway.settings import Settings

NEAR = 0.9
"""The share of a limit from which on a person is told."""
THREADS_REMEDY = (
    "find what they wait for, the disk or the database, or raise nfs.threads and restart the NFS "
    "server"
)
DESCRIPTORS_REMEDY = "raise LimitNOFILE of the NFS server, and restart it"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class Limited(Model):
    """What the NFS server uses of what it may have. Null: not known, as while it does not run."""

    open: int | None
    most: int | None
    near: bool
    """Whether nine of ten are in use."""


class Limits(NamedTuple):
    """What the NFS server uses."""

    connections: Limited
    threads: Limited
    descriptors: Limited


def gather(settings: Settings) -> Limits:
    """Gather what is used and what the limits are."""
    report = state.read(settings, used.REPORT)
    lives = state.alive(report)
    told = report if report is not None and lives else {}
    found = [_count(table, settings.nfs.port) for table in _TABLES]
    known = [count for count in found if count is not None]
    # The kernel counts 0 where no server is, too.
    connections = sum(known) if known and (lives or any(known)) else None
    return Limits(
        connections=_limited({"open": connections, "most": settings.nfs.max_connections}),
        threads=_limited(told.get("threads")),
        descriptors=_limited(told.get("descriptors")),
    )


def _limited(told: Any) -> Limited:
    found = told if isinstance(told, dict) else {}
    used_up, most = found.get("open"), found.get("most")
    is_near = used_up is not None and most is not None and used_up >= NEAR * most
    return Limited(open=used_up, most=most, near=is_near)


def _count(table: Path, port: int) -> int | None:
    """Count the established connections to a port in a table of the kernel (proc(5))."""
    suffix = f":{port:04X}"
    try:
        rows = (line.split(maxsplit=4) for line in table.read_text().splitlines()[1:])
    except OSError:
        return None  # a kernel without IPv6
    return sum(row[1].endswith(suffix) and row[3] == _ESTABLISHED for row in rows)
