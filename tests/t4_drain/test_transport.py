"""The HTTP of the drain's requests, against sockets that behave as bad servers do."""

from __future__ import annotations

import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from gateway.common.errors import StoreUnavailable
from gateway.objectstore.bodies import FileRange
from gateway.objectstore.pace import Pace, Rates
from gateway.objectstore.s3 import S3Store
from gateway.objectstore.transport import UNHEEDED_MAX, Timeouts, Transport
from tests.support.certificates import certify
from tests.support.drainsite import MIB
from tests.support.ports import free_port
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import RcloneServer
from tests.support.t4.options import settings_of
from tests.support.waiting import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: x\r\n\r\nok"
TIMEOUTS = Timeouts(connect=5.0, read=5.0)
BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n"
LARGE_BYTES = 64 * MIB
LENGTH = {"Content-Length": str(LARGE_BYTES)}
NO_BODY = {"Content-Length": "0"}

Serve = Callable[[socket.socket], None]


@contextmanager
def server(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve each connection by a thread. Yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=run, args=(connection,), daemon=True).start()

        def run(connection: socket.socket) -> None:
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            with connection, suppress(ConnectionError):
                serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
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
    """A thread takes a free connection or makes one, also if it is interrupted at any moment."""
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


@pytest.fixture(params=["http", "https"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> ssl.SSLContext | None:
    """Make the server's side of TLS, or None for plain HTTP."""
    if request.param == "http":
        return None
    certify(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    return context


@pytest.fixture
def large(tmp_path: Path) -> Iterator[FileRange]:
    (tmp_path / "f").write_bytes(bytes(LARGE_BYTES))
    with (tmp_path / "f").open("rb") as data:
        yield FileRange(data.fileno(), 0, LARGE_BYTES)


def transport_to(address: str, tmp_path: Path, tls: ssl.SSLContext | None) -> Transport:
    return Transport(address, "" if tls is None else str(tmp_path / "ca.pem"), TIMEOUTS)


def received(connection: socket.socket, most: int) -> bytes:
    """Receive. Raises ConnectionResetError at the end: a thread that reads on after it would take a
    processor from all tests that follow."""
    data = connection.recv(most)
    if not data:
        raise ConnectionResetError
    return data


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        head += received(connection, 1)
    return head


def read_body(connection: socket.socket, size: int) -> None:
    while size:
        size -= len(received(connection, min(size, MIB)))


def test_an_answer_instead_of_the_body_is_heard(
    tmp_path: Path, tls: ssl.SSLContext | None, large: FileRange, patient: None
) -> None:
    """A store that is too busy answers and closes the connection. No byte of the body is sent."""
    heads, bodies = [], []

    def serve(connection: socket.socket) -> None:
        heads.append(read_head(connection))
        connection.sendall(BUSY)
        connection.settimeout(5)
        bodies.append(connection.recv(4096))

    with server(serve, tls) as address:
        transport = transport_to(address, tmp_path, tls)
        for _ in range(3):
            answer = transport.send("PUT", "/k", LENGTH, large)
            assert (answer.status, answer.headers["retry-after"]) == (503, "7")
        until(lambda: len(bodies) == 3, "all connections are closed")
    assert all(b"Expect: 100-continue\r\n" in head for head in heads)
    assert bodies == [b""] * 3


def test_an_answer_in_the_middle_of_the_body_is_heard(
    tmp_path: Path, tls: ssl.SSLContext | None, large: FileRange
) -> None:
    """The answer is heard each time, whether it comes between two blocks or during one."""

    def serve(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        read_body(connection, MIB // 2)
        connection.sendall(BUSY)

    with server(serve, tls) as address:
        transport = transport_to(address, tmp_path, tls)
        for _ in range(12):
            answer = transport.send("PUT", "/k", LENGTH, large)
            assert (answer.status, answer.headers["retry-after"]) == (503, "7")


def test_the_rest_of_a_body_that_was_answered_is_not_sent(
    tmp_path: Path, tls: ssl.SSLContext | None, large: FileRange
) -> None:
    """A busy store that answers early does not get gigabytes that it would throw away."""
    sizes = []

    def serve(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = MIB // 2
        read_body(connection, size)
        connection.sendall(BUSY)
        with suppress(ConnectionResetError, ssl.SSLError):
            while block := connection.recv(MIB):
                size += len(block)
        sizes.append(size)

    with server(serve, tls) as address:
        answer = transport_to(address, tmp_path, tls).send("PUT", "/k", LENGTH, large)
        assert answer.status == 503
        until(lambda: bool(sizes), "the connection is closed")
    assert sizes[0] < LARGE_BYTES


def test_a_server_that_does_not_know_expectations_gets_the_body_all_the_same(
    tmp_path: Path,
    tls: ssl.SSLContext | None,
    large: FileRange,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.objectstore.transport.CONTINUE_SECONDS", 0.05)
    heads = []

    def serve(connection: socket.socket) -> None:
        while True:
            heads.append(read_head(connection))
            read_body(connection, LARGE_BYTES)
            connection.sendall(OK)

    with server(serve, tls) as address:
        transport = transport_to(address, tmp_path, tls)
        for _ in range(5):
            assert transport.send("PUT", "/k", LENGTH, large).status == 200
    # After a few times the transport stops asking, because each time costs a wait.
    assert [b"Expect" in head for head in heads] == [True, True, True, False, False]


def test_a_server_that_refuses_expectations_is_asked_without(
    tmp_path: Path, tls: ssl.SSLContext | None, large: FileRange, patient: None
) -> None:
    heads = []

    def serve(connection: socket.socket) -> None:
        heads.append(read_head(connection))
        if b"Expect" in heads[-1]:
            connection.sendall(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
        else:
            read_body(connection, LARGE_BYTES)
            connection.sendall(OK)

    with server(serve, tls) as address:
        assert transport_to(address, tmp_path, tls).send("PUT", "/k", LENGTH, large).status == 200
    assert [b"Expect" in head for head in heads] == [True, False]


def test_a_small_body_is_sent_at_once(tmp_path: Path, tls: ssl.SSLContext | None) -> None:
    heads = []

    def serve(connection: socket.socket) -> None:
        heads.append(read_head(connection))
        read_body(connection, 4)
        connection.sendall(OK)

    with server(serve, tls) as address:
        transport = transport_to(address, tmp_path, tls)
        assert transport.send("PUT", "/k", {"Content-Length": "4"}, b"data").status == 200
    assert b"Expect" not in heads[0]


def test_a_status_line_that_comes_in_pieces_is_heard_as_one(
    tmp_path: Path, tls: ssl.SSLContext | None, large: FileRange
) -> None:
    def serve(connection: socket.socket) -> None:
        read_head(connection)
        for piece in (b"HTTP/", b"1.1 1", b"00 Continue\r\n\r\n"):
            connection.sendall(piece)
            time.sleep(0.05)
        read_body(connection, LARGE_BYTES)
        connection.sendall(OK[:5])
        time.sleep(0.05)
        connection.sendall(OK[5:])

    with server(serve, tls) as address:
        assert transport_to(address, tmp_path, tls).send("PUT", "/k", LENGTH, large).status == 200


def test_a_slow_store_has_the_time_of_an_answer_for_each_block_of_a_body() -> None:
    data = os.urandom(16 * MIB)
    blocks = 16

    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB // 2)
        read_head(connection)
        for _ in range(blocks):
            time.sleep(0.1)
            read_body(connection, len(data) // blocks)
        connection.sendall(OK)

    with server(serve) as address:
        transport = Transport(address, "", TIMEOUTS._replace(read=0.8))
        transport._unheeded = UNHEEDED_MAX
        length = {"Content-Length": str(len(data))}
        assert transport.send("PUT", "/k", length, data).status == 200


def test_a_store_over_tls_that_says_early_that_it_is_too_busy(tmp_path: Path) -> None:
    """The pace learns of the 503, whether it comes before the body or in the middle of it."""
    certify(tmp_path)
    (tmp_path / "s3" / "b").mkdir(parents=True)
    data = os.urandom(12 * MIB)
    with (
        RcloneServer(tmp_path / "s3") as server,
        S3Proxy(server.port, certificate=tmp_path / "server") as proxy,
    ):
        settings = settings_of(tmp_path, endpoint_url=proxy.url, ca_bundle=str(tmp_path / "ca.pem"))
        pace = Pace(Rates(0, 0), 16, threading.Event())
        store = S3Store(settings, pace=pace, attempts=1)
        for when in ("head", "middle") * 3:
            proxy.is_busy = when.__eq__
            before, throttles = pace.places, pace.throttles
            with pytest.raises(StoreUnavailable, match="SlowDown"):
                store.put("f", data, {})
            assert pace.throttles == throttles + 1
            assert pace.places == max(1, before // 2)
        proxy.is_busy = lambda _when: False
        assert store.put("f", data, {}).head.size == len(data)
        assert (tmp_path / "s3" / "b" / "f").read_bytes() == data


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


def test_a_connection_to_a_proxy_that_does_not_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = threading.Event()

    def serve(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass
        closed.set()

    with server(serve) as address:
        monkeypatch.setenv("HTTPS_PROXY", address)
        transport = Transport("https://objects.example", "", TIMEOUTS._replace(connect=0.1))
        with pytest.raises(ConnectTimeoutError):
            transport.send("PUT", "/k", NO_BODY, b"")
        # Python warns, too, of a connection that is forgotten instead of closed.
        assert closed.wait(20)


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
