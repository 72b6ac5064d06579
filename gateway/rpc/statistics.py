"""Query of the NFS server for its statistics: operations, their latencies, group commits.

The server counts in its memory from its start on, and tells the counts over the control socket also
while its database is away (fsal/native/statistics.h). After a restart all counts begin at zero.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from gateway.common.clock import NS
from gateway.common.errors import ControlSocketClosed
from gateway.common.models import Model, Nanoseconds
from gateway.config.settings import Settings
from gateway.db import writer
from gateway.rpc.control import Remote
from gateway.rpc.frames import Op, RpcRequest

KINDS = (
    *("lookup", "handle", "getattr", "setattr", "readdir", "create", "open", "close"),
    *("read", "write", "commit", "seek", "allocate", "mkdir", "mknod", "symlink", "readlink"),
    *("link", "rename", "remove", "getxattr", "setxattr", "listxattr"),
)
"""Kinds of operations, in the order of ``enum spw_counted``. ``handle`` is the search of an inode
for a file handle that Ganesha's cache does not have. ``setxattr`` has removals too. Changes by the
gateway's own processes add to ``handle`` and ``getattr``: Ganesha's cache is told of them."""
ERRORS = ("not_found", "exists", "denied", "no_space", "stale", "io", "other")
"""Kinds of errors, in the order of ``enum spw_outcome``."""
LATENCY_BOUNDS_SECONDS = tuple(2**bit / 1_000_000 for bit in range(25))
"""Upper bounds of all buckets but the last, which has none."""
SIZE_BOUNDS = tuple(2**bit for bit in range(writer.SIZES - 1))

_COUNTS = struct.Struct(f"={len(LATENCY_BOUNDS_SECONDS) + 1}Q3Q{len(ERRORS)}Q")
_COMMITS = struct.Struct(f"={writer.WORDS}Q")


@dataclass(frozen=True)
class Histogram(Model):
    """Counts by value."""

    bounds: Sequence[float]
    """Inclusive upper bounds of the buckets, ascending. The last bucket has none."""
    buckets: Sequence[int]
    """The counts, one more than bounds. They are not cumulative."""
    sum: float
    """The sum of all values."""

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def quantile(self, share: float) -> float | None:
        """Return the bound below which a share of all values is, or None without values.

        Values above the last bound count as that bound.
        """
        below = 0
        for index, count in enumerate(self.buckets):
            below += count
            if count and below >= share * self.count:
                return self.bounds[min(index, len(self.bounds) - 1)]
        return None


@dataclass(frozen=True)
class Operations(Model):
    """The operations of one kind."""

    latency: Histogram
    """Seconds, of the operations that were answered for good, errors included."""
    delayed: int
    """Operations that were answered "ask again later". They are in no other count."""
    errors: dict[str, int]
    """Counts by kind. Not found and exists are everyday answers."""
    bytes: int
    """Bytes that clients read or wrote."""


@dataclass(frozen=True)
class Statistics(Model):
    """What the NFS server counted since its start. Clients' questions that Ganesha answers from its
    cache are not in it."""

    started_ns: Nanoseconds
    """Another value means that the counts began again."""
    operations: dict[str, Operations]
    """The counts by kind."""
    commit_sizes: Histogram
    """Changes in a transaction."""
    commit_seconds: Histogram
    """The time that COMMIT took."""


def read(settings: Settings) -> Statistics:
    """Ask the running NFS server. Raises ControlSocketClosed when none answers."""
    try:
        control = Remote(settings)
    except OSError as exc:
        raise ControlSocketClosed(
            f"no NFS server answers in {settings.run_dir}: {exc.strerror}"
        ) from None
    with closing(control):
        answer = control.run([RpcRequest(Op.STATISTICS, 0)])[0]
    if answer.errno or len(answer.data) != len(KINDS) * _COUNTS.size + _COMMITS.size:
        raise ControlSocketClosed("the NFS server is of another version: restart it")
    rows = _COUNTS.iter_unpack(answer.data[: -_COMMITS.size])
    words = _COMMITS.unpack(answer.data[-_COMMITS.size :])
    sizes, durations = words[: writer.SIZES], words[writer.SIZES + 1 : -1]
    return Statistics(
        started_ns=answer.offset,
        operations=dict(zip(KINDS, map(_operations, rows), strict=True)),
        commit_sizes=Histogram(SIZE_BOUNDS, sizes, words[writer.SIZES]),
        commit_seconds=Histogram(LATENCY_BOUNDS_SECONDS, durations, words[-1] / NS),
    )


def _operations(words: Iterable[int]) -> Operations:
    buckets, rest = [*words][: -3 - len(ERRORS)], [*words][-3 - len(ERRORS) :]
    latency_ns, count_bytes, delayed, *errors = rest
    return Operations(
        latency=Histogram(LATENCY_BOUNDS_SECONDS, tuple(buckets), latency_ns / NS),
        delayed=delayed,
        errors=dict(zip(ERRORS, errors, strict=True)),
        bytes=count_bytes,
    )
