"""Compares the gateway with other servers on the same disk: ``python -m tests.bench DIRECTORY``.

The servers alternate (ours, the peer's, the peer's, ours …), and their runs are compared pair by
pair. Each row is printed as soon as it is known; a comparison is a median, with quartiles. The
mounts need root.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.bench import (
    catalogued,
    cold,
    contention,
    drain,
    experiments,
    governed,
    hanging,
    journalled,
    names,
    recovery,
    report,
    saves,
    sites,
)
from tests.bench.experiments import Experiment
from tests.bench.rows import Measured, Target
from tests.support.postgres import PostgresServer

DOCS = Path(__file__).parents[2] / "docs" / "benchmarks.md"
ALTERNATIONS = 7
QUICK_ALTERNATIONS = 3
DRAIN_ALTERNATIONS = 5

GROUPS = (
    *("bytes", "tmpfs", "names", "contention", "listings", "memory", "saves", "drain", "cold"),
    *("catalogue", "recovery", "admin"),
)
MODULES = {
    "drain": (drain,),
    "cold": (cold, hanging),
    "catalogue": (catalogued,),
    "recovery": (recovery,),
    "admin": (governed,),
}
"""The groups that start gateways of their own."""
QUICK_GROUPS = ("bytes", "tmpfs", "names", "contention", "listings")


class Bench:
    """Runs groups of experiments in a directory.

    Args:
        alternations: alternations and those of the groups that start gateways of their own.
        memory_files: memory files of the group ``memory``.
        quick: only rows that have a target.
        say: called with each line.
    """

    def __init__(
        self,
        directory: Path,
        alternations: int,
        of_modules: int,
        memory_files: int,
        quick: bool,
        say: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._alternations = alternations
        self._of_modules = of_modules
        self._memory_files = memory_files
        self._quick = quick
        self._say = say

    def run(self, group: str) -> list[Measured]:
        """Run the experiments of a group of GROUPS. Returns their rows."""
        planned: dict[str, Callable[[ExitStack], Iterable[Experiment]]] = {
            "bytes": self._bytes,
            "tmpfs": self._tmpfs,
            "names": self._names,
            "contention": self._contention,
            "listings": self._listings,
            "memory": self._memory,
        }
        with ExitStack() as stack:
            if group == "saves":
                return self._said(saves.measure(self._directory / "saves", self._alternations))
            if group in MODULES:
                return [
                    row
                    for module in MODULES[group]
                    for rows in module.measure(self._directory, self._of_modules)
                    for row in self._said(rows)
                ]
            times = 1 if group == "memory" else self._alternations
            return self._measure(planned[group](stack), times)

    def _measure(self, planned: Iterable[Experiment], alternations: int) -> list[Measured]:
        measured: list[Measured] = []
        for experiment in planned:
            if not self._quick or any(row.target for row in experiment.rows):
                measured += self._said(experiment.run(alternations))
        return measured

    def _said(self, measured: list[Measured]) -> list[Measured]:
        for measurement in measured:
            self._say(report.line(measurement.cells()))
        return measured

    def _bytes(self, stack: ExitStack) -> Iterator[Experiment]:
        ours = sites.start(stack, "spillway", self._directory / "bytes-spillway")
        peer = sites.start(stack, "vfs", self._directory / "bytes-vfs")
        yield from experiments.sequential("disk", ours, peer)
        yield from experiments.logs("disk", ours, peer)
        yield experiments.ranks(ours, peer)
        if not self._quick:
            yield experiments.random_blocks("disk", None, ours, peer)
            yield from experiments.local_limits(self._directory / "local", ours)

    def _tmpfs(self, stack: ExitStack) -> Iterator[Experiment]:
        directory = stack.enter_context(sites.tmpfs(self._directory / "tmpfs"))
        ours = sites.start(stack, "spillway", directory / "spillway")
        peer = sites.start(stack, "vfs", directory / "vfs")
        yield from experiments.sequential("tmpfs", ours, peer)
        yield experiments.random_blocks("tmpfs", Target(0.90), ours, peer)
        yield from experiments.logs("tmpfs", ours, peer)
        yield names.lone_names(ours, peer)

    def _names(self, stack: ExitStack) -> Iterator[Experiment]:
        directory = stack.enter_context(sites.dirsync_ext4(self._directory / "dirsync"))
        old = names.old_directories(self._alternations)
        ours = sites.start(stack, "spillway", self._directory / "names-spillway", old)
        dirsync = sites.start(stack, "vfs", directory / "vfs", old)
        for in_flight in names.FLIGHTS:
            yield names.changed_names(in_flight, True, ours, dirsync)
        yield names.truncations(ours, dirsync)
        yield names.names_in_old_directories(ours, dirsync)
        yield journalled.experiment(ours)
        if not self._quick:
            memory = stack.enter_context(sites.tmpfs(self._directory / "names-tmpfs"))
            volatile = sites.start(stack, "vfs", memory / "vfs")
            for in_flight in (16, 64):
                yield names.changed_names(in_flight, False, ours, dirsync)
                yield names.changed_names(in_flight, True, ours, volatile, names.MEMORY)
        # Both sides have just started: one that has made and removed many names is slower.
        fresh = sites.start(stack, "spillway", self._directory / "cached-spillway")
        peer = sites.start(stack, "vfs", self._directory / "cached-vfs")
        for in_flight in names.FLIGHTS:
            yield names.cached_names(in_flight, fresh, peer)

    def _contention(self, stack: ExitStack) -> Iterator[Experiment]:
        directory = self._directory / "contention"
        directory.mkdir()
        postgres = stack.enter_context(PostgresServer(directory / "postgres", fsync=True))
        for engine, url in (("SQLite", ""), ("PostgreSQL", postgres.create_database())):
            with contention.site(directory / engine, url) as site:
                yield contention.experiment(engine, site)
                yield contention.crowd(engine, site)

    def _listings(self, stack: ExitStack) -> Iterator[Experiment]:
        files = experiments.listed_directories(self._alternations)
        ours = sites.start(stack, "spillway", self._directory / "listings-spillway", files)
        peer = sites.start(stack, "vfs", self._directory / "listings-vfs", files)
        yield experiments.listings(ours, peer)

    def _memory(self, stack: ExitStack) -> Iterator[Experiment]:
        count = self._memory_files
        files = experiments.touched_directories(count)
        ours = sites.start(stack, "spillway", self._directory / "memory-spillway", files)
        peer = sites.start(stack, "vfs", self._directory / "memory-vfs", files)
        yield experiments.memory(count, ours, peer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="on the disk to measure, an ext4")
    parser.add_argument("--quick", action="store_true", help="rows with targets, no whole saves")
    parser.add_argument("--groups", nargs="+", choices=GROUPS)
    parser.add_argument("--alternations", type=int)
    parser.add_argument("--memory-files", type=int, default=1_000_000)
    parser.add_argument(
        "--report", action="store_true", help=f"renew the tables of these groups in {DOCS.name}"
    )
    args = parser.parse_args()
    alternations = args.alternations or (QUICK_ALTERNATIONS if args.quick else ALTERNATIONS)
    of_modules = args.alternations or DRAIN_ALTERNATIONS
    # A renewed table makes the work tree differ from its revision.
    machine = report.machine()
    failed = []
    print(report.line(report.COLUMNS), flush=True)
    for group in args.groups or (QUICK_GROUPS if args.quick else GROUPS):
        try:
            with tempfile.TemporaryDirectory(dir=args.directory.absolute()) as directory:
                bench = Bench(
                    Path(directory),
                    alternations,
                    of_modules,
                    args.memory_files,
                    args.quick,
                    lambda line: print(line, flush=True),
                )
                rows = bench.run(group)
        except Exception:
            # An hour of the other groups is not lost.
            traceback.print_exc()
            failed.append(group)
            continue
        if args.report:
            times = of_modules if group in MODULES else alternations
            report.write(DOCS, group, report.section(machine, rows, times))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
