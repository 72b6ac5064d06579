"""When PostgreSQL goes away, callers get TryAgain, and no change is half done."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from gateway.common.errors import SchemaError, TryAgain
from gateway.common.types import ROOT_CRED, SetAttr
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.t2.failover import clean, persist, settings_at
from tests.support.tcpproxy import TcpProxy
from tests.support.volumes import make_settings
from tests.support.waiting import until

ROOT = 2


def progressed(turns: list[int], errors: list[BaseException], goal: int) -> bool:
    return bool(errors) or sum(turns) >= goal


def test_a_commit_whose_answer_is_lost_is_looked_up(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with TcpProxy(postgres.port) as proxy:
        url = postgres.create_database().replace(str(postgres.port), str(proxy.port))
        settings = settings_at(url, tmp_path)
        namespace = Namespace(settings)
        namespace.create(ROOT_CRED, ROOT, b"a", SetAttr())
        for old, new in ((b"a", b"b"), (b"b", b"c")):
            proxy.cut_after(b"COMMIT")
            # The rename was committed. After TryAgain, the client's next try would get ENOENT.
            namespace.rename(ROOT_CRED, ROOT, old, ROOT, new)
            assert namespace.lookup(ROOT, new)
        assert proxy.cuts == 2
        namespace.close()


def test_a_connection_lost_before_the_commit_changes_nothing(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with TcpProxy(postgres.port) as proxy:
        url = postgres.create_database().replace(str(postgres.port), str(proxy.port))
        settings = settings_at(url, tmp_path)
        namespace = Namespace(settings)
        namespace.create(ROOT_CRED, ROOT, b"a", SetAttr())
        for statement in (b"UPDATE inode", b"pg_advisory_xact_lock", b"UPDATE dirent"):
            proxy.cut_after(statement)
            with pytest.raises(TryAgain):
                namespace.rename(ROOT_CRED, ROOT, b"a", ROOT, b"b")
            assert namespace.lookup(ROOT, b"a")
        namespace.rename(ROOT_CRED, ROOT, b"a", ROOT, b"b")
        assert proxy.cuts == 3
        namespace.close()


def test_a_killed_server_is_a_pause(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "postgres") as server:
        settings = settings_at(server.create_database(), tmp_path)
        namespace = Namespace(settings)
        stop = threading.Event()
        turns = [0] * 4
        errors: list[BaseException] = []

        def client(number: int) -> None:
            a, b = b"a%d" % number, b"b%d" % number
            try:
                persist(partial(namespace.create, ROOT_CRED, ROOT, a, SetAttr()))
                while not stop.is_set():
                    persist(partial(namespace.rename, ROOT_CRED, ROOT, a, ROOT, b))
                    persist(partial(namespace.lookup, ROOT, b))
                    a, b = b, a
                    turns[number] += 1
            except BaseException as exc:
                # With any error the test must fail and not hang.
                errors.append(exc)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            goal = sum(turns) + 40
            until(partial(progressed, turns, errors, goal), "progress of the clients", 60.0)
            server.kill()
            server.start()
        stop.set()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert len(persist(lambda: namespace.readdir(ROOT, 0, 100))) == 4
        namespace.close()
        assert clean(settings)


def test_without_a_server_the_start_says_so(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path, {"namespace": {"url": "postgresql://postgres:secret@127.0.0.1:1/none"}}
    )
    with pytest.raises(SchemaError, match="does not answer") as info:
        Namespace(settings)
    assert "secret" not in str(info.value)
