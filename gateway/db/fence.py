"""Fence of the NFS server on PostgreSQL: a namespace has one server, which misses no lost change.

The server holds an advisory lock for the life of the connection that it writes on. Each of its
write transactions adds 1 to the number in the row of ``fence``: other processes write the rest of
the namespace, also the volume row, but never this row. After a crash or a failover of the database,
the number tells a committed transaction from a lost one. PostgreSQL's own number of a transaction
does not: a new primary uses it again. A server that lost the namespace or an answered change ends
its process before it writes or answers.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn

import psycopg

from gateway.common.errors import AnotherServer
from gateway.common.process import here, start_ticks

log = logging.getLogger("spillway.fence")

SERVER_LOCK = 0x5350_5753
"""Key of pg_advisory_lock. The lock admits one NFS server of the namespace at a time."""
WAIT_SECONDS = 3.0
"""A server that died a moment ago still has a session until PostgreSQL notices."""
PAUSE_SECONDS = 0.1
NAME = "spillway-nfs"
HOST_CHARACTERS_MAX = 20
"""PostgreSQL cuts application_name after 63 bytes."""
MACHINE_CHARACTERS = 6

_fences = itertools.count()
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

    @property
    def is_dead(self) -> bool:
        """Whether the session's program ran in this start of this machine, and has ended."""
        if not self.is_server:
            return False
        _name, _host, pid, process = self.name.split()
        if process[:MACHINE_CHARACTERS] != _machine():
            return False
        return process[MACHINE_CHARACTERS:].partition(".")[0] != _start_of(pid)


class BegunTransaction(NamedTuple):
    """A write transaction of the server."""

    xid: str
    """Its number in PostgreSQL, which may be used again after a failover."""
    number: int
    """Its number in ``fence``."""


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
        former_holder = holder(connection)
        if former_holder is not None and former_holder.is_dead:
            # A session that waits for a synchronous standby outlives its program.
            _end_session(connection, former_holder)
        if time.monotonic() > until:
            raise AnotherServer(
                f"another NFS server has this namespace ({former_holder or 'unknown'}): stop it "
                "first; if its machine is gone, try again in 15 seconds; if PostgreSQL waits for a "
                "synchronous standby, start that standby or take it out of "
                "synchronous_standby_names"
            )
        time.sleep(PAUSE_SECONDS)


