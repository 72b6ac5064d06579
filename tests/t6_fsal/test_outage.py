"""What clients of a real NFS server are told of changes while its database comes and goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from errno import EEXIST
from pathlib import Path

import pytest

from gateway.namespace import data_files
from tests.support import nfs4
from tests.support.nfsserver import Server
from tests.support.postgres import PostgresServer
from tests.support.tcpproxy import TcpProxy
from tests.support.volumes import query
from tests.support.waiting import until

CLIENTS = 8
OUTAGES = 30
OUTAGE_SECONDS = 0.05
SERVICE_SECONDS = 0.2


def change_names(server: Server, number: int, over: threading.Event) -> int:
    """Change names in one directory, as the other clients do. Returns how often all succeeded.

    The client repeats what is answered NFS4ERR_DELAY. Raises Status.
    """
    rounds = 0
    with nfs4.Client(server.port) as client:
        at = client.handle("export", "shared")
        while not over.is_set():
            old, new = f"old-{number}-{rounds}", f"new-{number}-{rounds}"
            client.mkdir(at, old)
            client.rename(at, old, new)
            client.remove(at, new)
            rounds += 1
    return rounds


def made(postgres: PostgresServer, proxy: TcpProxy, directory: Path) -> Server:
    """Return a server that is not started, whose database is behind the proxy."""
    url = postgres.create_database().replace(f":{postgres.port}/", f":{proxy.port}/")
    return Server("spillway", directory, directory / "log", {"namespace": {"url": url}})


@contextmanager
def serving(postgres: PostgresServer, proxy: TcpProxy, directory: Path) -> Iterator[Server]:
    with made(postgres, proxy, directory) as server:
        with nfs4.Client(server.port) as client:
            client.mkdir(client.handle("export"), "shared")
        yield server


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        (0, "spillway: the namespace database does not answer: "),
        (1, "spillway: the NFS server ends itself: the directory of export /export cannot"),
    ],
)
def test_a_server_whose_database_is_gone_at_the_start_does_not_serve(
    postgres: PostgresServer, tmp_path: Path, answered: int, said: str
) -> None:
    """Without the export, all handles of its clients would be answered NFS4ERR_STALE.

    The plugin asks for the root, and Ganesha for the directory of the export.

    Args:
        answered: how many of these questions.
        said: what the server says of the next one.
    """
    with TcpProxy(postgres.port) as proxy:
        server = made(postgres, proxy, tmp_path)
        proxy.cut_after(b"WHERE inode.ino = $1", skip=answered, then_refuse=True)
        with pytest.raises(RuntimeError, match=said) as died, server:
            pass
        assert proxy.cuts == 1 and "Traceback" not in str(died.value)
        proxy.refusing = False
        with server, nfs4.Client(server.port) as client:
            assert client.names(client.handle("export")) == []


def test_a_change_that_was_made_is_never_answered_with_delay(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The client would repeat the change, and get EEXIST or ENOENT for it."""
    over = threading.Event()
    with (
        TcpProxy(postgres.port) as proxy,
        serving(postgres, proxy, tmp_path) as server,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        clients = [pool.submit(change_names, server, n, over) for n in range(CLIENTS)]
        try:
            for _ in range(OUTAGES):
                # The clients are in the midst of changes whenever the connection ends.
                time.sleep(SERVICE_SECONDS)
                proxy.refusing = True
                proxy.cut()
                time.sleep(OUTAGE_SECONDS)
                proxy.refusing = False
        finally:
            over.set()
        assert all(client.result() > 0 for client in clients)


def test_open_files_are_served_while_a_change_is_indeterminate(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with (
        TcpProxy(postgres.port) as proxy,
        serving(postgres, proxy, tmp_path) as server,
        nfs4.Client(server.port) as client,
        nfs4.Client(server.port) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        at = client.handle("export", "shared")
        client.mkdir(at, "old")
        with client.opened(at, "open") as file:
            file.write(b"before")
            # On a new connection COMMIT is no prepared statement yet, and the proxy knows it.
            proxy.cut()
            client.mkdir(at, "again")
            proxy.cut_after(b"COMMIT", then_refuse=True)
            renamed = pool.submit(other.rename, at, "old", "new")
            until(
                lambda: "a change is indeterminate, and all changes wait" in said(server), "a line"
            )
            file.write(b"during", 6)
            assert file.read() == b"beforeduring"
            assert not renamed.done()
            server.require_alive()
            proxy.refusing = False
            renamed.result()
        assert sorted(client.names(at)) == ["again", "new", "open"]
        assert proxy.cuts == 1


def said(server: Server) -> str:
    return server.log.with_suffix(".stderr").read_text()


def test_a_server_that_stops_moves_the_mark(postgres: PostgresServer, tmp_path: Path) -> None:
    """So a copy of its database of before is refused."""
    with TcpProxy(postgres.port) as proxy:
        server = made(postgres, proxy, tmp_path)
        with server, nfs4.Client(server.port) as client:
            client.mkdir(client.handle("export"), "made")
            [(before,)] = query(server.settings, "SELECT mark FROM volume")
        assert query(server.settings, "SELECT mark FROM volume") == [(before + 1,)]
        stamp = data_files.read(server.settings.files_dir)
        assert stamp is not None
        assert (stamp.marks, stamp.is_stopped) == ((before + 1,), True)


def test_a_truncation_that_lacks_its_times_is_seen_at_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """One SETATTR has size and mtime, and the database goes away between the two. Ganesha takes the
    attributes for unchanged when a SETATTR fails."""
    with (
        TcpProxy(postgres.port) as proxy,
        serving(postgres, proxy, tmp_path) as server,
        nfs4.Client(server.port) as client,
    ):
        at = client.handle("export", "shared")
        with client.opened(at, "truncated") as file:
            file.write(b"bytes")
            assert client.getattr(file.handle).size == 5
            proxy.cut_after(b"UPDATE inode SET mode")
            with pytest.raises(nfs4.Status):
                client.truncate(file.handle, 3)
            assert proxy.cuts == 1
            assert client.getattr(file.handle).size == 3


def test_an_exclusive_creation_is_not_taken_for_that_of_another_client(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The answer to it was lost with the server. The client repeats it, and the database, which
    tells whose file it is, goes away in that moment."""
    with TcpProxy(postgres.port) as proxy, serving(postgres, proxy, tmp_path) as server:
        with nfs4.Client(server.port) as client:
            file = client.file(client.handle("export", "shared"), "exclusive")
            file.verifier = b"verifier"
            file.open()
            server.crash()
        with nfs4.Client(server.port) as client:
            at = client.handle("export", "shared")
            # Also after grace, so that the next one is answered at once.
            client.open(at, "other")
            file = client.file(at, "exclusive")
            file.verifier = b"verifier"
            proxy.cut_after(b"SELECT inode.verifier")
            with pytest.raises(nfs4.Status) as refused:
                file.open()
            assert (refused.value.number, proxy.cuts) == (nfs4.DELAY, 1)
            file.open()
            file.verifier = b"another!"
            with pytest.raises(nfs4.Status) as refused:
                file.open()
            assert refused.value.number == EEXIST
