"""PostgreSQL: the namespace outlives the gateway's machine.

Write transactions take one advisory lock first, so that they run one after the other as on SQLite:
checks made by reading in a transaction hold until its commit. A lost connection is TryAgain, which
becomes NFS4ERR_DELAY; a COMMIT whose answer was lost is looked up by its transaction id, because a
client that repeated a rename which did happen would be told ENOENT.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psycopg
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import URL, Dialect

from gateway.errors import NamespaceError, NoSpace, TryAgain

WRITE_LOCK = 0x5350_5759
"""Of pg_advisory_xact_lock: one writer of the namespace at a time."""
CONNECT_TIMEOUT_SECONDS = 5
OUTCOME_DEADLINE_SECONDS = 30.0
OUTCOME_PAUSE_SECONDS = 0.2


class Postgres:
    """The backend of a server. Parameters: parsed, the URL."""

    broken = psycopg.OperationalError
    # The server's own limit is 100 by default, shared with the drain and with people.
    readers_max = 32

    def __init__(self, parsed: URL) -> None:
        self.url = parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        self._conninfo = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        self.dialect: Dialect = PGDialect_psycopg(paramstyle="pyformat")  # type: ignore[no-untyped-call]

    def connect(self, for_writing: bool) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._conninfo,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            # Dead servers are noticed, and an answer given means fsynced.
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            options="-c synchronous_commit=on -c client_min_messages=warning"
            " -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s",
        )

    def turn(self, first: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, connection: psycopg.Connection[Any]) -> object:
        connection.execute("BEGIN")
        row = connection.execute(
            "SELECT pg_current_xact_id()::text, pg_advisory_xact_lock(%s)", (WRITE_LOCK,)
        ).fetchone()
        assert row is not None
        return row[0]

    def committed(self, token: object) -> bool:
        """Asks until the server answers. An unknown id was lost in a failover: not committed."""
        deadline = time.monotonic() + OUTCOME_DEADLINE_SECONDS
        while time.monotonic() < deadline:
            try:
                with self.connect(False) as connection:
                    row = connection.execute(
                        "SELECT pg_xact_status(%s::text::xid8)", (token,)
                    ).fetchone()
                if row is not None and row[0] != "in progress":
                    return bool(row[0] == "committed")
            except psycopg.OperationalError:
                pass
            except psycopg.DataError:
                return False
            time.sleep(OUTCOME_PAUSE_SECONDS)
        return False

    def answer(self, exc: Exception) -> NamespaceError | None:
        if isinstance(exc, psycopg.errors.DiskFull):
            return NoSpace("the disk of the namespace database is full")
        return TryAgain(f"the namespace database does not answer: {str(exc).strip()}")

    def usable(self, connection: psycopg.Connection[Any]) -> bool:
        return not (connection.closed or connection.broken)

    def missing(self) -> str | None:
        try:
            self.connect(False).close()
        except psycopg.OperationalError as exc:
            return f"the database does not answer ({' '.join(str(exc).split())})"
        return None
