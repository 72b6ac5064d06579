"""After a COMMIT whose answer was lost, callers are answered only when its outcome is known."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db.fence import BegunTransaction, Fence
from gateway.db.postgres import WRITE_LOCK
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.t2 import fate as shared
from tests.support.t2.failover import settings_at
from tests.support.t2.fate import promote
from tests.support.t2.serverprocess import ServerProcess
from tests.support.tcpproxy import TcpProxy
from tests.support.volumes import make_settings
from tests.support.waiting import until

connection = shared.connection

ROOT = 2


def through(proxy: TcpProxy, url: str, port: int) -> str:
    return url.replace(f":{port}/", f":{proxy.port}/")


def test_an_indeterminate_change_waits_until_its_fate_is_known(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with TcpProxy(postgres.port) as proxy:
        url = postgres.create_database()
        settings = settings_at(through(proxy, url, postgres.port), tmp_path)
        with ServerProcess(settings, SAID_SECONDS=(0.5, 0.5)) as server:
            assert server.ask("create", "a") == "ok"
            proxy.cut_after(b"COMMIT", then_refuse=True)
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(server.ask, "rename", "a", "b")
                for _ in range(3):
                    assert "a change is indeterminate, and all changes wait" in server.line()
                assert not answer.done()
                proxy.refusing = False
                # The rename was committed. A client that repeats it would get ENOENT.
                assert answer.result() == "ok"
            assert server.ask("lookup", "b") == "ok"


def test_what_a_standby_says_of_a_commit_does_not_count(tmp_path: Path) -> None:
    with (
        PostgresServer(tmp_path / "primary") as primary,
        PostgresServer(tmp_path / "standby", primary.port) as standby,
        TcpProxy(primary.port) as address,
    ):
        url = primary.create_database()
        settings = settings_at(through(address, url, primary.port), tmp_path)
        namespace = Namespace(settings)
        namespace.create(ROOT_CRED, ROOT, b"a", SetAttr())
        standby.ask("SELECT pg_wal_replay_pause()")
        accepted = address.accepted
        address.cut_after(b"COMMIT", then_port=standby.port)
        errors: list[BaseException] = []

        def rename() -> None:
            try:
                namespace.rename(ROOT_CRED, ROOT, b"a", ROOT, b"b")
            except BaseException as exc:
                errors.append(exc)

        thread = threading.Thread(target=rename)
        thread.start()
        until(lambda: errors or address.accepted >= accepted + 2, "questions to the standby")
        address.upstream_port = primary.port
        thread.join(30)
        assert errors == []
        assert namespace.lookup(ROOT, b"b")
        namespace.close()


def test_a_transaction_is_known_by_what_it_wrote(connection: psycopg.Connection) -> None:
    fence = Fence()
    fence.take(connection)
    with psycopg.connect(connection.info.dsn, autocommit=True) as asking:
        kept = fence.begin(connection, WRITE_LOCK)
        assert fence.fate(asking, kept) is None, "it is under way"
        connection.execute("COMMIT")
        assert fence.fate(asking, kept) is True
        fence.wrote(kept)
        undone = fence.begin(connection, WRITE_LOCK)
        connection.execute("ROLLBACK")
        assert fence.fate(asking, undone) is False
        never = BegunTransaction(str(int(undone.xid) + 1_000_000), undone.number)
        assert fence.fate(asking, never) is False
    connection.close()


def test_a_promotion_after_a_commit_does_not_hide_it(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with TcpProxy(postgres.port) as proxy:
        direct = settings_at(postgres.create_database(), tmp_path)
        url = through(proxy, direct.database_url, postgres.port)
        settings = make_settings(direct.data_dir, {"namespace": {"url": url}})
        with ServerProcess(settings) as server:
            assert server.ask("create", "a") == "ok"
            proxy.cut_after(b"COMMIT", then_refuse=True)
            answers: list[str] = []
            rename = threading.Thread(target=lambda: answers.append(server.ask("rename", "a", "b")))
            rename.start()
            until(lambda: proxy.cuts, "the connection is lost after the COMMIT")
            promote(direct)
            proxy.refusing = False
            rename.join(30)
            assert answers == ["ok"]
            assert server.ask("lookup", "b") == "ok"


def test_a_number_that_another_transaction_has_proves_nothing(
    connection: psycopg.Connection,
) -> None:
    """After a crash or a failover, PostgreSQL uses numbers of lost transactions again."""
    connection.execute("BEGIN")
    row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
    connection.execute("COMMIT")
    assert row is not None
    fence = Fence()
    fence.take(connection)
    begun = fence.begin(connection, WRITE_LOCK)
    connection.execute("ROLLBACK")
    assert fence.fate(connection, begun._replace(xid=row[0])) is False
    connection.close()


def test_a_commit_before_another_start_is_not_this_servers(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    def end(why: str) -> None:
        ended.append(why)
        raise SystemExit

    monkeypatch.setattr("gateway.db.fence.end_process", end)
    fence = Fence()
    fence.take(connection)
    begun = fence.begin(connection, WRITE_LOCK)
    connection.execute("UPDATE volume SET boot = 8")
    connection.execute("COMMIT")
    fence.bind(7, lambda: None)
    with pytest.raises(SystemExit):
        fence.fate(connection, begun)
    assert "another one has taken it over" in ended[0]
    connection.close()
