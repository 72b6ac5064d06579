"""The experiments with bytes, listings and memory, and the peer of each. ``names`` has the others.

An experiment alternates its two sides. Each side does its work once and returns a value per row.
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
from tests.support.nfsserver import Server

Side = Callable[[int], Sequence[float]]
"""The work of one side; its parameter is the number of the alternation."""

VFS = "FSAL_VFS"
LOCAL = "local files, no NFS"

LISTED = 10_000
PASSES = 5
"""The number of passes over names that a server has in memory. One pass takes only 0.1 s, which is
too short to measure."""
RANDOM_OPS = 30_000
SEQUENTIAL_MIB = {"disk": 512, "tmpfs": 1024}
PER_DIRECTORY = 10_000


@dataclass(frozen=True)
class Experiment:
    rows: tuple[Row, ...]
    ours: Side
    peer: Side
    is_large: bool = False
    """Whether so many bytes are moved that the source of free memory changes the result."""

    def run(self, alternations: int) -> list[Measured]:
        """Run ours, the peer's, the peer's, ours …; before each run all dirty pages are written.

        The order of a pair changes, because the first writer after a pause finds a slower disk.
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


def flight(connections: int, depth: int) -> tuple[object, ...]:
    return ("--connections", connections, "--depth", depth)


def shape(connections: int, depth: int) -> str:
    return f"{connections} connection{'s' if connections > 1 else ''} x {depth}"


def sequential(where: str, ours: Server, peer: Server) -> Iterator[Experiment]:
    """Send 1 MiB WRITEs with a final COMMIT, then READs of the same files (in the page cache)."""
    target = Target(0.95)
    total_mib = SEQUENTIAL_MIB[where]
    for connections, depth, file_mib in ((1, 8, total_mib), (16, 2, total_mib // 16)):
        setting = f"{where}, {shape(connections, depth)}"

        def side(
            server: Server,
            _number: int,
            flight: Sequence[object] = flight(connections, depth),
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
    """Write and read 4 KiB at random offsets of a file of 256 MiB, with a COMMIT at the end."""
    options = ("--dir", "random", "--file", 256 * MIB, *flight(1, 16))
    for server in (ours, peer):
        load.nfs(server.port, "write", "--dir", "random", "--file", 256 * MIB, "--depth", 8)

    def side(server: Server, _number: int) -> Sequence[float]:
        return [
            load.nfs(server.port, workload, "--count", RANDOM_OPS, *options).ops_per_second
            for workload in ("randwrite", "randread")
        ]

    setting = f"{where}, {shape(1, 16)}"
    return Experiment(
        (
            Row("random write 4 KiB, COMMIT at the end", setting, VFS, "op/s", target),
            Row("random read 4 KiB", setting, VFS, "op/s", target),
        ),
        partial(side, ours),
        partial(side, peer),
    )


def logs(where: str, ours: Server, peer: Server) -> Iterator[Experiment]:
    """Append records: to a log for each connection, or from many threads of a client to one log.

    On tmpfs a sync costs nothing, so its rows show the limit of the protocol and the processors.
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
            count = ("--count", 2400 if in_flight == 1 else 4800, *flight(connections, depth))

            def side(
                server: Server, _number: int, options: Sequence[object] = (*records, *count)
            ) -> Sequence[float]:
                return [load.nfs(server.port, "append", *options).ops_per_second]

            yield Experiment(
                (
                    Row(
                        work,
                        f"{where}, {shape(connections, depth)}",
                        VFS,
                        "op/s",
                        bound if where == "disk" else None,
                    ),
                ),
                partial(side, ours),
                partial(side, peer),
            )


def ranks(ours: Server, peer: Server) -> Experiment:
    """Measure the slowest WRITEs of a save by 16 ranks of 32 MiB."""

    def side(server: Server, number: int) -> Sequence[float]:
        options = (*flight(16, 4), "--dir", f"ranks{number}", "--file", 32 * MIB)
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


def listed_directories(alternations: int) -> dict[str, int]:
    """Return the directories that must exist before the servers start, for ``listings``."""
    return {f"listed{number}": LISTED for number in range(alternations)}


def listings(ours: Server, peer: Server) -> Experiment:
    """List a directory that the server has not seen since its start, and list it again at once."""

    def side(server: Server, number: int) -> Sequence[float]:
        options = ("--dir", f"listed{number}", "--count", LISTED)
        cold = load.nfs(server.port, "list", *options).ops_per_second
        return cold, again(server, "list", *options)

    setting = f"disk, {LISTED:,} entries with attributes"
    return Experiment(
        (
            Row("listing, cold", setting, VFS, "entries/s", Target(0.5)),
            Row("listing, warm", setting, VFS, "entries/s", Target(0.95)),
        ),
        partial(side, ours),
        partial(side, peer),
    )


def again(server: Server, workload: str, *options: object) -> float:
    """Return the operations per second of several passes over the same names."""
    done = [load.nfs(server.port, workload, *options) for _ in range(PASSES)]
    return sum(one.ops for one in done) / sum(one.seconds for one in done)


def local_limits(directory: Path, ours: Server) -> Iterator[Experiment]:
    """Compare with the same work on local files, to show the distance to the disk's own speed."""
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
        (Row("save of one file of 512 MiB", f"disk, {shape(1, 8)}", LOCAL, "MiB/s"),),
        save_here,
        save,
        is_large=True,
    )
    yield Experiment(
        (Row("log records 4 KiB", f"disk, {shape(1, 1)}", LOCAL, "op/s"),),
        append_here,
        lambda _number: [load.local_appends(directory, 2400, 4096)],
    )


def touched_directories(files: int) -> dict[str, int]:
    """Return the directories that must exist before the servers start, for ``memory``."""
    return {f"touched{number}": PER_DIRECTORY for number in range(-(-files // PER_DIRECTORY))}


def memory(files: int, ours: Server, peer: Server) -> Experiment:
    """Measure Ganesha's resident memory after one LOOKUP and GETATTR of this many files."""
    directories = touched_directories(files)

    def side(server: Server, _number: int) -> Sequence[float]:
        for name, count in directories.items():
            load.nfs(server.port, "stat", "--dir", name, "--count", count, *flight(4, 8))
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
