"""Opens the admin API's own database, and makes or migrates it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy.exc import DatabaseError

from admin_api.store.models import Base
from gateway.db import schema
from gateway.db.engine import Database
from gateway.errors import NamespaceError, UserError
from gateway.settings import Settings

VERSIONS = schema.NAMESPACE.parent / "admin"


def open_store(settings: Settings) -> Database:
    """Return the admin API's own database, with this program's tables.

    It is made if it is missing: then there are no tokens yet. Raises UserError if it cannot be
    used, SchemaError when a newer Spillway wrote it. NFS and the drain do not need it.
    """
    path = settings.admin_db
    database = Database(f"sqlite:///{path}")
    try:
        _make_private(path)
        _make_current(database)
    except OSError as exc:
        raise UserError(
            f"cannot make {path}: {exc.strerror}: check the mode and the disk of {path.parent}"
        ) from None
    except (NamespaceError, DatabaseError, sqlite3.Error) as exc:
        reason = str(exc.orig if isinstance(exc, DatabaseError) else exc.__cause__ or exc)
        raise UserError(
            f"cannot use {path}, which has the tokens and the audit log of the admin API: "
            f"{reason.splitlines()[0]}: mend its disk, or move it away and make new tokens "
            "(spillway token create); files and checkpoints do not depend on it"
        ) from None
    return database


def _make_current(database: Database) -> None:
    try:
        with database.reader() as connection:
            connection.execute("SELECT name FROM sqlite_master").fetchall()
        if schema.require_known(database, VERSIONS) != schema.known(VERSIONS)[-1]:
            # Alembic takes long to be imported, and nearly no start needs it.
            from gateway.db import upgrade

            upgrade.upgrade(database, VERSIONS, Base.metadata)
    except BaseException:
        database.close()
        raise


def _make_private(path: Path) -> None:
    """Make the file before SQLite does, which would let others read it. Raises OSError.

    A file that is there is not opened: closing it would end the locks that SQLite has on it in this
    process.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        path.chmod(0o600)
