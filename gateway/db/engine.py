"""Database of a namespace: opens it by its backend, and hands out DBAPI connections.

Only a backend (``sqlite.py``, ``postgres.py``) knows which engine it is. It has every difference:
how to connect, how a write transaction begins, which errors end a transaction, and which error a
client gets then.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import sqlalchemy
from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Dialect, Engine
from sqlalchemy.pool import NullPool

from gateway.common.errors import NamespaceError
from gateway.db.compiled import Session
from gateway.db.sqlite import Sqlite
from gateway.db.url import Lineage, parse, safe

if TYPE_CHECKING:
    from gateway.db.fence import Holder

_BEGIN_READING = {
    "sqlite": "BEGIN",
    "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
}
Connection = Any
"""A DBAPI connection in autocommit mode: sqlite3.Connection or psycopg.Connection."""


class Backend(Protocol):
    """One database engine."""

    dialect: Dialect
    url: str
    """The URL for SQLAlchemy, with the name of the driver."""
    readers_max: int
    """The number of reading connections that may be open at once. More readers wait."""

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """The errors that end the transaction or the connection, not only one statement."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """All errors of the driver."""

    def connect(self, for_writing: bool) -> Connection:
        """Return a connection in autocommit mode. Raises ``broken``."""

    def turn(self, first: bool) -> AbstractContextManager[None]:
        """Take the turn to write among all processes. Every write transaction is inside a turn.

        Raises TryAgain when the turn does not come, ``broken``.

        Args:
            first: whether to go before the writers without it: for the NFS server, whose clients
                wait.
        """

    def close(self) -> None:
        """Close what is kept from one turn for the next. The backend can still be used."""

    def begin(self, connection: Connection) -> object:
        """Begin a write transaction that excludes all others."""

    def lock(self, connection: Connection) -> None:
        """Keep NFS servers from the namespace for the life of a connection. Raises AnotherServer,
        ``broken``."""

    def holder(self, connection: Connection) -> Holder | None:
        """Return the session that keeps NFS servers from the namespace, or None."""

    def serve(self, connection: Connection) -> None:
        """Make this process the namespace's NFS server, or keep it so with a new connection.

        Raises AnotherServer, ``broken``.

        Args:
            connection: on which the server will write.
        """

    def bind(self, boot: int, on_loss: Callable[[], object]) -> None:
        """End the process instead of a write, from now on, if the count of starts differs.

        Args:
            on_loss: called before the process ends because answered changes are lost.
        """

    def lineage(self, connection: Connection) -> Lineage:
        """Return where the database comes from. Raises ``broken``, OSError."""

    def begin_serving(self, connection: Connection) -> Any:
        """Begin a write transaction of the NFS server. Returns a token of the transaction."""

    def wrote(self, token: Any) -> None:
        """Note that the COMMIT of a transaction was answered."""

    def committed(self, connection: Connection, token: Any) -> bool:
        """Return whether a transaction whose COMMIT failed was committed nevertheless.

        No caller is answered before this is known, however long it takes.
        """

    def answer(self, exc: Exception) -> NamespaceError | None:
        """Return a client's error for one of ``broken``, or None if a retry would not help."""

    def usable(self, connection: Connection) -> bool:
        """Return whether a connection can still be used after an error."""

    def missing(self) -> str | None:
        """Return why there is no database at all, and the first remedy, or None when there is one.
        Raises SchemaError when its server does not answer."""


class Database:
    """The database of one namespace.

    Args:
        url: sqlite:///<path> or postgresql://….

    Raises:
        ConfigError: the engine is unknown.
    """

    def __init__(self, url: str) -> None:
        parsed = parse(url)
        self.url = safe(parsed)
        self.backend = _backend(parsed)
        self.dialect = self.backend.dialect
        self._readers: deque[Connection] = deque()
        # Since Python 3.13 a connection that is collected open is warned of. At the exit of a
        # process they stay open: a child that was forked must not close its parent's.
        weakref.finalize(self, _close_each, self._readers).atexit = False
        self._slots = threading.BoundedSemaphore(self.backend.readers_max)

    def connect(self, *, for_writing: bool = False) -> Connection:
        """Return a connection in autocommit mode. The caller begins and commits.

        Raises TryAgain while the server cannot be reached.
        """
        try:
            return self.backend.connect(for_writing)
        except self.backend.broken as exc:
            raise self.backend.answer(exc) or exc from exc

    def serve(self) -> Connection:
        """Return the connection that the NFS server writes on. It excludes all other servers.

        Raises AnotherServer, or TryAgain while the database cannot be reached. Ends the process if
        another NFS server has taken the namespace over, or if an answered change is lost.
        """
        # The pooled connections may lead to a database server that is not the primary any more.
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
        """Keep every NFS server, on any machine, from the namespace meanwhile.

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
        """Return the session that keeps other NFS servers away, or None. Raises TryAgain."""
        with self.reader() as connection:
            return self.backend.holder(connection)

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """Lend a pooled connection for reads. The pool keeps as many as were used at once.

        Raises TryAgain when the connection was lost. The next call makes a new one.
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
                    # The others are lost too: each would make a reader wait for its own failure.
                    connection.close()
                    self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Lend a pooled connection in a read transaction: all its reads see one moment.

        Raises TryAgain.
        """
        with self.reader() as connection:
            connection.execute(_BEGIN_READING[self.dialect.name])
            try:
                yield connection
            finally:
                if self.backend.usable(connection):
                    connection.execute("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a read transaction: all its reads see one moment. Raises TryAgain."""
        with self.snapshot() as connection:
            yield Session(connection, self.dialect)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a write transaction. It is durable on return. Raises TryAgain."""
        with self.reader() as connection, self.transaction(connection):
            yield Session(connection, self.dialect)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """Run a write transaction. It excludes other writers, and commits durably or rolls back.

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
        # After some errors SQLite has rolled back by itself. It refuses a second ROLLBACK.
        if getattr(connection, "in_transaction", True):
            connection.execute("ROLLBACK")

    @property
    def path(self) -> Path | None:
        """The file of the database, or None when the database is a server."""
        return self.backend.path if isinstance(self.backend, Sqlite) else None

    def engine(self) -> Engine:
        """Return a SQLAlchemy engine for migrations and for queries off the hot path."""
        engine = create_engine(
            self.backend.url, poolclass=NullPool, creator=lambda: self.backend.connect(False)
        )

        @event.listens_for(engine, "begin")
        def begin(connection: sqlalchemy.Connection) -> None:
            # The drivers are in autocommit mode: without BEGIN, DDL would not be in a transaction.
            connection.exec_driver_sql("BEGIN")

        return engine

    def close(self) -> None:
        """Close the pooled connections, and what the backend keeps."""
        _close_each(self._readers)
        self.backend.close()


def _close_each(connections: deque[Connection]) -> None:
    """Close the connections and take them out."""
    with suppress(IndexError):
        while True:
            connections.pop().close()


def _backend(parsed: URL) -> Backend:
    if parsed.get_backend_name() == "sqlite":
        return Sqlite(parsed)
    # The driver of PostgreSQL is a fifth of the time that a command takes to start.
    from gateway.db.postgres import Postgres

    return Postgres(parsed)
