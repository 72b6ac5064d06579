"""Checks this machine before anything is started. The error of each check says how to mend it."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gateway import clock
from gateway.cli import state
from gateway.cli.ganesha_conf import PLUGIN
from gateway.db.engine import Database
from gateway.errors import NamespaceError, UserError
from gateway.settings import Settings

LEFTOVERS_SECONDS = 5.0


def require_data_dir(settings: Settings) -> None:
    """Raise UserError unless the data directory is there, ours and writable."""
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
            f"run as that user or: chown -R {os.geteuid()} {path}"
        )
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as exc:
        raise UserError(
            f"cannot write in {path}: {exc.strerror}: check its mode, mount and free space"
        ) from None


def require_programs(settings: Settings) -> None:
    """Raise UserError unless the NFS server and our plugin are installed."""
    server = settings.nfs.ganesha
    if not (server.is_file() and os.access(server, os.X_OK)):
        raise UserError(
            f"no NFS server program at {server}: install nfs-ganesha or set nfs.ganesha in "
            f"{settings.source}"
        )
    plugin = settings.nfs.plugins_dir / PLUGIN
    if not plugin.is_file():
        raise UserError(
            f"no plugin at {plugin}: install it there or set nfs.plugins_dir in {settings.source}"
        )


def require_free_port(settings: Settings) -> None:
    """Raise UserError unless the NFS server will be able to listen."""
    address, port = settings.nfs.bind, settings.nfs.port
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    edit = f"in {settings.source}"
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as exc:
            remedies = {
                errno.EADDRINUSE: f"stop the server that has it (ss -ltnp 'sport = :{port}') "
                f"or set nfs.port {edit}",
                errno.EACCES: f"run as root or set nfs.port to 1024 or higher {edit}",
                errno.EADDRNOTAVAIL: f"set nfs.bind to an address of this machine {edit}",
            }
            remedy = remedies.get(exc.errno or 0, f"check nfs.bind and nfs.port {edit}")
            raise UserError(
                f"cannot listen on port {port} of {address}: {exc.strerror}: {remedy}"
            ) from None


def await_leftovers(settings: Settings) -> None:
    """Wait for the children of a killed `up` to die.

    So a supervisor of `up` (systemd, say) can start it again at once.
    """
    until = clock.monotonic_seconds() + LEFTOVERS_SECONDS
    children = state.children(state.read(settings, state.UP)).values()
    while any(map(state.alive, children)) and clock.monotonic_seconds() < until:
        time.sleep(0.05)


def readable_secrets(path: Path) -> bool:
    """Return whether users other than the owner may read the credentials file."""
    try:
        return bool(path.stat().st_mode & 0o077)
    except OSError:
        return False


@contextmanager
def alone(database: Database) -> Iterator[None]:
    """Keep NFS servers, also those of other machines, from a namespace on PostgreSQL meanwhile.

    Raises: UserError when an NFS server has the namespace, with its name, or when the database does
    not answer.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(database.alone())
        except NamespaceError as exc:
            raise UserError(f"cannot use {database.url}: {exc}: start its server") from None
        yield


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """Lock the data directory, which admits one ``up`` (or one migration) at a time.

    Raises: UserError when another process has the lock. The lock ends with its process in any case.
    """
    path = settings.run_dir / "up.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "?"
            raise UserError(
                f"another spillway up (pid {holder}) runs on {settings.data_dir}: "
                f"stop it first: kill {holder}"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(fd)