def _end_session(connection: psycopg.Connection[Any], former_holder: Holder) -> None:
    # A session of another role may not be ended: the refusal of the lock names it.
    with suppress(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT pg_terminate_backend(%s)", (former_holder.session,))


def _try_lock(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (SERVER_LOCK,)).fetchone()
    return row is not None and bool(row[0])


def _host() -> str:
    name = "".join(socket.gethostname().split()).encode("ascii", "replace").decode()
    return name[:HOST_CHARACTERS_MAX] or "?"


@cache
def _machine() -> str:
    """Return a short form of ``here``: hosts may share a name."""
    return sha256(here().encode()).hexdigest()[:MACHINE_CHARACTERS]


def _start_of(pid: str) -> str:
    """Return when a process started, as the name of its session has it, or "" if it ended."""
    ticks = start_ticks(int(pid)) if pid.isdigit() else None
    return "" if ticks is None else f"{ticks:x}"


class Fence:
    """The guard of a process that became the namespace's NFS server."""

    def __init__(self) -> None:
        process = f"{_machine()}{_start_of(str(os.getpid()))}.{next(_fences)}"
        self._name = f"{NAME} {_host()} {os.getpid()} {process}"
        self._is_taken = False
        self._boot: int | None = None
        self._answered = 0
        """The number of the last transaction whose COMMIT was answered."""
        self._on_loss: Callable[[], object] = lambda: None

    def bind(self, boot: int, on_loss: Callable[[], object]) -> None:
        """Require this count of starts in every write transaction from now on.

        Args:
            on_loss: called before the process ends because an answered change is lost.
        """
        self._boot = boot
        self._on_loss = on_loss

    def take(self, connection: psycopg.Connection[Any]) -> None:
        """Take the namespace for the life of a connection. Raises AnotherServer at a start.

        Ends the process if another server has taken the namespace since, or if an answered change
        is lost.
        """
        if not self._is_taken:
            lock(connection, self._name)
            _boot, self._answered = _row(connection)
            self._is_taken = True
            return
        former_holder = holder(connection)
        if former_holder is not None and former_holder.name == self._name:
            # This is our own former session, whose end PostgreSQL has not noticed.
            _end_session(connection, former_holder)
        try:
            lock(connection, self._name)
        except AnotherServer:
            former_holder = holder(connection)
            if former_holder is not None and former_holder.name != self._name:
                end_process(f"another one has taken the namespace over ({former_holder})")
            raise psycopg.OperationalError("our former session still has the namespace") from None
        self.prove(connection)

    def prove(self, connection: psycopg.Connection[Any]) -> None:
        """End the process unless a new connection sees every change that was answered.

        The timeline does not tell: a database that was put back to an earlier moment may keep it.
        """
        if not self._is_taken:
            return
        # A transaction that is answered after this line may be in the row or not.
        answered = self._answered
        boot, number = _row(connection)
        self._require_start(boot)
        if number < answered:
            self._end_of_a_loss()

    def begin(self, connection: psycopg.Connection[Any], write_lock: int) -> BegunTransaction:
        """Begin a write transaction of the server, in one round trip."""
        cursor = connection.execute(
            f"BEGIN; SELECT pg_advisory_xact_lock({write_lock});"
            # The lock is held from here on: what is read now holds until the commit.
            " UPDATE fence SET number = number + 1"
            " RETURNING (SELECT boot FROM volume), pg_current_xact_id()::text, number",
            prepare=False,
        )
        cursor.nextset()
        cursor.nextset()
        row = cursor.fetchone()
        assert row is not None, "the row of the fence is missing"
        boot, xid, number = row
        self._require_start(boot)
        if number <= self._answered:
            # The database was put back under this connection.
            self._end_of_a_loss()
        return BegunTransaction(xid, number)

    def wrote(self, begun: BegunTransaction) -> None:
        """Note that a transaction was committed."""
        self._answered = begun.number

    def fate(self, connection: psycopg.Connection[Any], begun: BegunTransaction) -> bool | None:
        """Return whether a transaction was committed, or None while it is in progress."""
        if _status(connection, begun) == "in progress":
            return None
        # The state is not believed further: PostgreSQL's number may be another transaction's.
        boot, number = _row(connection)
        self._require_start(boot)
        return number >= begun.number

    def _require_start(self, boot: int) -> None:
        """End the process if the namespace counts another start than this one."""
        if self._boot is None or boot == self._boot:
            return
        if boot < self._boot:
            self._end_of_a_loss()
        end_process(
            f"this is start {self._boot} and the namespace counts {boot}: another one has taken "
            "it over"
        )

    def _end_of_a_loss(self) -> NoReturn:
        try:
            self._on_loss()
        except Exception:
            # The process must end all the same. The next start compares the databases.
            log.exception("cannot note that the namespace database lacks changes")
        end_process(
            "the namespace database was failed over or restored, and lacks changes that were "
            "answered"
        )


def _status(connection: psycopg.Connection[Any], begun: BegunTransaction) -> str | None:
    try:
        row = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (begun.xid,)).fetchone()
    except psycopg.DataError:
        return "aborted"  # the number was never given: the transaction is lost with its changes
    return None if row is None else row[0]


def _row(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """Return the count of starts, and the number of the last transaction of a server."""
    row = connection.execute("SELECT boot, number FROM volume, fence").fetchone()
    assert row is not None, "the row of the volume or of the fence is missing"
    return row[0], row[1]
