"""Small files that are replaced as a whole, and lock files between processes.

A reader of a replaced file gets the old text or the new one, never a part. Locks are taken with
flock, so a lock ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.common.errors import UserError


def replace(path: Path, text: str, mode: int, *, durable: bool = True) -> bool:
    """Give a file this text and mode. The file never exists with a wider mode than asked.

    Returns False when the file had the text already; its mode is then set if it differs. Raises
    OSError.

    Args:
        mode: permission bits, independent of the umask.
        durable: whether to fsync (a status file that is written again at every start needs no
            fsync).
    """
    data = text.encode()
    if _read(path) == data:
        if path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
        return False
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, mode)
            file.flush()
            if durable:
                os.fsync(fd)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    if durable:
        sync_directory(path.parent)
    return True


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(path: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None


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


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold a lock.

    Args:
        path: of its file.
        what: is done with it, for people, like "drill".

    Raises:
        UserError: another process does it.
        OSError: the file cannot be opened.
    """
    fd = open_lock(path)
    try:
        if not try_lock(fd):
            raise UserError(
                f"another {what} runs (process {holder(fd) or '?'}): wait until it has ended"
            )
        sign(fd)
        yield
    finally:
        os.close(fd)


@contextmanager
def if_free(path: Path) -> Iterator[bool]:
    """Hold a lock if no other process has it. Yields whether it is held. Raises OSError."""
    fd = open_lock(path)
    try:
        yield try_lock(fd)
    finally:
        os.close(fd)
