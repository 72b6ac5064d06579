"""HTTP as the drain's bodies travel, against sockets that do what bad servers do."""

from __future__ import annotations

import base64
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    ReadTimeoutError,
)

from gateway.errors import StoreUnavailable
from gateway.objectstore.body import Section
from gateway.objectstore.s3 import S3Store
from gateway.objectstore.transport import Timeouts, Transport
from tests.support.forwardproxy import ForwardProxy
from tests.support.s3server import RcloneServer, free_port
from tests.t4_drain.site import MIB
from tests.t4_drain.test_options import certify, settings_of, use

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: x\r\n\r\nok"
TIMEOUTS = Timeouts(connect=5.0, read=5.0)
NO_BODY = {"Content-Length": "0"}

Serve = Callable[[socket.socket], None]


@contextmanager
def server(serve: Serve) -> Iterator[str]:
    """Each connection is served by a thread; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=run, args=(connection,), daemon=True).start()

        def run(connection: socket.socket) -> None:
            with connection:
                serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_connection_is_used_again_until_the_server_hangs_up() -> None:
    connections = []
    hang_up, gone = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        connections.append(connection)
        for _ in range(2):
            connection.recv(4096)
            connection.sendall(OK)
        hang_up.wait(5)
        connection.close()
        gone.set()

    with server(serve) as address:
        transport = Transport(address, "", TIMEOUTS)
        for _ in range(2):
            answer = transport.send("PUT", "/k", NO_BODY, b"")
            assert (answer.status, answer.headers["etag"], answer.content) == (200, "x", b"ok")
        assert len(connections) == 1
        hang_up.set()
        gone.wait(5)
        assert transport.send("PUT", "/k", NO_BODY, b"").status == 200
        assert len(connections) == 2


def test_threads_share_the_connections() -> None:
    """Each takes one that nobody else takes, or makes one: whatever the moment it is stopped at."""
    threads, rounds = 8, 150
    done: list[int] = []

    def serve(connection: socket.socket) -> None:
        while connection.recv(4096):
            connection.sendall(OK)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with server(serve) as address:
            transport = Transport(address, "", TIMEOUTS)

            def send() -> None:
                for _ in range(rounds):
                    done.append(transport.send("PUT", "/k", NO_BODY, b"").status)

            running = [threading.Thread(target=send) for _ in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert done == [200] * threads * rounds


def test_an_answer_before_the_whole_body_is_heard(tmp_path: Path) -> None:
    """A store that is too busy says so and hangs up, whatever else was to come."""

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n")

    (tmp_path / "f").write_bytes(bytes(64 * MIB))
    with server(serve) as address, (tmp_path / "f").open("rb") as data:
        section = Section(data.fileno(), 0, 64 * MIB)
        transport = Transport(address, "", TIMEOUTS)
        for _ in range(2):
            answer = transport.send("PUT", "/k", {"Content-Length": str(64 * MIB)}, section)
            assert (answer.status, answer.headers["retry-after"]) == (503, "7")


def test_a_connection_that_is_lost() -> None:
    with server(lambda connection: None) as address:
        transport = Transport(address, "", TIMEOUTS)
        with pytest.raises(ConnectionClosedError):
            transport.send("PUT", "/k", NO_BODY, b"")


def test_a_server_that_does_not_answer() -> None:
    end = threading.Event()

    def serve(connection: socket.socket) -> None:
        end.wait(20)

    with server(serve) as address:
        transport = Transport(address, "", TIMEOUTS._replace(read=0.1))
        with pytest.raises(ReadTimeoutError):
            transport.send("PUT", "/k", NO_BODY, b"")
        end.set()


def test_a_server_that_does_not_accept() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        with socket.create_connection(address):
            transport = Transport(
                f"http://127.0.0.1:{address[1]}", "", TIMEOUTS._replace(connect=0.2)
            )
            with pytest.raises(ConnectTimeoutError):
                transport.send("PUT", "/k", NO_BODY, b"")
    with pytest.raises(EndpointConnectionError):
        Transport(f"http://127.0.0.1:{free_port()}", "", TIMEOUTS).send("PUT", "/k", NO_BODY, b"")


@pytest.mark.parametrize("is_tls", [False, True])
def test_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_tls: bool
) -> None:
    certify(tmp_path)
    (tmp_path / "s3" / "b").mkdir(parents=True)
    options = ("--cert", str(tmp_path / "server.pem"), "--key", str(tmp_path / "server.key"))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with (
        RcloneServer(tmp_path / "s3", options if is_tls else ()) as server,
        ForwardProxy() as proxy,
    ):
        url, bucket = server.url, {}
        if is_tls:
            url, bucket = url.replace("http:", "https:"), {"ca_bundle": str(tmp_path / "ca.pem")}
        settings = settings_of(tmp_path, endpoint_url=url, **bucket)
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        use(S3Store(settings))
        password = base64.b64encode(ForwardProxy.USER.encode()).decode()
        assert proxy.asked
        assert all(line.endswith(f"Basic {password}") for line in proxy.asked)
        wanted = "CONNECT 127.0.0.1" if is_tls else f"PUT {url}/b/a HTTP"
        assert [line for line in proxy.asked if line.startswith(wanted)]
        seen = len(proxy.asked)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        use(S3Store(settings))
        assert len(proxy.asked) == seen


def test_a_proxy_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{free_port()}")
    transport = Transport("http://127.0.0.1:9", "", TIMEOUTS)
    with pytest.raises(ProxyConnectionError):
        transport.send("PUT", "/k", NO_BODY, b"")
    store = S3Store(settings_of(tmp_path, endpoint_url="http://127.0.0.1:9"))
    with pytest.raises(StoreUnavailable, match="ProxyConnectionError"):
        store.put("a", b"", {})
