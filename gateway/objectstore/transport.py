"""HTTP to one address over connections that stay open, with the standard library alone.

botocore's own way, over urllib3, takes much more processor time for the same request. Errors are
botocore's, so that nobody has to know which way a request went.
"""

from __future__ import annotations

import base64
import select
import socket
import ssl
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

_PORTS = {"http": 80, "https": 443}


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    content: bytes


class Timeouts(NamedTuple):
    """In seconds."""

    connect: float
    read: float
    """For which nothing moves, either way."""


class Transport:
    """Sends requests. Safe to use from several threads; keeps as many connections as were used at
    once. Heeds the proxies of the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).

    Parameters: address, scheme, host and port; ca_bundle, a file of certificates, empty: the usual
    ones; timeouts. Nothing is contacted yet.
    """

    def __init__(self, address: str, ca_bundle: str, timeouts: Timeouts) -> None:
        to = urlsplit(address)
        self._address = address
        self._name = to.hostname or ""
        self._port = to.port or _PORTS[to.scheme]
        name = f"[{self._name}]" if ":" in self._name else self._name
        self.host = name if self._port == _PORTS[to.scheme] else f"{name}:{self._port}"
        """What the Host header says."""
        proxy = get_environ_proxies(address).get(to.scheme, "")
        self._proxy = proxy if not proxy or "://" in proxy else f"http://{proxy}"
        self._timeouts = timeouts
        self._tls = None
        if to.scheme == "https":
            self._tls = ssl.create_default_context(cafile=ca_bundle or get_cert_path(True))
        self._idle: deque[HTTPConnection] = deque()
        # Nobody says when a transport is needed no longer: credentials are read again, and it goes.
        weakref.finalize(self, _close, self._idle)

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[memoryview],
    ) -> Answer:
        """One request and its answer.

        Parameters: method; target, path and query, percent-encoded; headers, Content-Length among
        them; body, which may not raise OSError. Raises botocore's ConnectionError or
        HTTPClientError.
        """
        connection = self._connected()
        try:
            answer = self._exchange(connection, method, target, headers, body)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def _exchange(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[memoryview],
    ) -> Answer:
        if self._proxy and self._tls is None:
            target, headers = self._address + target, {**headers, **_authorization(self._proxy)}
        is_cut = False
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", self.host)
            for name, value in headers.items():
                connection.putheader(name, value)
            try:
                connection.endheaders(body)
            except (BrokenPipeError, ConnectionResetError):
                # The store may have said why before it hung up.
                is_cut = True
            found = connection.getresponse()
            named = {name.lower(): value for name, value in found.headers.items()}
            answer = Answer(found.status, named, found.read())
        except TimeoutError as exc:
            raise ReadTimeoutError(endpoint_url=self._address, error=exc) from exc
        except ssl.SSLError as exc:
            raise SSLError(endpoint_url=self._address, error=exc) from exc
        except (OSError, HTTPException) as exc:
            raise ConnectionClosedError(endpoint_url=self._address, error=exc) from exc
        if is_cut:
            connection.close()
        return answer

    def _connected(self) -> HTTPConnection:
        while True:
            try:
                # The last one first: those that are not needed any more grow old and are closed.
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
        except TimeoutError as exc:
            raise ConnectTimeoutError(endpoint_url=self._address, error=exc) from exc
        except ssl.SSLError as exc:
            raise SSLError(endpoint_url=self._address, error=exc) from exc
        except (OSError, HTTPException) as exc:
            if self._proxy:
                raise ProxyConnectionError(proxy_url=self._proxy, error=exc) from exc
            raise EndpointConnectionError(endpoint_url=self._address, error=exc) from exc
        connection.sock.settimeout(self._timeouts.read)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

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


def _close(connections: Iterable[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def _authorization(proxy: str) -> dict[str, str]:
    user, at, _ = urlsplit(proxy).netloc.rpartition("@")
    if not at:
        return {}
    return {"Proxy-Authorization": f"Basic {base64.b64encode(unquote(user).encode()).decode()}"}


def _is_open(connection: HTTPConnection) -> bool:
    """False: the store has hung up meanwhile."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)
