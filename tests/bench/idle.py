"""Measures an idle gateway with a large namespace: ``python -m tests.bench.idle DIRECTORY``.

A whole gateway (``spillway up``) runs with a million files that are all in the bucket, and some
that are held, so no process has work. The program prints the processor time of each process as a
share of one core.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
import time
from pathlib import Path

from gateway.common.types import InodeKind
from tests.support.gateway import Gateway
from tests.support.ports import free_port
from tests.support.s3server import RcloneServer

DIRECTORIES = 1000
FIRST_INO = 1000
ROOT = 2
LIMIT_PERCENT = 1.0
TICKS = os.sysconf("SC_CLK_TCK")

_INODE = (
    "INSERT INTO inode (ino, generation, kind, mode, uid, gid, nlink, size, used, atime_ns,"
    " mtime_ns, ctime_ns, btime_ns, change, rdev, parent, content_version, drained_version,"
    " write_open, drain_after_ns, residency, epoch)"
    " VALUES (?, 1, ?, 420, 0, 0, ?, 0, 0, 1, 1, 1, 1, 1, 0, ?, ?, ?, 0, ?, 2, 0)"
)
_DIRENT = "INSERT INTO dirent (parent, name, ino, cookie) VALUES (?, ?, ?, ?)"
_OBJECT = (
    "INSERT INTO object (ino, key, content_version, size, etag, stored_ns)"
    " VALUES (?, ?, 1, 0, 'e', 1)"
)


def fill(database: Path, files: int, held: int) -> None:
    """Make empty files in a thousand directories, all in the bucket, and so many that are held."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN")
    top = FIRST_INO + DIRECTORIES
    for number in range(DIRECTORIES):
        ino = FIRST_INO + number
        connection.execute(_INODE, (ino, InodeKind.DIRECTORY, 2, ROOT, 0, 0, 0))
        connection.execute(_DIRENT, (ROOT, b"d%d" % number, ino, ino))
    for number in range(files + held):
        ino, parent = top + number, FIRST_INO + number % DIRECTORIES
        is_held = number >= files
        name = b"f%d.tmp" % number if is_held else b"f%d" % number
        connection.execute(
            _INODE, (ino, InodeKind.REGULAR, 1, None, 1, int(not is_held), number + 1)
        )
        connection.execute(_DIRENT, (parent, name, ino, ino))
        if not is_held:
            connection.execute(_OBJECT, (ino, f"d{number % DIRECTORIES}/f{number}"))
    connection.execute("UPDATE inode SET nlink = ? WHERE ino = ?", (2 + DIRECTORIES, ROOT))
    end = top + files + held
    connection.execute("UPDATE volume SET next_ino = ?, next_cookie = ?", (end, end))
    connection.execute("COMMIT")
    connection.close()


def processor_seconds(top: int) -> dict[str, float]:
    """Return the processor time of a process and its descendants, by name."""
    found: dict[str, float] = {}
    processes: dict[int, tuple[int, str, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            rest = text.rpartition(")")[2].split()
            name = text[text.index("(") + 1 : text.rindex(")")]
            seconds = (int(rest[11]) + int(rest[12])) / TICKS
            processes[int(entry.name)] = (int(rest[1]), name, seconds)
    for pid, (_parent, name, seconds) in processes.items():
        above = pid
        while above not in (0, top):
            above = processes[above][0] if above in processes else 0
        if above == top:
            found[f"{name} {pid}"] = seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="on the disk to measure")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--held", type=int, default=0, help="dirty files under held names")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it is looked at")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=args.directory.absolute()) as directory,
        RcloneServer(Path(directory) / "s3") as s3,
    ):
        gateway = Gateway(
            Path(directory) / "gateway",
            s3,
            values={
                "drain": {"settle_seconds": 5.0, "poll_seconds": 1.0},
                "admin": {"enabled": True, "port": free_port()},
            },
        )
        fill(gateway.data_dir / "namespace.db", args.files, args.held)
        with gateway:
            top = gateway.up_pid
            # The cost of the start is not part of the measurement.
            time.sleep(args.seconds / 4)
            before, started = processor_seconds(top), time.monotonic()
            time.sleep(args.seconds)
            spent = processor_seconds(top)
            seconds = time.monotonic() - started
    shares = {name: 100 * (spent[name] - before.get(name, 0.0)) / seconds for name in sorted(spent)}
    total = sum(shares.values())
    print(f"idle, {args.files:,} files drained, {args.held:,} held: {total:.2f} % of a core")
    print("  " + ", ".join(f"{name} {share:.2f} %" for name, share in shares.items()))
    print("PASS" if total < LIMIT_PERCENT else f"above {LIMIT_PERCENT:g} %")


if __name__ == "__main__":
    main()
