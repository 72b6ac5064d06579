"""The experiments with names: made, renamed, removed, truncated and found, beside FSAL_VFS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.bench import load
from tests.bench.experiments import VFS, Experiment, again, flight, shape
from tests.bench.rows import Row, Target
from tests.support.nfsserver import Server

DIRSYNC = "FSAL_VFS, ext4 dirsync"
MEMORY = "FSAL_VFS, tmpfs"

FLIGHTS = {1: (1, 1), 16: (16, 1), 64: (16, 4)}
"""The connections, and the requests on each, by the number of requests in flight."""
CHANGES = (("create", "f"), ("rename", "f"), ("unlink", "t"))
"""The workloads, each with the prefix of the names that it finds or makes."""
WORKS = ("create and close", "rename", "unlink")
"""The names of CHANGES in a row."""
NAMED = {1: 300, 16: 2000, 64: 4000}
CACHED = {1: 4000, 16: 6000, 64: 6000}
LONE = 1000
TRUNCATED = 200


def change_names(server: Server, *options: object) -> tuple[list[float], list[float]]:
    """Make, rename and remove names.

    Returns the operations a second of each of CHANGES, and the server's processor time in
    microseconds for one operation.
    """
    rates, costs = [], []
    for workload, prefix in CHANGES:
        before = server.cpu_seconds()
        done = load.nfs(server.port, workload, *options, "--prefix", prefix)
        server.until_idle()
        rates.append(done.ops_per_second)
        costs.append((server.cpu_seconds() - before) / done.ops * 1e6)
    return rates, costs


def changed_names(
    in_flight: int, apart: bool, ours: Server, peer: Server, against: str = DIRSYNC
) -> Experiment:
    """Make, rename and remove names. With us and with dirsync, an answered change is durable.

    MEMORY writes no name to a disk: it shows the limit of any server of this protocol on this
    machine, and is no target.

    Args:
        apart: whether each connection has a directory of its own (dirsync changes one directory at
            a time).
        against: the kind of the peer.
    """
    connections, depth = FLIGHTS[in_flight]
    place = ("--dir", "apart", "--apart") if apart else ("--dir", "together")
    options = (*place, "--count", NAMED[in_flight], *flight(connections, depth))
    setting = f"{shape(connections, depth)}, {'a directory each' if apart else 'one directory'}"

    def side(server: Server, _number: int) -> Sequence[float]:
        rates, costs = change_names(server, *options)
        return [*rates, *(costs if against == MEMORY else ())]

    bounds = (1.0, 1.0, 1.0) if in_flight == 1 else (2.0, 1.2, 1.2)
    rows = [
        Row(work, setting, against, "op/s", Target(bound) if against == DIRSYNC else None)
        for work, bound in zip(WORKS, bounds, strict=True)
    ]
    if against == MEMORY:
        rows += [Row(f"{work}: server's processor", setting, against, "µs/op") for work in WORKS]
    return Experiment(tuple(rows), partial(side, ours), partial(side, peer))


def old_directories(alternations: int) -> dict[str, int]:
    """Return the directories that must exist at the start, for ``names_in_old_directories``."""
    return {f"old{number}": 1 for number in range(alternations)}


def names_in_old_directories(ours: Server, peer: Server) -> Experiment:
    """Make names in a directory that is older than the server's start.

    Our server knows which names are absent from a directory that it made itself. In an older one
    each new name costs the look-ups that Ganesha makes.
    """
    connections, depth = FLIGHTS[16]
    options = ("--prefix", "o", "--count", NAMED[16], *flight(connections, depth))

    def side(server: Server, number: int) -> Sequence[float]:
        done = load.nfs(server.port, "create", "--dir", f"old{number}", *options)
        server.until_idle()
        return [done.ops_per_second]

    setting = f"{shape(connections, depth)}, one directory older than the start"
    return Experiment(
        (Row("create and close", setting, DIRSYNC, "op/s"),),
        partial(side, ours),
        partial(side, peer),
    )


def lone_names(ours: Server, peer: Server) -> Experiment:
    """Measure a lone change where a sync costs nothing, to show the cost of the software itself."""
    options = ("--dir", "lone", "--count", LONE)

    def side(server: Server, _number: int) -> Sequence[float]:
        return [
            1000 * load.nfs(server.port, workload, *options, "--prefix", prefix).p50_ms
            for workload, prefix in CHANGES
        ]

    works = ("p50 of a lone create and close", "p50 of a lone rename", "p50 of a lone unlink")
    setting = f"tmpfs, {shape(1, 1)}"
    return Experiment(
        tuple(Row(work, setting, MEMORY, "µs") for work in works),
        partial(side, ours),
        partial(side, peer),
    )


def truncations(ours: Server, peer: Server) -> Experiment:
    """Open an existing small file with O_TRUNC and close it, as a pointer file is rewritten."""
    options = ("--dir", "truncated", "--count", TRUNCATED)
    for server in (ours, peer):
        load.nfs(server.port, "create", *options)

    def side(server: Server, _number: int) -> Sequence[float]:
        done = load.nfs(server.port, "truncate", *options).ops_per_second
        server.until_idle()
        return [done]

    return Experiment(
        (Row("truncate and close", f"disk, {shape(1, 1)}", DIRSYNC, "op/s", Target(0.5)),),
        partial(side, ours),
        partial(side, peer),
    )


def cached_names(in_flight: int, ours: Server, peer: Server) -> Experiment:
    """Find names that the server has seen before."""
    connections, depth = FLIGHTS[in_flight]
    directory = ("--dir", f"cached{in_flight}", "--count", CACHED[in_flight])
    for server in (ours, peer):
        load.nfs(server.port, "create", *directory, *flight(16, 1))
        # Without a listing, Ganesha keeps only some hundred names of a directory.
        load.nfs(server.port, "list", *directory)

    def side(server: Server, _number: int) -> Sequence[float]:
        return [
            again(server, workload, *directory, *flight(connections, depth))
            for workload in ("stat", "lookup")
        ]

    return Experiment(
        tuple(
            Row(work, f"disk, {shape(connections, depth)}", VFS, "op/s", Target(0.95))
            for work in ("stat of cached names", "lookup of cached names")
        ),
        partial(side, ours),
        partial(side, peer),
    )
