"""HTTP transport to one address over connections that stay open, with the standard library only.

botocore's own way, over urllib3, takes much more processor time for the same request. Errors are
botocore's, so that a caller need not know which way a request took.
"""

from __future__ import annotations

import base64
import select
import socket
import ssl
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from http.client import (
    EXPECTATION_FAILED,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
)
from io import BufferedReader, RawIOBase
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    SSLError,
)
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from gateway.objectstore.bodies import Incoming, named

EXPECT_BYTES = 1024 * 1024
"""The store is asked first whether it wants a larger body (Expect: 100-continue)."""
CONTINUE_SECONDS = 1.0
"""The time that the store has to answer this. After it the body is sent without an answer."""
UNHEEDED_MAX = 3
"""A store that did not answer this often in a row is not asked any more."""
LINE_BYTES = 65536
STATUS_BYTES = 10
"""Length of a status line up to the first digit of its code."""
RECORDS_MAX = 8
"""The number of TLS records without data (session tickets) that one wait for an answer reads."""
_PORTS = {"http": 80, "https": 443}


class Response(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    content: bytes


class Timeouts(NamedTuple):
    """Time-outs in seconds."""

    connect: float
    read: float
    """The time without a byte in either direction."""


class Transport:
    """Sends requests. It is safe to use from several threads.

    It keeps as many connections as were used at once. It heeds the proxies of the environment
    (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).

    Nothing is contacted yet.

    Args:
        address: scheme, host and port.
        ca_bundle: a file of certificates (empty: the usual ones).
    """

    def __init__(self, address: str, ca_bundle: str, timeouts: Timeouts) -> None:
        to = urlsplit(address)
        self._address = address
        self._name = to.hostname or ""
        self._port = to.port or _PORTS[to.scheme]
        name = f"[{self._name}]" if ":" in self._name else self._name
        self.host = name if self._port == _PORTS[to.scheme] else f"{name}:{self._port}"
        """The value of the Host header."""
        proxy = get_environ_proxies(address).get(to.scheme, "")
        self._proxy = proxy if not proxy or "://" in proxy else f"http://{proxy}"
        self._timeouts = timeouts
        self._tls = None
        if to.scheme == "https":
            self._tls = ssl.create_default_context(cafile=ca_bundle or get_cert_path(True))
        self._idle: deque[HTTPConnection] = deque()
        self._unheeded = 0
        """How often in a row the store did not answer whether it wants a body."""
        # No call ends a transport: another one replaces it when credentials are read again.
        weakref.finalize(self, _close, self._idle)

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[memoryview],
    ) -> Response:
        """Send a request. Returns its answer, which may come before the whole body was sent.

        Raises botocore's ConnectionError or HTTPClientError.

        Args:
            target: path and query, percent-encoded.
            headers: headers with Content-Length.
            body: which may not raise OSError, and can be read more than once.
        """
        while True:
            asks = int(headers["Content-Length"]) > EXPECT_BYTES and self._unheeded < UNHEEDED_MAX
            connection = self._connected()
            try:
                answer = self._exchange(connection, method, target, headers, body, asks)
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            if not asks or answer.status != EXPECTATION_FAILED:
                return answer
            self._unheeded = UNHEEDED_MAX

    def receive(self, target: str, headers: Mapping[str, str]) -> Incoming:
        """Send a GET. Raises botocore's ConnectionError or HTTPClientError.

        Args: as of ``send``.

        Returns:
            Its answer, whose body is not read yet.
        """
        connection = self._connected()

        def end(is_whole: bool) -> None:
            if is_whole:
                self._idle.append(connection)
            else:
                connection.close()

        try:
            with named(self._address):
                self._begin(connection, "GET", target, headers)
                connection.endheaders()
                return Incoming(connection.getresponse(), self._address, end)
        except BaseException:
            connection.close()
            raise

    def _begin(
        self, connection: HTTPConnection, method: str, target: str, headers: Mapping[str, str]
    ) -> None:
        """Write the head of a request, up to its end."""
        if self._proxy and self._tls is None:
            target, headers = self._address + target, {**headers, **_authorization(self._proxy)}
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", self.host)
        for name, value in headers.items():
            connection.putheader(name, value)

    def _exchange(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[memoryview],
        asks: bool,
    ) -> Response:
        """Send a request on a connection. Returns its answer.

        Args:
            asks: whether to send the body only when the store wants it.
        """
        is_whole = False
        with named(self._address):
            self._begin(connection, method, target, headers)
            if asks:
                connection.putheader("Expect", "100-continue")
            connection.endheaders()
            with _Ear(connection, method, self._timeouts.read) as ear:
                try:
                    is_whole = self._send_body(connection, ear, body, asks)
                except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                    # The store may have sent the reason before it hung up.
                    pass
                except TimeoutError:
                    if not ear.is_answered():
                        raise
                response = connection.getresponse()
            lower = {name.lower(): value for name, value in response.headers.items()}
            answer = Response(response.status, lower, response.read())
        if not is_whole:
            connection.close()
        return answer

    def _send_body(
        self,
        connection: HTTPConnection,
        ear: _Ear,
        body: bytes | Iterable[memoryview],
        asks: bool,
    ) -> bool:
        """Send the body. Returns False if the answer came before its end."""
        if asks:
            is_answered = ear.is_answered(CONTINUE_SECONDS)
            self._unheeded = 0 if is_answered or ear.is_asked_on else self._unheeded + 1
            if is_answered:
                return False
        elif isinstance(body, bytes) and len(body) <= EXPECT_BYTES:
            connection.send(body)
            return True
        for block in _blocks(body):
            if ear.is_answered():
                return False
            connection.send(block)
        return True

    def _connected(self) -> HTTPConnection:
        while True:
            try:
                # The newest connection is taken first: the others grow old, and the store closes
                # them.
                connection = self._idle.pop()
            except IndexError:
                return self._connect()
            if _is_open(connection):
                return connection
            connection.close()

    def _connect(self) -> HTTPConnection:
        connection = self._new()
        try:
            connection.connect()
        except (OSError, HTTPException) as exc:
            connection.close()  # a proxy that does not answer leaves it open
            raise self._unreachable(exc) from exc
        connection.sock.settimeout(self._timeouts.read)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def _unreachable(self, exc: Exception) -> BotoConnectionError:
        if isinstance(exc, TimeoutError):
            return ConnectTimeoutError(endpoint_url=self._address, error=exc)
        if isinstance(exc, ssl.SSLError):
            return SSLError(endpoint_url=self._address, error=exc)
        if self._proxy:
            return ProxyConnectionError(proxy_url=self._proxy, error=exc)
        return EndpointConnectionError(endpoint_url=self._address, error=exc)

    def _new(self) -> HTTPConnection:
        name, port = self._name, self._port
        if self._proxy:
            proxy = urlsplit(self._proxy)
            name, port = proxy.hostname or "", proxy.port or _PORTS["http"]
        if self._tls is None:
            return HTTPConnection(name, port, timeout=self._timeouts.connect)
        secure = HTTPSConnection(name, port, timeout=self._timeouts.connect, context=self._tls)
        if self._proxy:
            secure.set_tunnel(self._name, self._port, _authorization(self._proxy))
        return secure


