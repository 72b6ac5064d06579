"""Nothing is read from a standby, and a failover that loses a change is noticed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from gateway.common.errors import Busy, TryAgain
from gateway.common.types import ROOT_CRED, Residency, SetAttr
from gateway.db.engine import Database
from gateway.db.url import with_hosts
from gateway.namespace import content
from gateway.namespace.data_files import DataFiles
from tests.support.namespace import Namespace
from tests.support.objects import record_object
from tests.support.postgres import PostgresServer
from tests.support.t2.failover import clean, persist, settings_at
from tests.support.t2.fate import promote
from tests.support.t2.serverprocess import ServerProcess
from tests.support.tcpproxy import TcpProxy
from tests.support.volumes import query
from tests.support.waiting import until

ROOT = 2
INO_OF = "SELECT ino FROM dirent WHERE name = :name"
DIRTY = "kind = 1 AND content_version > drained_version"


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path / "primary") as server:
        yield server


@pytest.fixture
def replication(primary: PostgresServer) -> Iterator[TcpProxy]:
    """Run the proxy through which the standby follows the primary."""
    with TcpProxy(primary.port) as proxy:
        yield proxy


@pytest.fixture
def standby(tmp_path: Path, replication: TcpProxy) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path / "standby", replication.port) as server:
        yield server


def has_followed(primary: PostgresServer, standby: PostgresServer) -> bool:
    [(written,)] = primary.ask("SELECT pg_current_wal_lsn()")
    return standby.ask(f"SELECT pg_last_wal_replay_lsn() >= '{written}'") == [(True,)]


def test_a_standby_at_the_servers_address_is_no_answer(
    tmp_path: Path, primary: PostgresServer, standby: PostgresServer
) -> None:
    with TcpProxy(primary.port) as address:
        url = primary.create_database().replace(str(primary.port), str(address.port))
        settings = settings_at(url, tmp_path)
        namespace = Namespace(settings)
        made = namespace.create(ROOT_CRED, ROOT, b"a", SetAttr())
        until(partial(has_followed, primary, standby), "the standby")
        address.upstream_port = standby.port
        address.cut()
        for _ in range(2):
            with pytest.raises(TryAgain):
                namespace.lookup(ROOT, b"a")
            with pytest.raises(TryAgain):
                namespace.create(ROOT_CRED, ROOT, b"b", SetAttr())
        primary.kill()
        standby.promote()
        # The new primary has every answered change, so the same server continues.
        persist(partial(namespace.create, ROOT_CRED, ROOT, b"b", SetAttr()))
        assert persist(partial(namespace.lookup, ROOT, b"a")).ino == made.ino
        namespace.close()
        assert clean(settings)


def url_of(primary: PostgresServer, *hosts: PostgresServer) -> str:
    """Return the URL of a new database of the primary, by these servers in their order."""
    addresses = ",".join(f"127.0.0.1:{host.port}" for host in hosts)
    return primary.create_database().replace(f"127.0.0.1:{primary.port}", addresses)


def test_of_several_hosts_the_one_that_can_be_written_to_is_used(
    tmp_path: Path, primary: PostgresServer, standby: PostgresServer
) -> None:
    settings = settings_at(url_of(primary, standby, primary), tmp_path)
    with ServerProcess(settings) as server:
        assert server.ask("create", "a") == "ok"
        until(partial(has_followed, primary, standby), "the standby")
        primary.kill()
        assert server.ask("lookup", "a") == "TryAgain"
        assert server.ask("rename", "a", "b") == "TryAgain"
        standby.promote()
        assert server.persist("rename", "a", "b") == "ok"
        assert server.persist("lookup", "b") == "ok"
    assert clean(settings)


@pytest.mark.parametrize("verb", ["lookup", "rename"])
def test_a_failover_that_lost_an_answered_change_ends_the_server(
    tmp_path: Path,
    primary: PostgresServer,
    replication: TcpProxy,
    standby: PostgresServer,
    verb: str,
) -> None:
    settings = settings_at(url_of(primary, primary, standby), tmp_path)
    with ServerProcess(settings) as server:
        assert server.ask("create", "a") == "ok"
        until(partial(has_followed, primary, standby), "the standby")
        replication.refusing = True
        replication.cut()
        assert server.ask("rename", "a", "b") == "ok"
        primary.kill()
        standby.promote()
        names = {"lookup": ["b"], "rename": ["b", "c"]}[verb]
        assert server.persist(verb, *names) == ""
        status, said = server.ended()
    assert status == -signal.SIGKILL
    assert "failed over or restored, and lacks changes" in said
    assert said.count("\n") == 1
    with ServerProcess(settings) as server:
        assert server.ask("rename", "a", "b") == "ok"


@pytest.mark.parametrize("moves", [0, 2])
def test_a_failover_that_lost_changes_destroys_no_bytes(
    tmp_path: Path,
    primary: PostgresServer,
    replication: TcpProxy,
    standby: PostgresServer,
    moves: int,
) -> None:
    """Args:
    moves: moves of the mark that are lost too.
    """
    settings = settings_at(url_of(primary, primary, standby), tmp_path)
    with ServerProcess(settings) as server:
        for name in ("rewritten", "evicted", "same"):
            assert server.ask("save", name, "first") == "ok"
            [(ino,)] = query(settings, INO_OF, name=name.encode())
            record_object(settings, ino, name)
        # As after its arrival from the bucket: the data file is younger than its row says.
        same = DataFiles(settings.files_dir).path(ino, 0)
        os.utime(same)
        times = f"VALUES ({ino}, {same.stat().st_mtime_ns})"
        query(settings, f"INSERT INTO last_read (ino, read_ns) {times}")
        until(partial(has_followed, primary, standby), "the standby")
        replication.refusing = True
        replication.cut()
        for command in ("save rewritten other", "evict evicted", "save new bytes"):
            assert server.ask(*command.split()) == "ok"
        for move in range(moves):
            assert server.ask("create", f"after{move}") == "ok"
            assert server.ask("mark") == "ok"
        primary.kill()
        standby.promote()
        assert server.persist("lookup", "new") == ""
        assert "lacks changes that were answered" in server.ended()[1]
    namespace = Namespace(settings)
    rewritten = namespace.lookup(ROOT, b"rewritten")
    assert namespace.files.path(rewritten.ino, rewritten.epoch).read_bytes() == b"other"
    # Clients must not take it for what they read before, and it is drained.
    for kept in (b"rewritten", b"evicted", b"same"):
        assert namespace.lookup(ROOT, kept).change > content.CRASH_CHANGE_STEP
    assert namespace.getattr(ROOT).change > content.CRASH_CHANGE_STEP
    dirty = query(settings, f"SELECT ino FROM inode WHERE {DIRTY} AND reserved = 0")
    assert dirty == [(rewritten.ino,)]
    with pytest.raises(Busy):
        namespace.evict(rewritten.ino, 1)
    assert namespace.lookup(ROOT, b"evicted").residency == Residency.ABSENT
    assert namespace.lookup(ROOT, b"same").residency == Residency.RESIDENT
    [aside] = [path for path in namespace.files.aside.iterdir() if path.read_bytes() == b"bytes"]
    assert namespace.create(ROOT_CRED, ROOT, b"newer", SetAttr()).ino > int(aside.stem)
    change = namespace.lookup(ROOT, b"same").change
    namespace.close()
    assert clean(settings)
    namespace = Namespace(settings)
    assert namespace.lookup(ROOT, b"same").change == change, "the files are compared once"
    namespace.close()


@pytest.mark.parametrize("is_stopped", [True, False])
def test_after_a_failover_of_which_no_server_knows_the_files_are_compared(
    tmp_path: Path,
    primary: PostgresServer,
    replication: TcpProxy,
    standby: PostgresServer,
    is_stopped: bool,
) -> None:
    """After a stop the mark says that nothing is missing."""
    settings = settings_at(url_of(primary, primary, standby), tmp_path)
    with ServerProcess(settings) as server:
        assert server.ask("save", "f", "first") == "ok"
        if is_stopped:
            assert server.ask("stop") == "ok"
        until(partial(has_followed, primary, standby), "the standby")
        replication.refusing = True
        replication.cut()
        if not is_stopped:
            assert server.ask("save", "f", "other") == "ok"
    primary.kill()
    standby.promote()
    namespace = Namespace(settings)
    attr = namespace.lookup(ROOT, b"f")
    assert (attr.change > content.CRASH_CHANGE_STEP) is not is_stopped
    [(version,)] = query(settings, f"SELECT content_version FROM inode WHERE ino = {attr.ino}")
    assert version == (1 if is_stopped else 2)
    namespace.close()


def test_a_promotion_before_a_failover_is_no_lost_change(
    tmp_path: Path, primary: PostgresServer, standby: PostgresServer
) -> None:
    settings = settings_at(url_of(primary, primary, standby), tmp_path)
    with ServerProcess(settings) as server:
        assert server.ask("create", "a") == "ok"
        promote(settings)
        until(partial(has_followed, primary, standby), "the standby")
        primary.kill()
        standby.promote()
        assert server.persist("rename", "a", "b") == "ok"


def wait_for_standby(primary: PostgresServer) -> None:
    """Have each COMMIT of the primary wait for the standby."""
    primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.ask("SELECT pg_reload_conf()")
    state = "SELECT sync_state FROM pg_stat_replication"
    until(lambda: primary.ask(state) == [("sync",)], "synchronous replication", 120.0)


def test_a_synchronous_standby_that_goes_away_is_a_pause(
    tmp_path: Path, primary: PostgresServer, standby: PostgresServer
) -> None:
    settings = settings_at(url_of(primary, primary), tmp_path)
    with (
        ServerProcess(settings, ANSWER_SECONDS=0.5, SAID_SECONDS=(1.0, 1.0)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        assert server.ask("create", "a") == "ok"
        wait_for_standby(primary)
        standby.stop()
        answer = pool.submit(server.ask, "rename", "a", "b")
        for _ in range(2):
            assert "has not finished a COMMIT, and all changes wait" in server.line()
        assert not answer.done()
        standby.start()
        assert answer.result() == "ok"
        assert server.persist("lookup", "b") == "ok"


def test_a_server_that_died_while_a_standby_was_away_can_start_again(
    tmp_path: Path, primary: PostgresServer, standby: PostgresServer
) -> None:
    settings = settings_at(url_of(primary, primary), tmp_path)
    database = Database(settings.database_url)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with ServerProcess(settings) as server, ThreadPoolExecutor(1) as pool:
        assert server.ask("create", "a") == "ok"
        wait_for_standby(primary)
        standby.stop()
        answer = pool.submit(server.ask, "rename", "a", "b")
        until(lambda: primary.ask(waits) == [(1,)], "a COMMIT that waits for the standby")
        server.process.kill()
        assert answer.result() == ""
        before = database.holder()
        assert before is not None and before.is_dead
        after = ServerProcess(settings)
        try:
            until(lambda: database.holder() not in (before, None), "the lock's next holder")
            standby.start()
            with after:
                assert after.persist("lookup", "b") == "ok"
        finally:
            after.process.kill()
    database.close()


def test_a_database_that_went_back_on_its_timeline_ends_the_server(
    tmp_path: Path, primary: PostgresServer
) -> None:
    """A snapshot of its disk was put back, so neither timeline nor count of starts differ."""
    settings = settings_at(primary.create_database(), tmp_path)
    copy = tmp_path / "copy"
    with ServerProcess(settings) as server:
        assert server.ask("create", "a") == "ok"
        primary.stop()
        shutil.copytree(primary.data, copy)
        primary.start()
        assert server.persist("create", "b") == "ok"
        primary.stop()
        shutil.rmtree(primary.data)
        copy.rename(primary.data)
        subprocess.run(["chown", "-R", f"--reference={primary.data.parent}", primary.data])
        primary.start()
        assert server.persist("create", "c") == ""
        assert "lacks changes that were answered" in server.ended()[1]


def test_a_primary_that_turns_read_only_is_a_pause(tmp_path: Path, primary: PostgresServer) -> None:
    settings = settings_at(primary.create_database(), tmp_path)
    namespace = Namespace(settings)
    namespace.create(ROOT_CRED, ROOT, b"a", SetAttr())
    for value, is_away in (("on", True), ("off", False)):
        primary.ask(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        primary.ask("SELECT pg_reload_conf()")
        until(partial(reads_only, primary, value), f"default_transaction_read_only = {value}")
        if is_away:
            with pytest.raises(TryAgain):
                namespace.rename(ROOT_CRED, ROOT, b"a", ROOT, b"b")
            with pytest.raises(TryAgain):
                namespace.rename(ROOT_CRED, ROOT, b"a", ROOT, b"b")
    persist(partial(namespace.rename, ROOT_CRED, ROOT, b"a", ROOT, b"b"))
    assert persist(partial(namespace.lookup, ROOT, b"b"))
    namespace.close()


def reads_only(server: PostgresServer, value: str) -> bool:
    return server.ask("SHOW default_transaction_read_only") == [(value,)]


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://u:p@a:1,b:2/n?x=y", "postgresql://u:p@/n?host=a:1&host=b:2&x=y"),
        ("postgresql://a,b/n", "postgresql:///n?host=a:5432&host=b:5432"),
        ("postgresql://u:p,q@a:1/n", "postgresql://u:p,q@a:1/n"),
        ("sqlite:////a,b/n", "sqlite:////a,b/n"),
    ],
)
def test_several_hosts_in_a_url(url: str, wanted: str) -> None:
    assert with_hosts(url) == wanted
