"""Locks the data directory of a gateway, and tells whose it is and whether processes are left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gateway import clock, filelock, state
from gateway.errors import InUse, UserError
from gateway.settings import Settings

LOCK = "up.lock"
UP = "spillway up"
SERVICES = "unit of spillway.target"
"""A service, which holds the data directory together with others."""
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
            f"no data directory {path}: mount its disk or correct gateway.data_dir; for a new "
            f"gateway: spillway init --config {settings.source}"
        ) from None
    except OSError as exc:
        raise UserError(
            f"cannot use {path}: {exc.strerror}: run as the user that owns it"
        ) from None
    if found.st_uid == os.geteuid():
        return
    remedy = f"mount its disk if it is not mounted, or run as that user (sudo -u '#{found.st_uid}')"
    if found.st_uid == 0:
        remedy = f"mount its disk if it is not mounted; a new disk: chown {os.geteuid()} {path}"
    raise UserError(f"{path} belongs to user {found.st_uid}, this is user {os.geteuid()}: {remedy}")


@contextmanager
def locked(settings: Settings, who: str, wait_seconds: float = 0) -> Iterator[None]:
    """Hold the data directory: one ``up``, migration or change without a server runs at a time.

    Parameters: who, the name of this process for another process that wants the lock; wait_seconds,
    the time to wait for a command that changes names. Raises: InUse when another process has it.
    The lock ends with the process, however the process ends.
    """
    fd = filelock.open_lock(settings.run_dir / LOCK)
    try:
        _hold(settings, fd, who, wait_seconds)
        yield
    finally:
        os.close(fd)


def share(settings: Settings, wait_seconds: float) -> None:
    """Hold the data directory together with other services, for the life of this process and of the
    program that it becomes. Parameters and errors are those of ``locked``."""
    fd = filelock.open_lock(settings.run_dir / LOCK)
    _hold(settings, fd, SERVICES, wait_seconds, shared=True)
    os.set_inheritable(fd, True)


def _hold(
    settings: Settings, fd: int, who: str, wait_seconds: float, *, shared: bool = False
) -> None:
    until = clock.monotonic_seconds() + wait_seconds
    while not filelock.try_lock(fd, shared=shared):
        pid, _, name = filelock.holder(fd).partition(" ")
        if name != COMMAND or clock.monotonic_seconds() >= until:
            stop = "systemctl stop spillway.target" if name == SERVICES else f"kill {pid}"
            raise InUse(settings.data_dir, name or "spillway", pid or "?", stop)
        time.sleep(POLL_SECONDS)
    filelock.sign(fd, who)


def await_leftovers(settings: Settings) -> bool:
    """Wait a moment until the children of a killed ``up`` have died, so that a supervisor of the
    gateway (systemd, say) can start it again at once. Returns whether they are gone."""
    up = state.read(settings, state.UP)
    if state.is_of_services(up):
        return True  # each of them holds the lock as long as it runs
    until = clock.monotonic_seconds() + LEFTOVERS_SECONDS
    children = state.children(up).values()
    while left := any(map(state.alive, children)):
        if clock.monotonic_seconds() >= until:
            break
        time.sleep(POLL_SECONDS)
    return not left
