"""If the database stops answering on open connections, callers get an error in time."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from gateway.common.errors import TryAgain
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db import postgres as backend
from gateway.db.engine import Database
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.t2.failover import persist, settings_at
from tests.support.tcpproxy import TcpProxy
from tests.support.waiting import until

ROOT = 2
TOGETHER = 64
"""The calls that one round of the NFS server answers one after the other (fsal/native/call.c)."""


@pytest.mark.alone
def test_calls_of_one_round_do_not_wait_one_after_the_other(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "ANSWER_SECONDS", 1.0)
    with TcpProxy(postgres.port) as proxy:
        url = postgres.create_database().replace(str(postgres.port), str(proxy.port))
        namespace = Namespace(settings_at(url, tmp_path))
        namespace.create(ROOT_CRED, ROOT, b"a", SetAttr())
        assert namespace.lookup(ROOT, b"a")
        proxy.silence()
        waited: list[float] = []

        def look_up() -> None:
            for _ in range(TOGETHER):
                began = time.monotonic()
                with pytest.raises(TryAgain):
                    namespace.lookup(ROOT, b"a")
                waited.append(time.monotonic() - began)

        threading.Thread(target=look_up, daemon=True).start()
        until(lambda: len(waited) == TOGETHER, "all answers", 30.0)
        slow = [seconds for seconds in waited if seconds > 0.5]
        assert len(slow) <= 2, slow
        assert sum(waited) < 1.0 + backend.CONNECT_TIMEOUT_SECONDS + 3.0
        proxy.speak()
        assert persist(lambda: namespace.lookup(ROOT, b"a"))
        # The namespace's former session still has the lock of the NFS server. The namespace must
        # not take it for another server's.
        persist(lambda: namespace.rename(ROOT_CRED, ROOT, b"a", ROOT, b"b"))
        namespace.close()


@pytest.mark.alone
def test_a_host_that_never_answers_a_connect_costs_one_wait(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with TcpProxy(postgres.port) as proxy:
        url = postgres.create_database().replace(str(postgres.port), str(proxy.port))
        namespace = Namespace(settings_at(url, tmp_path))
        proxy.silence()
        proxy.cut()
        began = time.monotonic()
        for _ in range(TOGETHER):
            with pytest.raises(TryAgain):
                namespace.lookup(ROOT, b"a")
        assert time.monotonic() - began < 2 * backend.CONNECT_TIMEOUT_SECONDS
        proxy.speak()
        namespace.close()


def test_both_ends_notice_a_machine_that_is_gone(postgres: PostgresServer) -> None:
    database = Database(postgres.create_database())
    connection = database.connect()
    silence_ms = backend.SILENCE_SECONDS * 1000
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as ours:
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == silence_ms
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= backend.SILENCE_SECONDS
    for name in ("tcp_user_timeout", "tcp_keepalives_idle"):
        row = connection.execute(
            "SELECT setting::int FROM pg_settings WHERE name = %s", (name,)
        ).fetchone()
        assert 0 < row[0] <= silence_ms
    connection.close()
