"""PostgreSQL backend, with which the namespace outlives the gateway's machine.

Write transactions take one advisory lock first, so that they run one after the other as on SQLite:
a check that reads in a transaction holds until its commit. Every connection is to a server that
accepts writes. A lost connection is TryAgain, which becomes NFS4ERR_DELAY. The fate of a COMMIT
without an answer is looked up: a client that repeats a rename that happened would get ENOENT. Until
it is known no change is made, and bytes of open files are served.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import URL, Dialect

from gateway.common.errors import NamespaceError, NoSpace, SchemaError, TryAgain
from gateway.db import fence
from gateway.db.url import Lineage, safe

log = logging.getLogger("spillway.db")

T = TypeVar("T")

WRITE_LOCK = 0x5350_5759
"""Key of pg_advisory_xact_lock. The lock admits one writer of the namespace at a time."""
CONNECT_TIMEOUT_SECONDS = 3
"""Time-out for each host of the URL."""
SILENCE_SECONDS = 10
"""After this time both sides give up a connection on which nothing arrives any more. Until then
PostgreSQL keeps the locks of a machine that is gone."""
ANSWER_SECONDS = 15.0
"""The longest wait of the NFS server for a statement. PostgreSQL's wait for a lock is shorter."""
PAUSE_MAX_SECONDS = 5.0
OUTCOME_PAUSES_SECONDS = (0.2, 2.0)
"""The first and the longest pause between two questions for the fate of a COMMIT."""
SAID_SECONDS = (5.0, 60.0)
"""The log says after the first of these times that a COMMIT is indeterminate, then after the
second."""

