"""Fences an NFS server on PostgreSQL: a namespace has one, and it believes no lost change.

The server holds an advisory lock for the life of the connection that it writes on. Each of its
write transactions updates the row of ``fence``, so that row says which transaction was its last
one: other processes write the rest of the namespace, also the volume row, but never this row.
After a crash or a failover of the database, the row tells a committed transaction from a lost one.
The transaction's number alone does not: a new primary uses it again. A server that lost the
namespace or an answered change ends its process before it writes or answers.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

import psycopg

from gateway.errors import AnotherServer

SERVER_LOCK = 0x5350_5753
"""Key of pg_advisory_lock. The lock admits one NFS server of the namespace at a time."""
WAIT_SECONDS = 3.0
"""A server that died a moment ago still has a session until PostgreSQL notices."""
PAUSE_SECONDS = 0.1
NAME = "spillway-nfs"
HOST_CHARACTERS_MAX = 32
"""PostgreSQL cuts application_name after 63 bytes."""

_HISTORY = "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
"""The timeline. Each failover and each restore begins another one. The query fails on a standby."""
_HOLDER = (
    "SELECT a.pid, a.application_name, a.backend_start"
    " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = %s"
    " AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Holder(NamedTuple):
    """A session that has the namespace."""

    session: int
    """Process id of the session in PostgreSQL."""
    name: str
    since: datetime | None

    def __str__(self) -> str:
        parts = self.name.split()
        who = f"process {parts[2]} on host {parts[1]}" if self.is_server else "another program"
        return f"{who}, since {self.since:%Y-%m-%d %H:%M:%S %Z}" if self.since else who

    @property
    def is_server(self) -> bool:
        return len(parts := self.name.split()) == 4 and parts[0] == NAME

    @property
    def is_elsewhere(self) -> bool:
        """Whether the session's program is known to run on another machine."""
        return self.is_server and self.name.split()[1] != _host()


class Begun(NamedTuple):
    """A write transaction of the server."""

    xid: str

    @property
    def xmin(self) -> str:
        """The number of the transaction in ``xmin`` of a row that it wrote."""
        return str(int(self.xid) % 2**32)


def end_process(why: str) -> NoReturn:
    """End this process at once, after one line on stderr. Its supervisor starts it again.

    An exception would not do: other threads would continue, and answer from what they believe.
    """
    # The process must end also when nothing reads the line any more.
    with suppress(OSError, ValueError):
        print(f"spillway: the NFS server ends itself: {why}", file=sys.stderr, flush=True)
    while True:
        os.kill(os.getpid(), signal.SIGKILL)


def holder(connection: psycopg.Connection[Any]) -> Holder | None:
    """Return the session that has the namespace, or None if there is none that we may see."""
    row = connection.execute(_HOLDER, (SERVER_LOCK,)).fetchone()
    return None if row is None else Holder(row[0], row[1] or "", row[2])


def lock(connection: psycopg.Connection[Any], name: str) -> None:
    """Take the namespace for the life of a connection. Raises AnotherServer."""
    until = time.monotonic() + WAIT_SECONDS
    connection.execute("SELECT set_config('application_name', %s, false)", (name,))
    while not _try_lock(connection):
        if time.monotonic() > until:
            raise AnotherServer(
                f"another NFS server has this namespace ({holder(connection) or 'unknown'}): stop "
                "it first; if its machine is gone, try again in 15 seconds"
            )
        time.sleep(PAUSE_SECONDS)


def _try_lock(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (SERVER_LOCK,)).fetchone()
    return row is not None and bool(row[0])


def _host() -> str:
    name = "".join(socket.gethostname().split()).encode("ascii", "replace").decode()
    return name[:HOST_CHARACTERS_MAX] or "?"


class Fence:
    """The guard of a process that became the namespace's NFS server."""

    def __init__(self) -> None:
        self._name = f"{NAME} {_host()} {os.getpid()} {secrets.token_hex(3)}"
        self._history = ""
        self._boot: int | None = None
        self._last: str | None = None
        """The last committed transaction, by the number that rows have in ``xmin``."""

    def bind(self, boot: int) -> None:
        """Require this count of starts in every write transaction from now on."""
        self._boot = boot

    def take(self, connection: psycopg.Connection[Any]) -> None:
        """Take the namespace for the life of a connection. Raises AnotherServer at a start.

        Ends the process if another server has taken the namespace since, or if an answered change
        is lost.
        """
        if not self._history:
            lock(connection, self._name)
            self._history = _history(connection)
            return
        found = holder(connection)
        if found is not None and found.name == self._name:
            # This is our own former session, whose end PostgreSQL has not noticed.
            connection.execute("SELECT pg_terminate_backend(%s)", (found.session,))
        try:
            lock(connection, self._name)
        except AnotherServer:
            found = holder(connection)
            if found is not None and found.name != self._name:
                end_process(f"another one has taken the namespace over ({found})")
            raise psycopg.OperationalError("our former session still has the namespace") from None
        self.prove(connection)

    def prove(self, connection: psycopg.Connection[Any]) -> None:
        """End the process unless a new connection sees every change that was answered."""
        if not self._history or (found := _history(connection)) == self._history:
            return
        _boot, last = _last(connection)
        if self._last is not None and last != self._last:
            end_process(
                "the namespace database was failed over or restored, and lacks changes that were "
                "answered, or may lack them"
            )
        self._history = found

    def begin(self, connection: psycopg.Connection[Any], write_lock: int) -> Begun:
        """Begin a write transaction of the server, in one round trip."""
        cursor = connection.execute(
            f"BEGIN; SELECT pg_advisory_xact_lock({write_lock});"
            # The lock is held from here on: what is read now holds until the commit.
            " UPDATE fence SET id = id"
            " RETURNING (SELECT boot FROM volume), pg_current_xact_id()::text",
            prepare=False,
        )
        cursor.nextset()
        cursor.nextset()
        row = cursor.fetchone()
        assert row is not None, "the row of the fence is missing"
        boot, xid = row
        if self._boot is not None and boot != self._boot:
            end_process(
                f"this is start {self._boot} and the namespace counts {boot}: another one has "
                "taken it over"
            )
        return Begun(xid)

    def wrote(self, begun: Begun) -> None:
        """Note that a transaction was committed."""
        self._last = begun.xmin

    def fate(self, connection: psycopg.Connection[Any], begun: Begun) -> bool | None:
        """Return whether a transaction was committed, or None while that is not known."""
        status = _status(connection, begun)
        if status == "in progress":
            return None
        boot, last = _last(connection)
        if last == begun.xmin and boot == (self._boot or boot):
            return True
        # The number may belong to another transaction by now: it proves a loss, not a commit.
        return None if status is None or status == "committed" else False


def _status(connection: psycopg.Connection[Any], begun: Begun) -> str | None:
    try:
        row = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (begun.xid,)).fetchone()
    except psycopg.DataError:
        return "aborted"  # the number was never given: the transaction is lost with its changes
    return None if row is None else row[0]


def _history(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute(f"SELECT {_HISTORY}").fetchone()
    assert row is not None
    return str(row[0])


def _last(connection: psycopg.Connection[Any]) -> tuple[int, str]:
    """Return the count of starts, and the last transaction of a server."""
    row = connection.execute("SELECT boot, fence.xmin::text FROM volume, fence").fetchone()
    assert row is not None, "the row of the volume or of the fence is missing"
    return row[0], row[1]
