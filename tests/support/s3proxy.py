"""HTTP proxy between the drain and an S3 server, which records each request and injects faults.

Requests, with their Host header, are forwarded byte for byte, so SigV4 signatures stay valid. The
first fault whose predicate matches a request acts on it.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

from tests.support.waiting import until

DEADLINE_SECONDS, SLOW_SECONDS = 60.0, 0.4
TRIES = 3  # rclone answers InternalError to some first uploads into a directory


@dataclass
class Request:
    """One request as it arrived, and its outcome."""

    method: str
    bucket: str
    key: str
    query: dict[str, str]
    copy_source: str | None
    body_bytes: int
    time: float
    """Monotonic seconds."""
    keys: tuple[str, ...] = ()
    """The keys that a DeleteObjects names."""
    headers: dict[str, str] = field(default_factory=dict)
    """The headers, with names in lower case."""
    restore_body: bytes = b""  # the body of a RestoreObject
    status: int | None = None
    """The status of the answer, or None without an answer."""

    @property
    def operation(self) -> str:
        """A short name: PUT, HEAD, LIST, COPY, CREATE, PART, COMPLETE, ABORT, ..."""
        if self.method == "GET" and not self.key:
            return "LIST UPLOADS" if "uploads" in self.query else "LIST"
        if self.method == "POST" and "delete" in self.query:
            return "DELETE"
        if self.method == "GET" and "uploadId" in self.query:
            return "LIST PARTS"
        if self.method == "POST":
            return "CREATE" if "uploads" in self.query else "COMPLETE"
        if self.method == "DELETE" and "uploadId" in self.query:
            return "ABORT"
        if self.method == "PUT" and "partNumber" in self.query:
            return "PART" if self.copy_source is None else "PART COPY"
        return "COPY" if self.copy_source is not None else self.method


Predicate = Callable[[Request], bool]
Headers = list[tuple[str, str]]


class Act(Enum):
    """The effect of a fault on a request."""

    HOLD = "hold"
    """The request is not forwarded until it is released."""
    HOLD_ANSWER = "hold answer"
    """The request is forwarded; its answer waits until it is released."""
    FAIL = "fail"
    """The request is answered with a status and not forwarded."""
    DROP = "drop"
    """The connection is closed, and the request is not forwarded."""
    DROP_ANSWER = "drop answer"
    """The request is forwarded; the connection is closed instead of the answer."""
    SLOW = "slow"
    """The request is forwarded; its answer is delayed by SLOW_SECONDS."""
    TRUNCATE = "truncate"
    """The request is forwarded; the connection is closed in the middle of the answer."""
    CUT = "cut"
    """The request is forwarded; the connection is closed before the end of the body."""
    FLIP = "flip"
    """The request is forwarded; every 4 KiB of the answer's body have a flipped bit."""
    WRONG_ETAG = "wrong etag"
    """The request is forwarded; its answer names another ETag."""


