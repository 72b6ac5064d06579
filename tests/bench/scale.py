"""Measures a large namespace: ``python -m tests.bench.scale DIRECTORY``.

Calls the namespace directly, in one process, without NFS. First it prints the durable creates per
second with 1, 16 and 64 callers, beside bare write-and-fsync loops on the same disk. Then it
creates files in many directories and in one. For each it prints the rate of every tenth of the
files, and the speed of look-ups and listings at the end.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import resource
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db.writer import Operation
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings, make_volume

ROOT = 2
CALLERS = (1, 16, 64)
MODE = SetAttr(mode=0o644)


def percentile(values: list[float], share: float) -> float:
    """Return the least value that so large a share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def fsyncs_per_second(directory: Path, count: int) -> float:
    """Return the rate of a bare loop that appends 4 KiB and calls fdatasync."""
    path = directory / "probe"
    with path.open("wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(count):
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - started
    path.unlink()
    return count / seconds


def spread(callers: int, count: int, call: Callable[[int], None]) -> tuple[float, float]:
    """Call ``call(index)`` from ``callers`` threads. Returns calls per second and the p99 in ms."""
    latencies: list[float] = []

    def work(number: int) -> None:
        for index in range(number, count, callers):
            started = time.perf_counter()
            call(index)
            latencies.append(time.perf_counter() - started)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(callers)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count / (time.perf_counter() - started), percentile(latencies, 0.99) * 1000


class Gathering(Namespace):
    """A namespace in which changes that wait together share a transaction, as in call.c."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._waiting: deque[tuple[Operation[Any], threading.Lock]] = deque()
        self._busy = threading.Lock()

    def run_together(self, operations: Sequence[Operation[Any]]) -> None:
        calls = [(operation, threading.Lock()) for operation in operations]
        for _operation, answered in calls:
            answered.acquire()
        self._waiting.extend(calls)
        with self._busy:
            taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if taken:
                super().run_together([operation for operation, _answered in taken])
            for _operation, answered in taken:
                answered.release()
        for _operation, answered in calls:
            answered.acquire()


def creator(ns: Namespace, parents: list[int], base: int = 0) -> Callable[[int], None]:
    """Return a function of an index that creates file number base + index.

    The files go to the directories in turn.
    """

    def create(index: int) -> None:
        number = base + index
        parent = parents[number % len(parents)]
        ns.create(ROOT_CRED, parent, b"f%07d" % number, MODE, for_writing=False)

    return create


def durable_creates(ns: Namespace, directory: Path, count: int) -> None:
    print(f"{'callers':>8} {'creates/s':>10} {'p99 ms':>7} {'fsync/s':>8} {'ratio':>6}")
    for callers in CALLERS:
        parent = ns.mkdir(ROOT_CRED, ROOT, b"rate-%d" % callers, SetAttr()).ino
        rate, p99_ms = spread(callers, count, creator(ns, [parent]))
        fsync_rate = fsyncs_per_second(directory, 500)
        print(f"{callers:8} {rate:10.0f} {p99_ms:7.2f} {fsync_rate:8.0f} {rate / fsync_rate:6.2f}")


def fill(ns: Namespace, parents: list[int], count: int, slices: int) -> None:
    """Create files in the directories in turn, and print the rate of each slice."""
    rates = []
    for part in range(slices):
        base = part * (count // slices)
        rate, _p99 = spread(64, count // slices, creator(ns, parents, base))
        rates.append(rate)
    print("  creates/s by tenth:", " ".join(f"{rate:.0f}" for rate in rates))
    chosen = [random.randrange(count) for _ in range(20_000)]
    started = time.perf_counter()
    for index in chosen:
        ns.lookup(parents[index % len(parents)], b"f%07d" % index)
    print(f"  look-ups/s (one caller): {len(chosen) / (time.perf_counter() - started):.0f}")
    started = time.perf_counter()
    listed = 0
    for parent in parents[:50]:
        cookie = 0
        while batch := ns.readdir(parent, cookie, 128):
            listed += len(batch)
            cookie = batch[-1].cookie
    print(f"  listed entries/s: {listed / (time.perf_counter() - started):.0f} ({listed} entries)")
    print(f"  memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="on the disk to measure")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--url", default="", help="database (default: SQLite in the directory)")
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=args.directory.absolute()))
    try:
        settings = make_settings(directory / "data", {"namespace": {"url": args.url}})
        make_volume(settings)
        ns = Gathering(settings)
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        durable_creates(ns, directory, 8000)
        many = [
            ns.mkdir(ROOT_CRED, ROOT, b"many-%d" % number, SetAttr()).ino for number in range(1000)
        ]
        print(f"{args.files} files in 1000 directories:")
        fill(ns, many, args.files, 10)
        ino = ns.mkdir(ROOT_CRED, ROOT, b"one", SetAttr()).ino
        print(f"{args.files} files in one directory:")
        fill(ns, [ino], args.files, 10)
        ns.close()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
