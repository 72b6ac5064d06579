"""Gateway of this machine as commands use it, and the checks before its processes start.

The error of each check says how to mend what is wrong. ``CommandGateway`` also has what the admin
API's own database keeps.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from gateway.common import clock
from gateway.common.errors import UserError
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.schema import explained
from gateway.nfs.ganesha_conf import PLUGIN
from gateway.nfs.server import bind_error
from gateway.service import local
from gateway.service.jobs import Jobs
from gateway.service.records import HistoryTable, RecordedCall
from gateway.service.tokens import Tokens

_REALM = re.compile(r"^\s*(Local-Realms|Domain)\s*=\s*\S", re.MULTILINE | re.IGNORECASE)
"""A line of idmapd.conf(5)."""


def require_data_dir(settings: Settings) -> None:
    """Raise UserError unless the data directory is there, ours and writable."""
    datadir.require_ours(settings)
    path = settings.data_dir
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as exc:
        raise UserError(
            f"cannot write in {path}: {exc.strerror}: check its mode, mount and free space"
        ) from None


LIBRARIES = {
    **dict.fromkeys(
        ("argon2", "cryptography", "fastapi", "jinja2", "prometheus_client", "uvicorn"), "admin"
    ),
    "psycopg": "postgres",
}
"""Libraries of parts that an installation with pip can leave out, and the extra that has each."""


def without_library(missing: ModuleNotFoundError) -> str | None:
    """Return what to do about a library that was left out, or None if it is none of these."""
    library = (missing.name or "").partition(".")[0]
    extra = LIBRARIES.get(library)
    if extra is None:
        return None
    return f"this needs the library {library}: pip install 'spillway[{extra}]'"


def require_gateway(command: str, is_for_any: bool) -> None:
    """Raise UserError if this installation has the client only (``package.client``).

    Args:
        command: which is to be done on this machine.
        is_for_any: whether it can be done on another one.
    """
    if find_spec("sqlalchemy") is not None:
        return
    remedy = "run it on the gateway's machine"
    if is_for_any:
        remedy = "name the gateway with --gateway URL or SPILLWAY_GATEWAY"
    raise UserError(f"spillway {command}: only the client is installed here: {remedy}")


def require_libraries(settings: Settings) -> None:
    """Raise UserError if a library is missing that a process will need."""
    if not settings.admin.enabled:
        return
    for library, extra in LIBRARIES.items():
        if extra == "admin" and find_spec(library) is None:
            raise UserError(
                f"the admin API needs the library {library}: pip install 'spillway[{extra}]', or "
                "set admin.enabled = false"
            )


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


def require_kerberos(settings: Settings) -> None:
    """Raise UserError unless the NFS server can accept Kerberos, if it shall.

    Without a key no client could mount; without a realm all users would be nobody.
    """
    nfs = settings.nfs
    if not nfs.has_kerberos:
        return
    key, file = "nfs.keytab", nfs.keytab
    try:
        # A component of a principal has its length before it (MIT krb5, keytab file format).
        if b"\0\3nfs\0" not in file.read_bytes():
            raise UserError(
                f"{file} has no key of nfs/<host>: make one with ktadd in kadmin (nfs.keytab)"
            )
        key, file = "nfs.idmap_conf", nfs.idmap_conf
        if not _REALM.search(file.read_text(encoding="utf-8", errors="replace")):
            raise UserError(
                f"{file} has neither Local-Realms nor Domain, so every user would be nobody: write "
                "Local-Realms = <your realm> below [General]"
            )
    except OSError as exc:
        raise UserError(
            f"cannot read {file}, which nfs.security needs: {exc.strerror}: put it there, readable "
            f"for the user that runs the server, or set {key} in {settings.source}"
        ) from None


def require_free_port(settings: Settings) -> None:
    """Raise UserError unless the NFS server will be able to listen."""
    exc = bind_error(settings)
    if exc is None:
        return
    number, edit = settings.nfs.port, f"in {settings.source}"
    remedies = {
        errno.EADDRINUSE: f"stop the server that has it (ss -ltnp 'sport = :{number}') "
        f"or set nfs.port {edit}",
        errno.EACCES: f"run as root or set nfs.port to 1024 or higher {edit}",
        errno.EADDRNOTAVAIL: f"set nfs.bind to an address of this machine {edit}",
    }
    remedy = remedies.get(exc.errno or 0, f"check nfs.bind and nfs.port {edit}")
    raise UserError(
        f"cannot listen on port {number} of {settings.nfs.bind}: {exc.strerror}: {remedy}"
    )


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
        with explained(database):
            stack.enter_context(database.alone())
        yield


class CommandGateway(local.LocalGateway):
    """The gateway of this machine (gateway.service.gateway)."""

    # The imports of admin_api are here because every command imports this module.

    @cached_property
    def jobs(self) -> Jobs:
        from admin_api.jobs.rows import LocalJobs

        return LocalJobs(self._store)

    @cached_property
    def tokens(self) -> Tokens:
        from admin_api.access.tokens import LocalTokens

        return LocalTokens(self._store, self._author)

    def history(self, begin: datetime, end: datetime, step_seconds: int) -> HistoryTable:
        from admin_api import dashboard

        from_ns, to_ns = (int(moment.timestamp()) * clock.NS for moment in (begin, end))
        with self._store.reading() as session:
            return dashboard.model(session, from_ns, to_ns, step_seconds)

    def audit(
        self,
        most: int,
        who: str | None = None,
        path: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[RecordedCall]:
        from admin_api import audit

        with self._store.reading() as session:
            rows = audit.listed(session, most=most, who=who, path=path, since=since, until=until)
            return [audit.model(row) for row in rows]

    @cached_property
    def _store(self) -> Database:
        """The admin API's own database."""
        from admin_api.store import open_store

        require_data_dir(self._settings)
        store = self._stack.enter_context(closing(open_store(self._settings)))
        self._stack.enter_context(explained(store))
        return store