@dataclass
class Fault:
    """A fault that is active until it has acted ``times`` times."""

    matches: Predicate
    act: Act
    times: float
    status: int = 503
    code: str = "SlowDown"
    message: str = "injected"
    headers: tuple[tuple[str, str], ...] = ()
    """The headers of the answer of Act.FAIL."""
    content: str = ""
    """The body of the answer of Act.FAIL, instead of an S3 error."""
    arrived: threading.Event = field(default_factory=threading.Event)
    held: list[Request] = field(default_factory=list)
    """The requests that were or are held."""
    _released: threading.Event = field(default_factory=threading.Event)
    _discarded: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait until a request is held. Raises TimeoutError."""
        if not self.arrived.wait(DEADLINE_SECONDS):
            raise TimeoutError("no request arrived to be held")

    def release(self) -> None:
        """Let held and later requests pass."""
        self.times = 0
        self._released.set()

    def arrive(self) -> None:
        """Let held and later requests pass, and wait until the server has answered the held ones.

        The drain may repair the effect of a late request before a test can see it in the bucket.
        """
        self.release()
        until(lambda: all(r.status is not None for r in self.held), "held requests are answered")

    def discard(self) -> None:
        """Close the connections of held requests; later ones pass."""
        self._discarded.set()
        self.release()

    def hold(self, request: Request) -> bool:
        """Hold a request until its release. Returns False if its connection must be closed."""
        self.held.append(request)
        self.arrived.set()
        self._released.wait()
        return not self._discarded.is_set()


class Verifies(Protocol):
    """What makes the server behind the proxy one that verifies the newer checksums."""

    def refusal(self, request: Request, body: bytes) -> str | None:
        """The code of an error that a request is answered with; None: it is forwarded."""

    def answered(
        self, request: Request, body: bytes, headers: Headers, content: bytes
    ) -> tuple[Headers, bytes]:
        """What is answered to a request that worked."""


class S3Proxy:
    """The proxy; a context manager.

    Args:
        port: port of the S3 server on loopback.
        on_applied: called after the server has answered a request and before the client gets the
            answer.
        certificate: for TLS: the path of the files <certificate>.pem and <certificate>.key, without
            the suffix.
    """

    def __init__(
        self,
        port: int,
        on_applied: Callable[[Request], None] | None = None,
        certificate: Path | None = None,
    ) -> None:
        self.upstream_port = port
        self.on_applied = on_applied
        self.verifier: Verifies | None = None
        self.weather: Callable[[Request], Fault | None] = lambda _request: None
        """Gives the fault for a request that no injected fault matches."""
        self.cuts_body: Callable[[int], bool] = lambda _length: False
        """Whether to reset the connection in the middle of a body of this many bytes."""
        self.is_busy: Callable[[str], bool] = lambda _when: False
        """Whether to answer a request that has a body with 503 and close the connection: before
        the body ("head"), if the client waits to send it, or in its "middle"."""
        self.requests: list[Request] = []
        self.owner_requests: list[Request] = []
        """Those about the owner object, which no fault matches."""
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._scheme = "http"
        if certificate is not None:
            self._scheme = "https"
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(f"{certificate}.pem", f"{certificate}.key")
            # The thread of the connection makes the handshake when it first reads. In the thread
            # that accepts, a slow handshake would stop all other connections.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def inject(
        self,
        matches: Predicate,
        act: Act,
        times: float = 1,
        status: int = 503,
        code: str = "SlowDown",
    ) -> Fault:
        """Add a fault.

        Args:
            status, code: those of the answer of Act.FAIL.
        """
        fault = Fault(matches, act, times, status, code)
        with self.lock:
            self.faults.append(fault)
        return fault

    def operations(self, *names: str) -> list[Request]:
        """Return the recorded requests of these operations, or all if none is given."""
        with self.lock:
            return [r for r in self.requests if not names or r.operation in names]

    def forget(self) -> None:
        """Clear the record of requests."""
        with self.lock:
            self.requests.clear()
            self.owner_requests.clear()

    def fault_for(self, request: Request) -> Fault | None:
        """Record a request and return the fault for it."""
        with self.lock:
            if request.key.endswith("/.spillway/owner.json"):
                self.owner_requests.append(request)
                return None
            self.requests.append(request)
            for fault in self.faults:
                if fault.times > 0 and fault.matches(request):
                    fault.times -= 1
                    return fault
            return self.weather(request)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        for fault in self.faults:
            fault.discard()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with 5, many workers that connect at once wait for repeated SYNs
    block_on_close = False  # with True, the close waits for idle connections of clients
    proxy: S3Proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: that a client is killed is part of a test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def _forward(self) -> None:
        proxy = self.server.proxy
        length = int(self.headers.get("Content-Length") or 0)
        if length and proxy.is_busy("middle"):
            self.rfile.read(length // 2)
            return self._refuse_early()
        if length and proxy.cuts_body(length):
            self.rfile.read(length // 2)
            return self._reset()
        body = self.rfile.read(length)
        if len(body) < length:
            # The client was killed. Forwarded, the request would make the server wait for the rest.
            return self._hang_up()
        request = self._parse(body)
        fault = proxy.fault_for(request)
        act = None if fault is None else fault.act
        if fault is not None and act == Act.FAIL:
            request.status = fault.status
            text = f"<Error><Code>{fault.code}</Code><Message>{fault.message}</Message></Error>"
            content = b"" if self.command == "HEAD" else (fault.content or text).encode()
            return self._answer(fault.status, list(fault.headers), content)
        if act == Act.DROP or (fault and act == Act.HOLD and not fault.hold(request)):
            return self._hang_up()
        verifier = proxy.verifier
        if verifier is not None and (code := verifier.refusal(request, body)) is not None:
            request.status = 400
            content = f"<Error><Code>{code}</Code><Message>checksum</Message></Error>".encode()
            return self._answer(400, [("Content-Length", str(len(content)))], content)
        try:
            status, headers, content = self._ask(body)
        except OSError:
            return self._hang_up()
        if verifier is not None and status < 300:
            headers, content = verifier.answered(request, body, headers, content)
        if proxy.on_applied is not None:
            proxy.on_applied(request)
        if act == Act.DROP_ANSWER or (fault and act == Act.HOLD_ANSWER and not fault.hold(request)):
            return self._hang_up()
        request.status = status
        if act == Act.SLOW:
            time.sleep(SLOW_SECONDS)
        if act == Act.WRONG_ETAG:
            headers = [(n, f'"{"0" * 32}"' if n.lower() == "etag" else v) for n, v in headers]
        if act == Act.FLIP:
            spoilt = bytearray(content)
            spoilt[::4096] = bytes(byte ^ 1 for byte in spoilt[::4096])
            content = bytes(spoilt)
        if act == Act.CUT:
            self._answer(status, headers, content[: len(content) // 2])
            return self._hang_up()
        if act == Act.TRUNCATE:
            headers = [(n, v) for n, v in headers if n.lower() != "content-length"]
            headers.append(("Content-Length", str(len(content) + 10)))
            self._answer(status, headers, content)
            return self._hang_up()
        return self._answer(status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward

    def _parse(self, body: bytes) -> Request:
        url = urlsplit(self.path)
        bucket, _, key = url.path.lstrip("/").partition("/")
        query = parse_qs(url.query, keep_blank_values=True)
        return Request(
            self.command,
            bucket,
            unquote(key),
            {name: values[0] for name, values in query.items()},
            self.headers.get("x-amz-copy-source"),
            len(body),
            time.monotonic(),
            _keys(body) if "delete" in query else (),
            {name.lower(): value for name, value in self.headers.items()},
            body if "restore" in query else b"",
        )

    def _ask(self, body: bytes) -> tuple[int, Headers, bytes]:
        for _ in range(TRIES):
            answer = self._ask_once(body)
            if answer[0] != 500 or self.command != "PUT":
                break
        return answer

    def _ask_once(self, body: bytes) -> tuple[int, Headers, bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.proxy.upstream_port)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        if "content-length" not in names:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def handle_expect_100(self) -> bool:
        """Answer a client that asks before it sends its body. Returns False to end the request."""
        if self.server.proxy.is_busy("head"):
            self._refuse_early()
            return False
        return super().handle_expect_100()

    def _refuse_early(self) -> None:
        content = b"<Error><Code>SlowDown</Code><Message>injected</Message></Error>"
        self._answer(503, [("Content-Length", str(len(content)))], content)
        self.close_connection = True

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: S3Proxy.requests has the record."""


def _keys(body: bytes) -> tuple[str, ...]:
    return tuple(key.text or "" for key in ElementTree.fromstring(body).findall(".//{*}Key"))
