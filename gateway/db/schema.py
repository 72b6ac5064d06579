"""Opening of a database for a command or a call: its schema must be this program's.

Alembic, which migrates (upgrade.py), is not imported: it would be a fifth of the time that a
command takes to start. While a database cannot be used, the error says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.exc import DatabaseError

import migrations
from gateway.common.errors import NamespaceError, SchemaError, UserError
from gateway.db.compiled import Session
from gateway.db.engine import Database

NAMESPACE = Path(migrations.__file__).parent / "versions"
"""The directory of the revisions of the namespace. The admin API's own database has others."""


def known(versions: Path = NAMESPACE) -> list[str]:
    """Return the revisions that this program knows, the oldest first.

    The names of its files begin with them.

    Args:
        versions: their directory.
    """
    return sorted(path.name.partition("_")[0] for path in versions.glob("[0-9]*.py"))


def current(database: Database) -> str | None:
    """Return the revision of the database, or None without a schema. Raises SchemaError."""
    engine = database.engine()
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            revision: str | None = connection.scalar(
                text("SELECT version_num FROM alembic_version")
            )
            return revision
    except DatabaseError as exc:
        raise SchemaError(
            f"database {database.url} cannot be read ({exc.orig}): "
            "check namespace.url and the permissions of the file"
        ) from None
    finally:
        engine.dispose()


def require_known(database: Database, versions: Path = NAMESPACE) -> str | None:
    """Return the revision of the database, or None without a schema. Raises SchemaError if this
    program does not know it."""
    revision = current(database)
    if revision is not None and revision not in known(versions):
        raise SchemaError(
            f"database {database.url} has schema {revision}, which this program does not know: "
            "it was written by a newer Spillway; install that version"
        )
    return revision


def require_made(database: Database, maker: str = "spillway init") -> str:
    """Return the revision of the database. Raises SchemaError without a schema.

    It is named last: while the disk of the database is not mounted, that namespace would replace
    the objects of this one.

    Args:
        maker: the command that would make another namespace.
    """
    reason = database.backend.missing()
    if reason is None and (revision := require_known(database)) is not None:
        return revision
    reason = reason or f"database {database.url} is empty: correct namespace.url"
    raise SchemaError(f"{reason} or put its backup back; for a new gateway: {maker}")


def require_current(database: Database) -> None:
    """Raise SchemaError unless the database has exactly this program's schema."""
    if (revision := require_made(database)) != (head := known()[-1]):
        raise SchemaError(
            f"database {database.url} has the older schema {revision}, this program needs {head}: "
            "run: spillway upgrade"
        )


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """Open a namespace's database for the body, and close it.

    Raises:
        SchemaError: it is missing, or has another schema.
        UserError: it cannot be used now.
    """
    with closing(Database(url)) as database, explained(database):
        require_current(database)
        yield database


@contextmanager
def reading(database: Database) -> Iterator[Session]:
    """Open a read transaction: all its reads see one moment.

    Raises:
        UserError: the database cannot be used now, or its driver fails.
    """
    with explained(database, *database.backend.errors), database.reading() as session:
        yield session


@contextmanager
def explained(database: Database, *further: type[Exception]) -> Iterator[None]:
    """Turn what the database raises in the body into an error for people.

    Args:
        further: classes of errors beside NamespaceError.

    Raises:
        UserError: the database cannot be used now.
    """
    failures: tuple[type[Exception], ...] = (NamespaceError, *further)
    try:
        yield
    except failures as exc:
        reason = str(exc).partition("\n")[0]
        raise UserError(
            f"cannot use the database {database.url}: {reason}: check its server or disk, and "
            "try again"
        ) from None