class _Ear:
    """Notices an answer that begins before the body was sent.

    Over TLS a readable connection proves nothing, because the data may be a session ticket. So the
    beginning of an answer is read, without a wait, into the buffer of its response.

    Args:
        connection: on which the head of a request was sent.
        read_seconds: the time-out that the connection has otherwise.
    """

    def __init__(self, connection: HTTPConnection, method: str, read_seconds: float) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._read_seconds = read_seconds
        self._response = HTTPResponse(connection.sock, method=method)
        self._buffer: BufferedReader = self._response.fp
        self.is_asked_on = False
        """Whether the store has said that it wants the body."""

    def __enter__(self) -> Self:
        # getresponse() must continue with the bytes that were read already.
        self._connection.response_class = lambda *_, **__: self._response  # type: ignore[assignment]
        return self

    def __exit__(self, *error: object) -> None:
        del self._connection.response_class
        if error[0] is not None:
            self._response.close()

    def is_answered(self, wait_seconds: float = 0.0) -> bool:
        """Return whether the answer has begun. Raises OSError.

        Args:
            wait_seconds: how long to wait for the answer, or for the store to ask for the body.
        """
        while start := self._start(wait_seconds):
            if start[9:10] != b"1":
                return True
            while self._buffer.readline(LINE_BYTES) not in (b"\r\n", b"\n", b""):
                pass
            self.is_asked_on, wait_seconds = True, 0.0
        return False

    def _start(self, wait_seconds: float) -> bytes:
        """Return the beginning of what the store sends, or nothing if nothing came yet."""
        for _ in range(RECORDS_MAX):
            if (start := self._peek()) or not wait_seconds:
                return start
            if not _is_readable(self._sock, wait_seconds):
                return b""
        return b""

    def _peek(self) -> bytes:
        self._sock.settimeout(0)
        try:
            start = self._buffer.peek()
            if not 0 < len(start) < STATUS_BYTES:
                return start
            # A buffer that is not empty does not read more, so the line is read once more with the
            # bytes that follow.
            self._buffer = BufferedReader(_Again(self._buffer.read(len(start)), self._buffer))
            self._response.fp = self._buffer
            return b""
        except (ssl.SSLWantReadError, BlockingIOError):
            return b""
        finally:
            self._sock.settimeout(self._read_seconds)


class _Again(RawIOBase):
    """Gives some bytes once more, together with those that follow, and nothing until some follow.

    Args:
        start: the bytes.
        rest: their source, with nothing left in its buffer.
    """

    def __init__(self, start: bytes, rest: BufferedReader) -> None:
        self._start = start
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        view, size = memoryview(buffer), len(self._start)
        count: int | None = self._rest.raw.readinto(view[size:])
        if count is not None:
            view[:size], self._start = self._start, b""
            count += size
        return count

    def close(self) -> None:
        self._rest.close()
        super().close()


def _blocks(body: bytes | Iterable[memoryview]) -> Iterable[memoryview]:
    if not isinstance(body, bytes):
        return body
    view = memoryview(body)
    return (view[at : at + EXPECT_BYTES] for at in range(0, len(view), EXPECT_BYTES))


def _close(connections: Iterable[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def _authorization(proxy: str) -> dict[str, str]:
    user, at, _ = urlsplit(proxy).netloc.rpartition("@")
    if not at:
        return {}
    return {"Proxy-Authorization": f"Basic {base64.b64encode(unquote(user).encode()).decode()}"}


def _is_open(connection: HTTPConnection) -> bool:
    """Return whether a connection is open. It is not if the store has hung up meanwhile."""
    return connection.sock is not None and not _is_readable(connection.sock, 0.0)


def _is_readable(sock: socket.socket, wait_seconds: float) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(wait_seconds * 1000))
