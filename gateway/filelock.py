"""Lock files between processes, with flock: a lock ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_lock(path: Path) -> int:
    """Open a lock file, and make it if it is missing.

    Args:
        path: of the file, in a directory that is there.

    Returns:
        A descriptor, which the programs that this process starts do not inherit.

    Raises:
        OSError: the file cannot be opened.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def lock(fd: int, *, shared: bool = False) -> None:
    """Lock a file, and wait while others have it."""
    fcntl.flock(fd, _how(shared))


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock a file unless another process has it. Returns whether it is locked."""
    try:
        fcntl.flock(fd, _how(shared) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def held(fd: int) -> Iterator[None]:
    """Wait for the lock of a file, keep it for the body, and close the descriptor."""
    try:
        lock(fd)
        yield
    finally:
        os.close(fd)


def sign(fd: int, who: str = "") -> None:
    """Write this process into a lock file that it holds, for others that want the lock."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()} {who}".strip().encode() + b"\n", 0)


def holder(fd: int) -> str:
    """Return what the holder of a lock wrote with ``sign``: its pid, and who it is."""
    return os.pread(fd, 64, 0).decode(errors="replace").strip()


def _how(shared: bool) -> int:
    return fcntl.LOCK_SH if shared else fcntl.LOCK_EX
