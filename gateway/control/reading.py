"""Opens the namespace's database for facts that people want to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.db import schema
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.errors import NamespaceError, UserError
from gateway.settings import Settings


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """Open the database. Raises SchemaError when it is missing or has another schema."""
    database = Database(settings.database_url)
    try:
        schema.require_current(database)
        yield database
    finally:
        database.close()


@contextmanager
def reading(database: Database) -> Iterator[Session]:
    """Open a read transaction: all its reads see one moment. Raises UserError."""
    try:
        with database.reading() as session:
            yield session
    except NamespaceError as exc:
        raise UserError(f"cannot read the database {database.url}: {exc}: try again") from None
    except database.backend.errors as exc:
        first = str(exc).partition("\n")[0]
        raise UserError(
            f"cannot read the database {database.url}: {first}: check its server or disk"
        ) from None
