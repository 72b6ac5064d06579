"""Brings a database to this program's schema, and refuses to work on any other."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DatabaseError

import migrations
from gateway.db.engine import Database
from gateway.errors import SchemaError


def _alembic(database: Database) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["database"] = database
    return config


def upgrade(database: Database) -> None:
    """Create the schema or migrate it to this program's revision. Raises SchemaError."""
    config = _alembic(database)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    found = current(database)
    if found is not None and found not in known:
        raise _newer(database, found)
    with database.backend.turn(first=False):
        command.upgrade(config, "head")


def current(database: Database) -> str | None:
    """Return the revision of the database, or None without a schema. Raises SchemaError."""
    engine = database.engine()
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except DatabaseError as exc:
        raise SchemaError(
            f"database {database.url} cannot be read ({exc.orig}): "
            "check namespace.url and the permissions of the file"
        ) from None
    finally:
        engine.dispose()


def require_current(database: Database) -> None:
    """Raise SchemaError unless the database has exactly this program's schema."""
    scripts = ScriptDirectory.from_config(_alembic(database))
    head = scripts.get_current_head()
    if (reason := database.backend.missing()) is not None:
        raise SchemaError(f"{reason}: run: spillway init")
    found = current(database)
    if found == head:
        return
    if found is None:
        raise SchemaError(f"database {database.url} is empty: run: spillway init")
    if found not in {script.revision for script in scripts.walk_revisions()}:
        raise _newer(database, found)
    raise SchemaError(
        f"database {database.url} has the older schema {found}, this program needs {head}: "
        "run: spillway upgrade"
    )


def _newer(database: Database, found: str) -> SchemaError:
    return SchemaError(
        f"database {database.url} has schema {found}, which this program does not know: "
        "it was written by a newer Spillway; install that version"
    )
