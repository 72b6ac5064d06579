"""Opens a database for a command or a call, and says what to do while it cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from gateway.db import schema
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.errors import NamespaceError, UserError


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """Open a namespace's database for the body, and close it.

    Raises:
        SchemaError: it is missing, or has another schema.
        UserError: it cannot be used now.
    """
    with closing(Database(url)) as database, explained(database):
        schema.require_current(database)
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
