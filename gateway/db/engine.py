"""Opens the database and hands out DBAPI connections. Which engine it is, only backends know.

A backend (``sqlite.py``, ``postgres.py``) holds every difference: how to connect, how a write
transaction begins, which errors end a transaction, and what a client is told then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Dialect, Engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from gateway.db.postgres import Postgres
from gateway.db.sqlite import Sqlite
from gateway.errors import ConfigError, NamespaceError

Connection = Any
"""A DBAPI connection in autocommit mode: sqlite3.Connection or psycopg.Connection."""

URLS = "must be sqlite:///<absolute path> or postgresql://user@host/name"


class Backend(Protocol):
    """One database engine."""

    dialect: Dialect
    url: str
    """For SQLAlchemy, with the driver's name."""
    readers_max: int
    """Reading connections open at once; more readers wait."""

    @property
    def broken(self) -> type[Exception]:
        """Errors that end the transaction or the connection, not just one statement."""

    def connect(self, for_writing: bool) -> Connection:
        """A connection in autocommit mode. Raises ``broken``."""

    def turn(self, first: bool) -> AbstractContextManager[None]:
        """The turn of a writer among all processes; every write transaction is inside one.

        Parameters: first, before those that do not say so: for the NFS server, whose clients wait.
        Raises TryAgain when it does not come, ``broken``.
        """

    def begin(self, connection: Connection) -> object:
        """Begin a write transaction that excludes all others; returns a token for ``committed``."""

    def committed(self, token: object) -> bool:
        """Whether a transaction whose COMMIT failed was committed all the same."""

    def answer(self, exc: Exception) -> NamespaceError | None:
        """What a client is told of an error of ``broken``; None when it is not a passing one."""

    def usable(self, connection: Connection) -> bool:
        """Whether a connection can go on after an error."""

    def missing(self) -> str | None:
        """Why there is no database at all; None when there is one."""


class Database:
    """The database of one namespace.

    Parameters: url, sqlite:///<path> or postgresql://….
    Raises: ConfigError when the engine is not one we know.
    """

    def __init__(self, url: str) -> None:
        self.url = make_url_safe(url)
        self.backend = _backend(url)
        self.dialect = self.backend.dialect
        self._readers: deque[Connection] = deque()
        self._slots = threading.BoundedSemaphore(self.backend.readers_max)

    def connect(self, *, for_writing: bool = False) -> Connection:
        """A connection in autocommit mode; the caller begins and commits.

        Raises TryAgain while the server cannot be reached.
        """
        try:
            return self.backend.connect(for_writing)
        except self.backend.broken as exc:
            raise self.backend.answer(exc) or exc from exc

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A pooled connection for reads; the pool grows to as many as are used at once.

        Raises TryAgain when the connection was lost; the next call makes a new one.
        """
        with self._slots:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self.connect()
            try:
                yield connection
            except self.backend.broken as exc:
                raise self.backend.answer(exc) or exc from exc
            finally:
                if self.backend.usable(connection):
                    self._readers.append(connection)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """One write transaction: excludes other writers at once, commits durably or rolls back.

        Raises TryAgain when the turn of this writer does not come.
        """
        with self.backend.turn(first=False):
            self.backend.begin(connection)
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if self.backend.usable(connection):
                    self.undo(connection)
                raise

    def undo(self, connection: Connection) -> None:
        """Roll back what is left of a transaction that failed."""
        # SQLite has rolled back by itself after some errors, and refuses to do it again.
        if getattr(connection, "in_transaction", True):
            connection.execute("ROLLBACK")

    @property
    def path(self) -> Path | None:
        """The file of the database; None when it is a server."""
        return self.backend.path if isinstance(self.backend, Sqlite) else None

    def engine(self) -> Engine:
        """A SQLAlchemy engine for migrations and for queries off the hot path."""
        engine = create_engine(
            self.backend.url, poolclass=NullPool, creator=lambda: self.backend.connect(False)
        )

        @event.listens_for(engine, "begin")
        def begin(connection: sqlalchemy.Connection) -> None:
            # The drivers are in autocommit mode; without this DDL would not be in a transaction.
            connection.exec_driver_sql("BEGIN")

        return engine

    def close(self) -> None:
        """Close the pooled connections."""
        while self._readers:
            self._readers.pop().close()


def make_url_safe(url: str) -> str:
    """The URL as it may be shown: without a password. Raises ConfigError."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        raise ConfigError("namespace.url", url, URLS) from None


def _backend(url: str) -> Backend:
    parsed = make_url(url)
    kind = parsed.get_backend_name()
    if kind == "sqlite" and parsed.database and parsed.database.startswith("/"):
        return Sqlite(parsed)
    if kind == "postgresql" and parsed.database:
        return Postgres(parsed)
    raise ConfigError("namespace.url", make_url_safe(url), URLS)
