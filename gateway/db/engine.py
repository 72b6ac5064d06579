"""Opens the database. Every difference between the engines is here.

SQLite: WAL, so readers never wait for the writer; synchronous=FULL, because NORMAL loses
acknowledged commits in a power cut; explicit transactions (isolation_level None), because the
driver's own would begin too late for savepoints.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.engine import Dialect, Engine, make_url
from sqlalchemy.pool import NullPool

from gateway.errors import ConfigError

BUSY_TIMEOUT_SECONDS = 30.0
READ_CACHE_KIB = 4096
WRITE_CACHE_KIB = 65_536

Connection = Any
"""A DBAPI connection: sqlite3.Connection (Postgres: psycopg.Connection)."""


class Database:
    """The database of one namespace: hands out DBAPI connections for the hot path.

    Parameters: url, a SQLAlchemy URL (sqlite:///<path>).
    Raises: ConfigError when the engine is not one we know.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite" or not parsed.database:
            raise ConfigError("namespace.url", url, "must be sqlite:///<absolute path>")
        self.path = Path(parsed.database)
        # Named parameters, so that statements are executed with one dict on every engine.
        self.dialect: Dialect = sqlite_dialect(paramstyle="named")
        self._readers: deque[Connection] = deque()

    def connect(self, *, cache_kib: int = READ_CACHE_KIB) -> Connection:
        """A connection in autocommit mode; the caller begins and commits."""
        connection = sqlite3.connect(
            self.path,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        _pragmas(connection, cache_kib)
        return connection

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A pooled connection for reads. The pool holds as many as were ever used at once."""
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self.connect()
        try:
            yield connection
        finally:
            self._readers.append(connection)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """One write transaction: takes the write lock at once, commits durably or rolls back."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def engine(self) -> Engine:
        """A SQLAlchemy engine for migrations, the admin's and the status page's queries."""
        engine = create_engine(self.url, poolclass=NullPool)

        @event.listens_for(engine, "connect")
        def _configure(connection: Connection, _record: object) -> None:
            _pragmas(connection, READ_CACHE_KIB)

        return engine

    def close(self) -> None:
        """Close the pooled connections."""
        while self._readers:
            self._readers.pop().close()


def _pragmas(connection: Connection, cache_kib: int) -> None:
    for pragma in (
        f"busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        f"cache_size = -{cache_kib}",
        "temp_store = MEMORY",
        "journal_size_limit = 67108864",
    ):
        connection.execute(f"PRAGMA {pragma}")
