"""What is measured, beside whom: bytes, names, listings, memory. Whole saves are in ``saves``.

An experiment alternates its two sides; each side does its work once and gives one value per row.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench import load
from tests.bench.load import MIB
from tests.bench.rows import Measured, Row, Target
from tests.conformance.server import Server

Side = Callable[[int], Sequence[float]]
"""Called with the number of the alternation."""

VFS = "FSAL_VFS"
DIRSYNC = "FSAL_VFS, ext4 dirsync"
MEMORY = "FSAL_VFS, tmpfs"
LOCAL = "local files, no NFS"

FLIGHTS = {1: (1, 1), 16: (16, 1), 64: (16, 4)}
"""Requests in flight: connections, and requests on each ("16 connections x 4")."""
LISTED = 10_000
CHANGES = (("create", "f"), ("rename", "f"), ("unlink", "t"))
"""Workloads, each with the prefix of the names that it finds or makes."""
NAMED = {1: 300, 16: 2000, 64: 4000}
CACHED = {1: 4000, 16: 6000, 64: 6000}
LONE = 1000
TRUNCATED = 200
PASSES = 5
"""Over names that a server has in its memory: once takes a tenth of a second, which says little."""
RANDOM_OPS = 30_000
SEQUENTIAL_MIB = {"disk": 512, "tmpfs": 1024}
PER_DIRECTORY = 10_000


@dataclass(frozen=True)
class Experiment:
    rows: tuple[Row, ...]
    ours: Side
    peer: Side
    is_large: bool = False
    """So many bytes are moved that it matters where memory for them comes from."""

    def run(self, alternations: int) -> list[Measured]:
        """Ours, the peer's, the peer's, ours …; what is still to be written is written first.

        The order of a pair changes because whoever writes first after a pause finds a slower disk.
        """
        ours: list[Sequence[float]] = []
        peers: list[Sequence[float]] = []
        for number in range(alternations):
            pair = ((self.ours, ours), (self.peer, peers))
            for side, values in pair if number % 2 == 0 else reversed(pair):
                os.sync()
                if self.is_large:
                    load.claim_memory()
                values.append(side(number))
        return [
            Measured(row, our_values, peer_values)
            for row, our_values, peer_values in zip(
                self.rows, zip(*ours, strict=True), zip(*peers, strict=True), strict=True
            )
        ]


def _flight(connections: int, depth: int) -> tuple[object, ...]:
    return ("--connections", connections, "--depth", depth)


def _shape(connections: int, depth: int) -> str:
    return f"{connections} connection{'s' if connections > 1 else ''} x {depth}"


def sequential(where: str, ours: Server, peer: Server) -> Iterator[Experiment]:
    """1 MiB WRITEs with a final COMMIT, then READs of the same files (from the page cache)."""
    target = Target(0.95)
    total_mib = SEQUENTIAL_MIB[where]
    for connections, depth, file_mib in ((1, 8, total_mib), (16, 2, total_mib // 16)):
        setting = f"{where}, {_shape(connections, depth)}"

        def side(
            server: Server,
            _number: int,
            flight: Sequence[object] = _flight(connections, depth),
            file_bytes: int = file_mib * MIB,
        ) -> Sequence[float]:
            options = ("--dir", "sequential", "--file", file_bytes, *flight)
            written = load.nfs(server.port, "write", *options).mib_per_second
            read = load.nfs(server.port, "read", *options).mib_per_second
            load.nfs(server.port, "clear", *options)
            server.until_idle()
            return written, read

        yield Experiment(
            (
                Row("sequential write 1 MiB, COMMIT", setting, VFS, "MiB/s", target),
                Row("sequential read 1 MiB", setting, VFS, "MiB/s", target),
            ),
            partial(side, ours),
            partial(side, peer),
            is_large=True,
        )


def random_blocks(where: str, target: Target | None, ours: Server, peer: Server) -> Experiment:
    """4 KiB at random places of a file of 256 MiB; writes are COMMITted at the end."""
    options = ("--dir", "random", "--file", 256 * MIB, *_flight(1, 16))
    for server in (ours, peer):
        load.nfs(server.port, "write", "--dir", "random", "--file", 256 * MIB, "--depth", 8)

    def side(server: Server, _number: int) -> Sequence[float]:
        return [
            load.nfs(server.port, workload, "--count", RANDOM_OPS, *options).ops_per_second
            for workload in ("randwrite", "randread")
        ]

    setting = f"{where}, {_shape(1, 16)}"
    return Experiment(
        (
            Row("random write 4 KiB, COMMIT at the end", setting, VFS, "op/s", target),
            Row("random read 4 KiB", setting, VFS, "op/s", target),
        ),
        partial(side, ours),
        partial(side, peer),
    )


def logs(where: str, ours: Server, peer: Server) -> Iterator[Experiment]:
    """Records; a log for each connection, or one log that many threads of a client append to.

    On tmpfs, where a sync is nothing, they show what the protocol and the processors allow.
    """
    for connections, depth, target in (
        (1, 1, Target(0.95)),
        (16, 1, Target(1.5)),
        (1, 16, Target(1.5)),
    ):
        for work, size_bytes, options, bound in (
            ("log records 4 KiB, WRITE and COMMIT", 4096, ("--commit",), target),
            ("log records 64 KiB, FILE_SYNC", 65536, (), None),
        ):
            records = ("--dir", "logs", "--size", size_bytes, *options)
            in_flight = connections * depth
            count = ("--count", 2400 if in_flight == 1 else 4800, *_flight(connections, depth))

            def side(
                server: Server, _number: int, options: Sequence[object] = (*records, *count)
            ) -> Sequence[float]:
                return [load.nfs(server.port, "append", *options).ops_per_second]

            yield Experiment(
                (
                    Row(
                        work,
                        f"{where}, {_shape(connections, depth)}",
                        VFS,
                        "op/s",
                        bound if where == "disk" else None,
                    ),
                ),
                partial(side, ours),
                partial(side, peer),
            )


def ranks(ours: Server, peer: Server) -> Experiment:
    """A save by 16 ranks of 32 MiB: how long its slowest WRITEs take."""

    def side(server: Server, number: int) -> Sequence[float]:
        options = (*_flight(16, 4), "--dir", f"ranks{number}", "--file", 32 * MIB)
        saved = load.nfs(server.port, "save", *options)
        load.nfs(server.port, "clear", *options)
        server.until_idle()
        return saved.p99_ms, saved.mib_per_second

    setting = "disk, 16 ranks of 32 MiB x 4"
    return Experiment(
        (
            Row("p99 of 1 MiB writes in a save", setting, VFS, "ms", Target(1.2, at_most=True)),
            Row("the same save until its last rename", setting, VFS, "MiB/s"),
        ),
        partial(side, ours),
        partial(side, peer),
        is_large=True,
    )


def changed_names(
    in_flight: int, apart: bool, ours: Server, peer: Server, against: str = DIRSYNC
) -> Experiment:
    """Names made, renamed and removed; ours are durable when they are answered, and dirsync's.

    Parameters: apart, each connection in a directory of its own (dirsync goes through one directory
    in single file); against, what the peer is: MEMORY, whose names cost no disk at all, shows how
    far any server of this protocol could get on this machine, and is no target.
    """
    connections, depth = FLIGHTS[in_flight]
    place = ("--dir", "apart", "--apart") if apart else ("--dir", "together")
    options = (*place, "--count", NAMED[in_flight], *_flight(connections, depth))
    setting = f"{_shape(connections, depth)}, {'a directory each' if apart else 'one directory'}"

    def side(server: Server, _number: int) -> Sequence[float]:
        rates, costs = [], []
        for workload, prefix in CHANGES:
            before = server.cpu_seconds()
            done = load.nfs(server.port, workload, *options, "--prefix", prefix)
            server.until_idle()
            rates.append(done.ops_per_second)
            costs.append((server.cpu_seconds() - before) / done.ops * 1e6)
        return [*rates, *(costs if against == MEMORY else ())]

    works = ("create and close", "rename", "unlink")
    bounds = (1.0, 1.0, 1.0) if in_flight == 1 else (2.0, 1.2, 1.2)
    rows = [
        Row(work, setting, against, "op/s", Target(bound) if against == DIRSYNC else None)
        for work, bound in zip(works, bounds, strict=True)
    ]
    if against == MEMORY:
        rows += [Row(f"{work}: server's processor", setting, against, "µs/op") for work in works]
    return Experiment(tuple(rows), partial(side, ours), partial(side, peer))


def lone_names(ours: Server, peer: Server) -> Experiment:
    """How long a lone change takes where a sync costs nothing: what the software itself adds."""
    options = ("--dir", "lone", "--count", LONE)

    def side(server: Server, _number: int) -> Sequence[float]:
        return [
            1000 * load.nfs(server.port, workload, *options, "--prefix", prefix).p50_ms
            for workload, prefix in CHANGES
        ]

    works = ("p50 of a lone create and close", "p50 of a lone rename", "p50 of a lone unlink")
    setting = f"tmpfs, {_shape(1, 1)}"
    return Experiment(
        tuple(Row(work, setting, MEMORY, "µs") for work in works),
        partial(side, ours),
        partial(side, peer),
    )


def truncations(ours: Server, peer: Server) -> Experiment:
    """An existing small file is opened with O_TRUNC and closed, as a pointer file is rewritten."""
    options = ("--dir", "truncated", "--count", TRUNCATED)
    for server in (ours, peer):
        load.nfs(server.port, "create", *options)

    def side(server: Server, _number: int) -> Sequence[float]:
        done = load.nfs(server.port, "truncate", *options).ops_per_second
        server.until_idle()
        return [done]

    return Experiment(
        (Row("truncate and close", f"disk, {_shape(1, 1)}", DIRSYNC, "op/s", Target(0.5)),),
        partial(side, ours),
        partial(side, peer),
    )


def cached_names(in_flight: int, ours: Server, peer: Server) -> Experiment:
    """Names that the server has seen before."""
    connections, depth = FLIGHTS[in_flight]
    directory = ("--dir", f"cached{in_flight}", "--count", CACHED[in_flight])
    for server in (ours, peer):
        load.nfs(server.port, "create", *directory, *_flight(16, 1))
        # Ganesha keeps no more than some hundred names of a directory that was never listed.
        load.nfs(server.port, "list", *directory)

    def side(server: Server, _number: int) -> Sequence[float]:
        return [
            _again(server, workload, *directory, *_flight(connections, depth))
            for workload in ("stat", "lookup")
        ]

    return Experiment(
        tuple(
            Row(work, f"disk, {_shape(connections, depth)}", VFS, "op/s", Target(0.95))
            for work in ("stat of cached names", "lookup of cached names")
        ),
        partial(side, ours),
        partial(side, peer),
    )


def listed_directories(alternations: int) -> dict[str, int]:
    """Directories that must be there before the servers start, for ``listings``."""
    return {f"listed{number}": LISTED for number in range(alternations)}


def listings(ours: Server, peer: Server) -> Experiment:
    """A directory that the server has not seen since it started, and at once again."""

    def side(server: Server, number: int) -> Sequence[float]:
        options = ("--dir", f"listed{number}", "--count", LISTED)
        cold = load.nfs(server.port, "list", *options).ops_per_second
        return cold, _again(server, "list", *options)

    setting = f"disk, {LISTED:,} entries with attributes"
    return Experiment(
        (
            Row("listing, cold", setting, VFS, "entries/s", Target(0.5)),
            Row("listing, warm", setting, VFS, "entries/s", Target(0.95)),
        ),
        partial(side, ours),
        partial(side, peer),
    )


def _again(server: Server, workload: str, *options: object) -> float:
    """Operations a second of several passes over the same names."""
    done = [load.nfs(server.port, workload, *options) for _ in range(PASSES)]
    return sum(one.ops for one in done) / sum(one.seconds for one in done)


def local_limits(directory: Path, ours: Server) -> Iterator[Experiment]:
    """How far from the disk itself: the same work on local files."""
    directory.mkdir()

    def save(_number: int) -> Sequence[float]:
        seconds = load.local_save(directory, 1, 512 * MIB)
        shutil.rmtree(directory)
        directory.mkdir()
        return [512 / seconds]

    def save_here(_number: int) -> Sequence[float]:
        options = ("--dir", "local", "--file", 512 * MIB, "--depth", 8)
        saved = load.nfs(ours.port, "save", *options).mib_per_second
        load.nfs(ours.port, "clear", *options)
        return [saved]

    def append_here(_number: int) -> Sequence[float]:
        options = ("--dir", "local", "--size", 4096, "--commit", "--count", 2400)
        return [load.nfs(ours.port, "append", *options).ops_per_second]

    yield Experiment(
        (Row("save of one file of 512 MiB", f"disk, {_shape(1, 8)}", LOCAL, "MiB/s"),),
        save_here,
        save,
        is_large=True,
    )
    yield Experiment(
        (Row("log records 4 KiB", f"disk, {_shape(1, 1)}", LOCAL, "op/s"),),
        append_here,
        lambda _number: [load.local_appends(directory, 2400, 4096)],
    )


def touched_directories(files: int) -> dict[str, int]:
    """Directories that must be there before the servers start, for ``memory``."""
    return {f"touched{number}": PER_DIRECTORY for number in range(-(-files // PER_DIRECTORY))}


def memory(files: int, ours: Server, peer: Server) -> Experiment:
    """Ganesha's resident memory after LOOKUP and GETATTR of so many files, once each."""
    directories = touched_directories(files)

    def side(server: Server, _number: int) -> Sequence[float]:
        for name, count in directories.items():
            load.nfs(server.port, "stat", "--dir", name, "--count", count, *_flight(4, 8))
        return [server.resident_mib()]

    setting = f"{sum(directories.values()):,} files touched"
    bound = Target(300, at_most=True)
    return Experiment(
        (
            Row(
                "memory of ganesha, more than the peer's",
                setting,
                VFS,
                "MiB",
                bound,
                counts="difference",
            ),
        ),
        partial(side, ours),
        partial(side, peer),
    )
