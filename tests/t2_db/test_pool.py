"""Tests the pooled connections of a database."""

from __future__ import annotations

import gc

import pytest

from gateway.config.settings import Settings
from gateway.db.engine import Database


def test_the_connections_of_a_dropped_database_are_closed(settings: Settings) -> None:
    """Since Python 3.13 a connection of SQLite that is collected open is warned of."""
    database = Database(settings.database_url)
    errors = database.backend.errors
    with database.reader() as connection:
        connection.execute("SELECT 1")
    del database
    gc.collect()
    with pytest.raises(errors, match="closed"):
        connection.execute("SELECT 1")
