"""Opens the database and hands out DBAPI connections. Which engine it is, only backends know.

A backend (``sqlite.py``, ``postgres.py``) holds every difference: how to connect, how a write
transaction begins, which errors end a transaction, and what a client is told then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy
from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Dialect, Engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from gateway.db.fence import Holder
from gateway.db.postgres import Postgres, with_hosts
from gateway.db.sqlite import Sqlite
from gateway.errors import ConfigError, NamespaceError

Connection = Any
"""A DBAPI connection in autocommit mode: sqlite3.Connection or psycopg.Connection."""

URLS = (
    "must be sqlite:///<absolute path> or postgresql://user@host/name "
    "(in a password write @ as %40, / as %2F)"
)


class Backend(Protocol):
    """One database engine."""

    dialect: Dialect
    url: str
    """For SQLAlchemy, with the driver's name."""
    readers_max: int
    """Reading connections open at once; more readers wait."""

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """Errors that end the transaction or the connection, not just one statement."""

    def connect(self, for_writing: bool) -> Connection:
        """A connection in autocommit mode. Raises ``broken``."""

    def turn(self, first: bool) -> AbstractContextManager[None]:
        """The turn of a writer among all processes; every write transaction is inside one.

        Parameters: first, before those that do not say so: for the NFS server, whose clients wait.
        Raises TryAgain when it does not come, ``broken``.
        """

    def begin(self, connection: Connection) -> object:
        """Begin a write transaction that excludes all others."""

    def lock(self, connection: Connection) -> None:
        """Keep NFS servers from the namespace for the life of a connection. Raises AnotherServer,
        ``broken``."""

    def holder(self, connection: Connection) -> Holder | None:
        """What keeps NFS servers from the namespace."""

    def serve(self, connection: Connection) -> None:
        """Make this process the namespace's NFS server, or stay it, with a new connection
        that it will write on. Raises AnotherServer, ``broken``."""

    def bind(self, boot: int) -> None:
        """End the process from now on rather than write when the count of starts is another."""

    def begin_serving(self, connection: Connection) -> Any:
        """``begin`` of the NFS server; returns a token of the transaction."""

    def wrote(self, token: Any) -> None:
        """The COMMIT of a transaction was answered."""

    def committed(self, connection: Connection, token: Any) -> bool:
        """Whether a transaction whose COMMIT failed was committed all the same. No caller is
        answered before it is known: when that takes too long the process ends."""

    def answer(self, exc: Exception) -> NamespaceError | None:
        """What a client is told of an error of ``broken``; None when it is not a passing one."""

    def usable(self, connection: Connection) -> bool:
        """Whether a connection can still be used after an error."""

    def missing(self) -> str | None:
        """Why there is no database at all; None when there is one."""


class Database:
    """The database of one namespace.

    Parameters: url, sqlite:///<path> or postgresql://….
    Raises: ConfigError when the engine is not one we know.
    """

    def __init__(self, url: str) -> None:
        url = with_hosts(url)
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

    def serve(self) -> Connection:
        """The connection that the NFS server writes on. While it lives, there is no other server.

        Raises AnotherServer, or TryAgain while the database cannot be reached. Ends the process
        when it was the server and another one is now, or when an answered change is lost.
        """
        # What else is open may be to a server of the database that is none any more.
        self.close()
        connection = self.connect(for_writing=True)
        try:
            self.backend.serve(connection)
        except BaseException as exc:
            connection.close()
            if isinstance(exc, self.backend.broken):
                raise self.backend.answer(exc) or exc from exc
            raise
        return connection

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing serves the namespace meanwhile, here or elsewhere.

        Raises AnotherServer, or TryAgain while the database cannot be reached.
        """
        connection = self.connect()
        try:
            try:
                self.backend.lock(connection)
            except self.backend.broken as exc:
                raise self.backend.answer(exc) or exc from exc
            yield
        finally:
            connection.close()

    def holder(self) -> Holder | None:
        """What keeps other NFS servers from the namespace. Raises TryAgain."""
        with self.reader() as connection:
            return self.backend.holder(connection)

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
                else:
                    # Each would be waited for in vain, one after the other.
                    connection.close()
                    self.close()

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """One write transaction: excludes other writers at once, commits durably or rolls back.

        Raises TryAgain when the turn of this writer does not come.
        """
        with self.backend.turn(first=False):
            try:
                self.backend.begin(connection)
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
        with suppress(IndexError):
            while True:
                self._readers.pop().close()


def make_url_safe(url: str) -> str:
    """The URL as it may be shown: without a password, and without options, which may be one.

    Raises: ConfigError, which does not quote the URL.
    """
    return _parse(url).set(query={}).render_as_string(hide_password=True)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigError("namespace.url", None, URLS) from None
    kind = parsed.get_backend_name()
    if kind == "sqlite" and parsed.database and parsed.database.startswith("/"):
        return parsed
    # An @ after the first one: what we take for host or database has a part of the password.
    if kind == "postgresql" and parsed.database and "@" not in f"{parsed.host}{parsed.database}":
        return parsed
    raise ConfigError("namespace.url", None, URLS)


def _backend(url: str) -> Backend:
    parsed = _parse(url)
    return Sqlite(parsed) if parsed.get_backend_name() == "sqlite" else Postgres(parsed)
