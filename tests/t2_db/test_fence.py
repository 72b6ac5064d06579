"""A namespace on PostgreSQL has one NFS server. A second one is refused, a replaced one ends."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from gateway.common.errors import AnotherServer
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.t2.failover import settings_at
from tests.support.t2.serverprocess import ServerProcess
from tests.support.tcpproxy import TcpProxy
from tests.support.volumes import query

ROOT = 2

MANY = 40
"""A number of changes after which psycopg has prepared its statements."""


def names(settings: Settings) -> list[bytes]:
    return [
        bytes(name)
        for (name,) in query(
            settings, "SELECT name FROM dirent WHERE parent = 2 AND ino >= 16 ORDER BY name"
        )
    ]


@pytest.fixture
def settings(postgres: PostgresServer, tmp_path: Path) -> Settings:
    return settings_at(postgres.create_database(), tmp_path)


def test_a_second_server_is_refused_with_the_name_of_the_first(settings: Settings) -> None:
    first = Namespace(settings)
    attr = first.create(ROOT_CRED, ROOT, b"open", SetAttr())
    first.files.path(attr.ino, attr.epoch).write_bytes(b"12345")
    with pytest.raises(AnotherServer) as refused:
        Namespace(settings)
    assert f"process {os.getpid()} on host {socket.gethostname()[:20]}" in str(refused.value)
    assert "stop it first" in str(refused.value)
    # The second server did not seal the first one's open file, and did not count a start.
    assert query(settings, "SELECT write_open FROM inode WHERE kind = 1") == [(1,)]
    assert query(settings, "SELECT boot FROM volume") == [(1,)]
    for count in range(MANY):
        first.create(ROOT_CRED, ROOT, b"f%d" % count, SetAttr())
    first.close()
    second = Namespace(settings)
    assert second.boot.boot == 2
    second.close()


def assert_ended(server: ServerProcess, why: str) -> None:
    status, said = server.ended()
    assert status == -signal.SIGKILL
    assert said.startswith("spillway: the NFS server ends itself: ")
    assert why in said
    assert said.count("\n") == 1


def successor_runs(settings: Settings) -> Callable[[], None]:
    return Namespace(settings).close


def successor_ran(settings: Settings) -> Callable[[], None]:
    Namespace(settings).close()
    return lambda: None


@pytest.mark.parametrize("successor", [successor_runs, successor_ran])
def test_a_server_that_was_replaced_ends_before_it_writes(
    postgres: PostgresServer,
    settings: Settings,
    tmp_path: Path,
    successor: Callable[[Settings], Callable[[], None]],
) -> None:
    with TcpProxy(postgres.port) as proxy:
        url = settings.database_url.replace(str(postgres.port), str(proxy.port))
        with ServerProcess(settings_at(url, tmp_path)) as server:
            assert server.ask("create", "a") == "ok"
            proxy.refusing = True
            proxy.cut()
            assert server.ask("create", "b") == "TryAgain"
            end = successor(settings)
            proxy.refusing = False
            assert server.persist("create", "b") == ""
            assert_ended(server, "taken")
            end()
    assert names(settings) == [b"a"]


def test_each_write_looks_for_the_count_of_starts(settings: Settings) -> None:
    with ServerProcess(settings) as server:
        assert server.ask("create", "a") == "ok"
        query(settings, "UPDATE volume SET boot = boot + 1")
        assert server.ask("create", "b") == ""
        assert_ended(server, "the namespace counts 2")
    assert names(settings) == [b"a"]


def test_a_server_ends_though_nobody_reads_its_line(settings: Settings) -> None:
    with ServerProcess(settings) as server:
        assert server.process.stderr is not None
        server.process.stderr.close()
        query(settings, "UPDATE volume SET boot = boot + 1")
        assert server.ask("create", "b") == ""
        assert server.process.wait(30) == -signal.SIGKILL
    assert names(settings) == []


def test_a_server_whose_connection_is_lost_goes_on(
    postgres: PostgresServer, settings: Settings, tmp_path: Path
) -> None:
    with TcpProxy(postgres.port) as proxy:
        url = settings.database_url.replace(str(postgres.port), str(proxy.port))
        with ServerProcess(settings_at(url, tmp_path)) as server:
            for count, unheard in enumerate((False, True, False, True)):
                # If PostgreSQL does not notice the loss, the former session keeps the lock.
                proxy.cut(unheard=unheard)
                assert server.persist("create", f"f{count}") == "ok"
    assert len(names(settings)) == 4


def test_maintenance_and_servers_exclude_each_other(settings: Settings) -> None:
    database = Database(settings.database_url)
    with database.alone(), pytest.raises(AnotherServer, match="another program"):
        Namespace(settings)
    namespace = Namespace(settings)
    with pytest.raises(AnotherServer), database.alone():
        raise AssertionError("not reached")
    holder = database.holder()
    assert holder is not None
    assert holder.is_server
    assert not holder.is_elsewhere
    namespace.close()
    database.close()


def test_a_server_elsewhere_is_told_from_one_here(settings: Settings) -> None:
    database = Database(settings.database_url)
    with psycopg.connect(settings.database_url, autocommit=True) as other:
        for name, is_elsewhere in (
            ("spillway-nfs otherhost 7 abcdef", True),
            (f"spillway-nfs {socket.gethostname()} 7 abcdef", False),
            ("psql", False),
        ):
            other.execute("SELECT set_config('application_name', %s, false)", (name,))
            other.execute("SELECT pg_advisory_lock(x'53505753'::int)")
            holder = database.holder()
            assert holder is not None
            assert holder.is_elsewhere is is_elsewhere
    database.close()
