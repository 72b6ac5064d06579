"""Database of a namespace, changed beside the server, for tests of the fate of a COMMIT."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.engine import Database
from tests.support.postgres import PostgresServer
from tests.support.t2.failover import settings_at


@pytest.fixture
def connection(postgres: PostgresServer, tmp_path: Path) -> psycopg.Connection:
    settings = settings_at(postgres.create_database(), tmp_path)
    return psycopg.connect(settings.database_url, autocommit=True)


def promote(settings: Settings) -> None:
    """Change the row of the volume beside the server, as a promotion does."""
    database = Database(settings.database_url)
    with closing(database.connect()) as connection, database.transaction(connection):
        assert Session(connection, database.dialect).one(sql.RESERVE, inos=1, cookies=1)
    database.close()
