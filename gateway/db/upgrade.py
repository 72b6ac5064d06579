"""Migration of a database to this program's schema, by Alembic."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, delete, inspect

from gateway.db import schema
from gateway.db.checkpoint_models import Base
from gateway.db.engine import Database
from gateway.db.models import NamesCopyTable


def script_config(
    database: Database,
    versions: Path = schema.NAMESPACE,
    metadata: MetaData = Base.metadata,
) -> Config:
    """Return the configuration of Alembic for one database.

    Args:
        versions: the directory of its revisions.
        metadata: its tables.
    """
    config = Config()
    config.set_main_option("script_location", str(schema.NAMESPACE.parent))
    config.set_main_option("version_locations", str(versions))
    config.set_main_option("path_separator", "newline")  # a path may contain each other separator
    config.attributes.update(database=database, metadata=metadata)
    return config


def upgrade(
    database: Database,
    versions: Path = schema.NAMESPACE,
    metadata: MetaData = Base.metadata,
    revision: str = "head",
) -> None:
    """Create the schema or migrate it to this program's revision. Raises SchemaError.

    Args:
        database, versions, metadata: as of ``script_config``.
        revision: an older one, of what is loaded next.
    """
    before = schema.require_known(database, versions)
    with database.backend.turn(first=False):
        if before not in (None, schema.known(versions)[-1]):
            _end_series(database)
        command.upgrade(script_config(database, versions, metadata), revision)


def _end_series(database: Database) -> None:
    """Have the copy of the names begin another series: the rows of its log would have other columns
    than those of its base. It comes first, so that it is done if the migration was."""
    engine = database.engine()
    try:
        with engine.begin() as connection:
            if inspect(connection).has_table(NamesCopyTable.__tablename__):
                connection.execute(delete(NamesCopyTable.__table__))
    finally:
        engine.dispose()
