"""Locks the data directory of a gateway, and tells whose it is and whether processes are left."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gateway import clock, state
from gateway.errors import InUse, UserError
from gateway.settings import Settings

LOCK = "up.lock"
UP = "spillway up"
COMMAND = "spillway command"
"""A command that changes names in place of the NFS server."""
LEFTOVERS_SECONDS = 5.0
POLL_SECONDS = 0.05


def require_ours(settings: Settings) -> None:
    """Raise UserError unless the data directory is there and belongs to this user."""
    path = settings.data_dir
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"no data directory {path}: run: spillway init --config {settings.source}"
        ) from None
    except OSError as exc:
        raise UserError(
            f"cannot use {path}: {exc.strerror}: run as the user that owns it"
        ) from None
    if found.st_uid != os.geteuid():
        raise UserError(
            f"{path} belongs to user {found.st_uid}, this is user {os.geteuid()}: "
            f"run as that user (sudo -u '#{found.st_uid}') or: chown -R {os.geteuid()} {path}"
        )


@contextmanager
def locked(settings: Settings, who: str, wait_seconds: float = 0) -> Iterator[None]:
    """Hold the data directory: one ``up``, migration or change without a server runs at a time.

    Parameters: who, the name of this process for another process that wants the lock; wait_seconds,
    the time to wait for a command that changes names. Raises: InUse when another process has it.
    The lock ends with the process, however the process ends.
    """
    path = settings.run_dir / LOCK
    until = clock.monotonic_seconds() + wait_seconds
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while (found := _take(fd)) is not None:
            pid, _, name = found.partition(" ")
            if name != COMMAND or clock.monotonic_seconds() >= until:
                raise InUse(settings.data_dir, name or "spillway", pid or "?")
            time.sleep(POLL_SECONDS)
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()} {who}\n".encode())
        yield
    finally:
        os.close(fd)


def _take(fd: int) -> str | None:
    """Take the lock. Returns None, or what its holder wrote."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 64, 0).decode(errors="replace").strip()
    return None


def await_leftovers(settings: Settings) -> bool:
    """Wait a moment until the children of a killed ``up`` have died, so that a supervisor of the
    gateway (systemd, say) can start it again at once. Returns whether they are gone."""
    until = clock.monotonic_seconds() + LEFTOVERS_SECONDS
    children = state.children(state.read(settings, state.UP)).values()
    while left := any(map(state.alive, children)):
        if clock.monotonic_seconds() >= until:
            break
        time.sleep(POLL_SECONDS)
    return not left
