"""Shows which code uses the server's processors for names: ``python -m tests.bench.profile DIR``.

Needs root and perf (Debian's linux-perf). Prints the microseconds of each operation by the code
that used them, for Spillway and for FSAL_VFS on an ext4 mounted dirsync.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.bench import load, names, report, sites
from tests.support.nfsserver import Server

PARTS = {
    r"\[kernel": "kernel",
    r"lib(ganesha|ntirpc|fsalvfs)|ganesha\.nfsd": "Ganesha",
    r"libfsalpython": "the FSAL in C",
    r"libpython|_ctypes|_sqlite3|libffi": "Python",
    r"libsqlite3": "SQLite",
}
OTHERS = "libc and others"
IN_ALL = "in all"
NAMES = 40_000
HERTZ = 199
"""The rate of sampling. At a higher rate the sampling costs as much as the measured code."""


def profile(server: Server, workload: str, prefix: str, record: Path) -> dict[str, float]:
    """Return the µs of the server's processor time for an operation, in all and by part."""
    perf = ("perf", "record", "-e", "cpu-clock", "-F", HERTZ, "-p", server.pid, "-o", record)
    connections, depth = names.FLIGHTS[16]
    before = server.cpu_seconds()
    done = load.nfs(
        server.port,
        workload,
        *("--dir", "apart", "--apart", "--prefix", prefix, "--count", NAMES),
        *("--connections", connections, "--depth", depth),
        under=(*perf, "--"),
    )
    # Files are sealed after the answer to their CLOSE.
    server.until_idle()
    micros = (server.cpu_seconds() - before) / done.ops * 1e6
    found: defaultdict[str, float] = defaultdict(float, {IN_ALL: micros})
    for line in _shares(record):
        percent, name = line.split(maxsplit=1)
        part = next((part for form, part in PARTS.items() if re.match(form, name)), OTHERS)
        found[part] += micros * float(percent.rstrip("%")) / 100
    return found


def _shares(record: Path) -> list[str]:
    """Return lines of a share in percent and a library."""
    command = ("perf", "report", "-q", "--stdio", "--sort", "dso", "-i", str(record))
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.strip() for line in printed.splitlines() if line.strip()]


def main() -> None:
    parent = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(dir=parent) as made, ExitStack() as stack:
        directory = Path(made)
        disk = stack.enter_context(sites.dirsync_ext4(directory / "dirsync"))
        ours = sites.start(stack, "spillway", directory / "spillway")
        peer = sites.start(stack, "vfs", disk / "vfs")
        print(report.machine())
        print("16 connections x 1, a directory each; µs of the server's processor time\n")
        columns = ("work", "part", "ours", names.DIRSYNC)
        print(report.markdown(columns, _rows((ours, peer), directory / "perf.data")))


def _rows(servers: Sequence[Server], record: Path) -> Iterator[tuple[str, ...]]:
    for workload, prefix in names.CHANGES:
        sides = [profile(server, workload, prefix, record) for server in servers]
        for part in (IN_ALL, *PARTS.values(), OTHERS):
            shown = workload if part == IN_ALL else ""
            yield (shown, part, *(f"{side[part]:.0f}" for side in sides))


if __name__ == "__main__":
    main()
