"""Guest program that saves, replaces and removes small files, and confirms each step to the host.

    confirm.py DIRECTORY HOST PORT

Step n writes n.tmp, fsyncs it and renames it to n.pt. Then it renames a new link to n.pt over the
link "latest", and from the seventh step on it removes n-6.pt. After these calls have returned, it
sends a line with n. No directory is synced: a change of a name is durable when it is answered. The
program ends when the host ends the connection.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEPT = 6


def content(step: int) -> bytes:
    return hashlib.sha256(b"%d" % step).digest() * 1000


@contextmanager
def repeatable(error: type[OSError], is_done: Callable[[], bool]) -> Iterator[None]:
    """Accept an error of a call that was carried out. The client repeats a request whose answer was
    lost in the cut, and the server that starts then does not know the first one."""
    try:
        yield
    except error:
        if not is_done():
            raise


def do(directory: Path, step: int) -> None:
    written = directory / f"{step}.tmp"
    with written.open("wb") as file:
        file.write(content(step))
        file.flush()
        os.fsync(file.fileno())
    saved = directory / f"{step}.pt"
    with repeatable(FileNotFoundError, saved.exists):
        written.rename(saved)
    link, latest = directory / "latest.tmp", directory / "latest"
    with repeatable(FileExistsError, lambda: os.readlink(link) == saved.name):
        link.symlink_to(saved.name)
    with repeatable(FileNotFoundError, lambda: os.readlink(latest) == saved.name):
        link.rename(latest)
    if step >= KEPT:
        (directory / f"{step - KEPT}.pt").unlink(missing_ok=True)


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
