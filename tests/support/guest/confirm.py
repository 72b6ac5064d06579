"""Saves, replaces and removes small files until the host ends the connection, and tells it of each
confirmed step.

confirm.py DIRECTORY HOST PORT

Step n writes n.tmp, fsyncs it and renames it to n.pt. Then it renames a new link to n.pt over the
link "latest", and from the seventh step on it removes n-6.pt. After these calls have returned, it
sends a line with n. No directory is synced: a change of a name is durable when it is answered.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import select
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
            if select.select([host], [], [], 0)[0]:
                return


if __name__ == "__main__":
    main()
