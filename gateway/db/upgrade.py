"""Brings a database to this program's schema."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config

import migrations
from gateway.db import schema
from gateway.db.engine import Database


def script_config(database: Database) -> Config:
    """Return the configuration of Alembic for one database."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["database"] = database
    return config


def upgrade(database: Database) -> None:
    """Create the schema or migrate it to this program's revision. Raises SchemaError."""
    schema.require_known(database)
    with database.backend.turn(first=False):
        command.upgrade(script_config(database), "head")
