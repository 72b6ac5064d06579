"""Saves, replaces and removes small files for ever; tells the host of each step that was confirmed.

confirm.py DIRECTORY HOST PORT

Step n writes n.tmp, fsyncs it and renames it to n.pt, points the link "latest" to it by renaming
another over it, and from the seventh step on removes n-6.pt. A line with n is sent when all of that
has returned. No directory is synced: a name that was answered is durable.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import sys
from pathlib import Path

KEPT = 6


def content(step: int) -> bytes:
    return hashlib.sha256(b"%d" % step).digest() * 1000


def do(directory: Path, step: int) -> None:
    written = directory / f"{step}.tmp"
    with written.open("wb") as file:
        file.write(content(step))
        file.flush()
        os.fsync(file.fileno())
    written.rename(directory / f"{step}.pt")
    link = directory / "latest.tmp"
    link.symlink_to(f"{step}.pt")
    link.rename(directory / "latest")
    if step >= KEPT:
        (directory / f"{step - KEPT}.pt").unlink()


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir()
    with socket.create_connection((sys.argv[2], int(sys.argv[3]))) as host:
        for step in itertools.count():
            do(directory, step)
            host.sendall(b"%d\n" % step)


if __name__ == "__main__":
    main()