_KEEPALIVE = {
    "keepalives_idle": SILENCE_SECONDS // 2,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
_OPTIONS = " ".join(
    f"-c {option}"
    for option in (
        "synchronous_commit=on",  # a COMMIT that was answered is on stable storage
        "client_min_messages=warning",
        "lock_timeout=10s",
        # For a batch of 32, the planner would read a table of some 10,000 rows as a whole. It
        # estimates the remaining scans (of one row) as so costly that it would compile them.
        "enable_seqscan=off",
        "jit=off",
        "idle_in_transaction_session_timeout=60s",
        f"tcp_user_timeout={SILENCE_SECONDS}s",
        *(f"tcp_{name}={value}" for name, value in _KEEPALIVE.items()),
    )
)
_LINEAGE = (
    # A dump that is restored makes another table, in most cases in another database.
    "SELECT (SELECT oid FROM pg_database WHERE datname = current_database())"
    " || '/' || 'volume'::regclass::oid,"
    " ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int"
)
"""The second is the timeline: each failover and each restore of the cluster begins another one."""
_UNFINISHED = (
    "PostgreSQL has not finished a COMMIT, and all changes wait: start the synchronous standby "
    "that it waits for, or take it out of synchronous_standby_names; else look at its disk"
)
_READ_ONLY = (b"in_hot_standby", b"default_transaction_read_only")


class FailurePause:
    """A time after a failure of the database in which every caller fails at once. Without it, each
    caller would wait for a time-out of its own."""

    def __init__(self) -> None:
        self._until = 0.0

    def check(self) -> None:
        """Raise psycopg.OperationalError during a pause."""
        if time.monotonic() < self._until:
            raise psycopg.OperationalError("no answer a moment ago")

    def after(self, waited_seconds: float) -> None:
        """Begin a pause as long as the failed wait was. An immediate refusal causes no pause."""
        self._until = time.monotonic() + min(waited_seconds, PAUSE_MAX_SECONDS)


class _Connection(psycopg.Connection[Any]):
    """A connection that may have a time limit for answers."""

    limit_seconds: float | None = None
    pause: FailurePause | None = None

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        if self.limit_seconds is None:
            return super().wait(gen, *args, **options)
        return super().wait(self._limited(gen, self.limit_seconds), *args, **options)

    def _limited(self, gen: PQGen[T], seconds: float) -> PQGen[T]:
        until = time.monotonic() + seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until:
                    # A late answer would be taken for the answer of the next statement.
                    self.pgconn.finish()
                    if self.pause is not None:
                        self.pause.after(seconds)
                    raise psycopg.OperationalError(f"no answer within {seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


class Postgres:
    """The backend of a server.

    Args:
        parsed: the URL.
    """

    broken = (
        psycopg.OperationalError,
        psycopg.errors.ReadOnlySqlTransaction,
        # PostgreSQL ends the session of a process, or of a machine, that stood still in one. For
        # psycopg these are internal errors, which would end the process.
        psycopg.errors.IdleInTransactionSessionTimeout,
        psycopg.errors.TransactionTimeout,
    )
    errors = (psycopg.Error,)
    # The server's own limit is 100 by default. The drain and people share it.
    readers_max = 32

    def __init__(self, parsed: URL) -> None:
        self.url = parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        self._shown = safe(parsed)
        self.dialect: Dialect = PGDialect_psycopg(paramstyle="pyformat")  # type: ignore[no-untyped-call]
        _, self._where = self.dialect.create_connect_args(parsed)  # type: ignore[no-untyped-call]
        self._pause = FailurePause()
        self._fence: fence.Fence | None = None

    def connect(self, for_writing: bool) -> psycopg.Connection[Any]:
        self._pause.check()
        began = time.monotonic()
        try:
            connection = self._open()
        except psycopg.OperationalError:
            self._pause.after(time.monotonic() - began)
            raise
        if self._fence is not None:
            self._limit(connection)
            try:
                self._fence.prove(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _open(self) -> _Connection:
        return _Connection.connect(
            **{
                **self._where,
                # A standby answers with old rows, and C would believe them.
                "target_session_attrs": "read-write",
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                "tcp_user_timeout": SILENCE_SECONDS * 1000,
                **_KEEPALIVE,
                "options": _OPTIONS,
            },
            autocommit=True,
        )

    def turn(self, first: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        pass

    def _limit(self, connection: _Connection) -> None:
        connection.limit_seconds, connection.pause = ANSWER_SECONDS, self._pause

    def serve(self, connection: _Connection) -> None:
        if self._fence is None:
            self._fence = fence.Fence()
            self._limit(connection)
        self._fence.take(connection)

    def bind(self, boot: int, on_loss: Callable[[], object]) -> None:
        assert self._fence is not None
        self._fence.bind(boot, on_loss)

    def lineage(self, connection: psycopg.Connection[Any]) -> Lineage:
        row = connection.execute(_LINEAGE).fetchone()
        assert row is not None
        return Lineage(*row)

    def lock(self, connection: psycopg.Connection[Any]) -> None:
        fence.lock(connection, "spillway")

    def holder(self, connection: psycopg.Connection[Any]) -> fence.Holder | None:
        return fence.holder(connection)

    def begin(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("BEGIN")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (WRITE_LOCK,))

    def begin_serving(self, connection: psycopg.Connection[Any]) -> fence.BegunTransaction:
        assert self._fence is not None
        return self._fence.begin(connection, WRITE_LOCK)

    def wrote(self, begun: fence.BegunTransaction) -> None:
        assert self._fence is not None
        self._fence.wrote(begun)

    def committed(self, connection: psycopg.Connection[Any], begun: fence.BegunTransaction) -> bool:
        """Ask until the fate is known, as long as it takes. The caller's changes and all that come
        after them wait. Ends the process if another server has taken the namespace over."""
        # PostgreSQL may still have this connection: nothing more may happen on it.
        connection.close()
        began = time.monotonic()
        pause, longest = OUTCOME_PAUSES_SECONDS
        say_at, say_again = SAID_SECONDS
        while isinstance(fate := self._fate(begun), str):
            waited = time.monotonic() - began
            if waited >= say_at:
                log.warning("%s; it has taken %.0f s so far", fate, waited)
                say_at = waited + say_again
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return fate

    def _fate(self, begun: fence.BegunTransaction) -> bool | str:
        """Return whether a transaction was committed, or why that is not known."""
        assert self._fence is not None
        try:
            with self._open() as asking:
                self._limit(asking)
                fate = self._fence.fate(asking, begun)
        except self.broken as exc:
            return f"a change is indeterminate, and all changes wait: {self.answer(exc)}"
        return _UNFINISHED if fate is None else fate

    def answer(self, exc: Exception) -> NamespaceError | None:
        if isinstance(exc, psycopg.errors.DiskFull):
            return NoSpace("the disk of the namespace database is full")
        return TryAgain(f"the namespace database does not answer: {' '.join(str(exc).split())}")

    def usable(self, connection: psycopg.Connection[Any]) -> bool:
        if connection.closed or connection.broken:
            return False
        # PostgreSQL reports it to a session, without a query, when it becomes read-only.
        status = connection.pgconn.parameter_status
        return all(status(name) != b"on" for name in _READ_ONLY)

    def missing(self) -> str | None:
        try:
            self.connect(False).close()
        except psycopg.OperationalError as exc:
            raise SchemaError(
                f"database {self._shown} does not answer ({' '.join(str(exc).split())}): start its "
                "server or correct namespace.url"
            ) from None
        return None
