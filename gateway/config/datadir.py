"""Data directory of a gateway: its lock, its owner, and the reports of processes in run/."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateway.common import clock, files
from gateway.common.errors import InUse, UserError
from gateway.common.process import start_ticks
from gateway.config.settings import Settings

UP = "up.json"
DRAIN = "drain.json"
CACHE = "cache.json"
"""The report of the hydrator."""
RECOVERY = "recovery.json"
DRILL = "drill.json"
"""What the last drill of a restore found. It is kept."""
DELIVERIES = "deliveries.json"
"""How far the receivers of webhooks and of the audit log are."""
UNRECOGNISED = "unrecognised.json"
"""How many directories look like checkpoints, and no rule knows them."""


def read(settings: Settings, name: str) -> dict[str, Any] | None:
    """Return the last report of a process, or None if there is none. Raises OSError.

    A file that is not JSON (after a power cut, say) counts as missing.
    """
    try:
        document = json.loads((settings.run_dir / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def alive(entry: Any) -> bool:
    """Return whether the process with an entry's ``pid`` and ``start_ticks`` still runs.

    Without start_ticks only the pid decides, and another process may have it by now.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("pid"), int):
        return False
    ticks = start_ticks(entry["pid"])
    wanted = entry.get("start_ticks")
    return ticks is not None and wanted in (None, ticks)


def is_of_services(up: dict[str, Any] | None) -> bool:
    """Return whether up.json was written by services, each for itself, and not by ``up``."""
    return up is not None and up.get("services") is True


def is_supervised(up: dict[str, Any] | None) -> bool:
    """Return whether ``up``, or a service in its place, runs: then the phases in up.json count."""
    if is_of_services(up):
        return any(alive(entry) for entry in reported_children(up).values())
    return alive(up)


def reported_children(up: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the entries of the children in up.json, by name."""
    children = {} if up is None else up.get("children")
    if not isinstance(children, dict):
        return {}
    return {name: entry for name, entry in children.items() if isinstance(entry, dict)}


LOCK = "up.lock"
UP_PROGRAM = "spillway up"
SERVICES = "unit of spillway.target"
"""A service, which holds the data directory together with others."""
COMMAND = "spillway command"
"""A command that keeps the gateway from starting meanwhile."""
ORPHANED_SECONDS = 5.0
POLL_SECONDS = 0.05


def require_ours(settings: Settings) -> None:
    """Raise UserError unless the data directory is there and belongs to this user."""
    path = settings.data_dir
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"no data directory {path}: mount its disk or correct gateway.data_dir; for a new "
            f"gateway: spillway init --config {settings.source}"
        ) from None
    except OSError as exc:
        raise UserError(
            f"cannot use {path}: {exc.strerror}: run as the user that owns it"
        ) from None
    if stat.st_uid == os.geteuid():
        return
    remedy = f"mount its disk if it is not mounted, or run as that user (sudo -u '#{stat.st_uid}')"
    if stat.st_uid == 0:
        remedy = f"mount its disk if it is not mounted; a new disk: chown {os.geteuid()} {path}"
    raise UserError(f"{path} belongs to user {stat.st_uid}, this is user {os.geteuid()}: {remedy}")


@contextmanager
def locked(settings: Settings, who: str, wait_seconds: float = 0) -> Iterator[None]:
    """Hold the data directory: one ``up``, migration or change of a stopped gateway at a time.

    The lock ends with the process, however the process ends.

    Args:
        who: the name of this process for another process that wants the lock.
        wait_seconds: the time to wait for a ``COMMAND``.

    Raises:
        InUse: another process has it.
    """
    fd = files.open_lock(settings.run_dir / LOCK)
    try:
        _hold(settings, fd, who, wait_seconds)
        yield
    finally:
        os.close(fd)


def in_use(settings: Settings) -> InUse | None:
    """Return which process holds the data directory, or None if none does.

    Raises:
        OSError: the lock file cannot be opened.
    """
    # Root must not make the file: the server, which may run as another user, could not open it.
    if not (settings.run_dir / LOCK).exists():
        return None
    try:
        with locked(settings, COMMAND):
            return None
    except InUse as exc:
        return exc


def share(settings: Settings, wait_seconds: float) -> None:
    """Hold the data directory together with other services, for the life of this process and of the
    program that it becomes. Parameters and errors are those of ``locked``."""
    fd = files.open_lock(settings.run_dir / LOCK)
    _hold(settings, fd, SERVICES, wait_seconds, shared=True)
    os.set_inheritable(fd, True)


def _hold(
    settings: Settings, fd: int, who: str, wait_seconds: float, *, shared: bool = False
) -> None:
    until = clock.monotonic_seconds() + wait_seconds
    while not files.try_lock(fd, shared=shared):
        pid, _, name = files.holder(fd).partition(" ")
        if name != COMMAND or clock.monotonic_seconds() >= until:
            stop = "systemctl stop spillway.target" if name == SERVICES else f"kill {pid}"
            raise InUse(settings.data_dir, name or "spillway", pid or "?", stop)
        time.sleep(POLL_SECONDS)
    files.sign(fd, who)


def await_orphaned_children(settings: Settings) -> None:
    """Wait a moment until the children of a killed ``up`` have died, so that a supervisor of the
    gateway (systemd, say) can start it again at once."""
    up = read(settings, UP)
    if is_of_services(up):
        return  # each of them holds the lock as long as it runs
    until = clock.monotonic_seconds() + ORPHANED_SECONDS
    children = reported_children(up).values()
    while any(map(alive, children)) and clock.monotonic_seconds() < until:
        time.sleep(POLL_SECONDS)
