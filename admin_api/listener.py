"""Listening port of the admin API: its connections are bounded, and strangers take turns.

Uvicorn bounds the silence after an answer. It has no bound for that before a request, or within
one, and while there are too many connections it refuses every request. Here the connection that
waits for its client gives way to a new one: the oldest of the host that has most of them. That host
cannot end its own younger ones by new ones: the new one is closed instead, before it costs a
handshake.

Strangers are callers whose token or session this process has not seen yet. Any host that reaches
the port can ask for the login, or send wrong tokens. One such request is answered at a time, before
other work. Of what one host asks more at once than a browser does, the rest is refused, late, so
that who asks without a pause is slowed. Who is known passes, also from the same host.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from admin_api import audit
from admin_api.access import sessions, tokens
from admin_api.access.principal import origin_of
from admin_api.access.sessions import refused_token
from admin_api.access.tokens import InvalidToken, MustWait
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import GovernedGateway
from gateway.common import clock
from gateway.common.errors import UserError
from gateway.common.network import is_loopback
from gateway.config.settings import TLS_OFF, Settings

CONNECTIONS_MAX = 512
"""Each takes 256 KiB while it speaks TLS (asyncio)."""
HEAD_SECONDS = 15.0
"""The time for the head of a request, since the connection was made or the last answer ended."""
CHANCE_SECONDS = 1.0
"""The time that a connection has before it gives way to another one of its own host."""
STATE = "connection"
"""The name of the connection in the state of its requests."""


class TlsConnection(H11Protocol):
    """A connection whose TLS handshake is over.

    Args:
        connections: those of its listener.
        given, named: those of uvicorn.
    """

    def __init__(self, connections: Connections, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.app_state = {**self.app_state, STATE: self}
        self.is_refused = False
        """Whether the answer to its request is a refusal, which is late on purpose."""
        self.since = clock.monotonic_seconds()
        """When its last answer ended, or it was made."""
        self._connections = connections
        self._late: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its client, or its client for a refusal."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return True
        return self.is_refused or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connections.made(transport.get_extra_info("socket").fileno(), self)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._unset_late()

    def on_response_complete(self) -> None:
        self.is_refused = False
        self.since = clock.monotonic_seconds()
        self._await_head()
        super().on_response_complete()  # it may begin the next request, whose head came already
        if not self.cycle.response_complete:
            self._unset_late()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_late()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._unset_late()
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _unset_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Open:
    """An accepted connection."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock = sock
        self.origin = origin_of(address)
        self.connection: TlsConnection | None = None
        """None: its TLS handshake is not over."""
        self._since = clock.monotonic_seconds()

    @property
    def is_waiting(self) -> bool:
        return self.connection is None or self.connection.is_waiting

    @property
    def since(self) -> float:
        return self._since if self.connection is None else self.connection.since

    def end(self) -> None:
        if self.connection is not None:
            self.connection.transport.abort()
        else:
            with suppress(OSError):  # the client ended it
                self.sock.shutdown(socket.SHUT_RDWR)


class Connections:
    """The open connections of one listener. For the thread of its event loop.

    Args:
        most: how many there are while one of them waits for its client.
    """

    def __init__(self, most: int = CONNECTIONS_MAX) -> None:
        self._most = most
        self._open: dict[int, _Open] = {}
        """By descriptor."""
        self._crowd = ""
        """The host that had most when there was no room, and none of its own was old enough."""
        self._crowd_until = 0.0

    def protocol(self) -> Any:
        """Return what uvicorn takes as the class of its connections (``http``)."""
        return partial(TlsConnection, self)

    def accepted(self, sock: socket.socket, address: str) -> None:
        """Take a connection, for which another one may have to end. Raises ConnectionAbortedError
        if it is one too many of its host."""
        opened = _Open(sock, address)
        if len(self._open) >= self._most:
            self._make_room(opened.origin)
        self._open[sock.fileno()] = opened

    def made(self, descriptor: int, connection: TlsConnection) -> None:
        """Take what uvicorn has made of a connection."""
        if (former := self._open.get(descriptor)) is not None:
            former.connection = connection

    def _make_room(self, origin: str) -> None:
        now = clock.monotonic_seconds()
        # A crowd comes back at once: to look at all connections each time would take the processor
        # that it wants to take.
        if origin == self._crowd and now < self._crowd_until:
            raise ConnectionAbortedError
        # A socket that was closed has another descriptor than its key.
        self._open = {
            at: connection
            for at, connection in self._open.items()
            if connection.sock.fileno() == at
        }
        waiting = [connection for connection in self._open.values() if connection.is_waiting]
        if len(self._open) < self._most or not waiting:
            return
        counts = Counter(connection.origin for connection in waiting)
        victim = max(waiting, key=lambda connection: (counts[connection.origin], -connection.since))
        if victim.origin == origin and now < victim.since + CHANCE_SECONDS:
            self._crowd, self._crowd_until = origin, victim.since + CHANCE_SECONDS
            raise ConnectionAbortedError
        del self._open[victim.sock.fileno()]
        victim.end()


class Listener(socket.socket):
    """A socket that listens.

    Args:
        listening: which is used up.
        connections: get what it accepts.
    """

    def __init__(self, listening: socket.socket, connections: Connections) -> None:
        super().__init__(fileno=listening.detach())
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        made, address = super().accept()
        try:
            self._connections.accepted(made, address[0])
        except ConnectionAbortedError:
            # asyncio looks at its other connections then, before it accepts the next one.
            made.close()
            raise
        return made, address


def url_of(settings: Settings) -> str:
    """Return the address of the pages, for a person."""
    admin = settings.admin
    host = f"[{admin.bind}]" if ":" in admin.bind else admin.bind
    return f"{'http' if admin.tls == TLS_OFF else 'https'}://{host}:{admin.port}/"


def require_safe(gateway: GovernedGateway) -> None:
    """Raise UserError if other machines could reach an admin API without TLS or without tokens."""
    settings = gateway.settings
    admin, edit = settings.admin, f"in {settings.source}"
    if is_loopback(admin.bind):
        return
    if admin.tls == TLS_OFF:
        raise UserError(
            f"other machines could reach admin.bind = {admin.bind!r}, and tokens would cross the "
            f'network in the clear: set admin.tls = "self-signed" or "files" {edit}, or '
            'admin.bind = "127.0.0.1"'
        )
    with gateway.store.reading() as session:
        every = tokens.every(session)
    now_ns = clock.now_ns()
    if not any(row.revoked_ns is None and not row.is_expired(now_ns) for row in every):
        raise UserError(
            f"there is no valid token, and other machines could reach admin.bind = {admin.bind!r}: "
            f"make one: spillway token create --role admin --config {settings.source}"
        )


def listen(settings: Settings) -> socket.socket:
    """Return a socket that accepts connections for the admin API. Raises UserError."""
    admin, edit = settings.admin, f"in {settings.source}"
    try:
        addresses = socket.getaddrinfo(admin.bind, admin.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = addresses[0]
        listener = socket.create_server(address, family=family)
    except OSError as exc:
        remedies = {
            errno.EADDRINUSE: f"stop the program that has it (ss -ltnp 'sport = :{admin.port}') "
            f"or set admin.port {edit}",
            errno.EACCES: f"set admin.port to 1024 or higher {edit}",
            errno.EADDRNOTAVAIL: f"set admin.bind to an address of this machine {edit}",
        }
        remedy = remedies.get(exc.errno or 0, f"check admin.bind and admin.port {edit}")
        is_named = isinstance(exc, socket.gaierror)
        reason = exc.strerror if is_named or exc.errno is None else os.strerror(exc.errno)
        raise UserError(
            f"cannot listen on port {admin.port} of {admin.bind}: {reason}: {remedy}"
        ) from None
    # Else the body of each answer waits for 40 ms, until the client acknowledges its head. asyncio
    # sets it only for sockets that name their protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


OF_ONE_HOST = 16
"""The requests of strangers from one host that wait or are answered at once. A browser asks for the
login page and for what is in it."""
OF_ALL = 64
REFUSED_SECONDS = 1.0
"""A refusal is as late."""
STRANGERS_STATE = "is_stranger"
"""The name in the state of a request that says whether a stranger sent it."""


class StrangerLimitMiddleware:
    """ASGI application around another one, in which strangers take turns.

    Args:
        exempt: the beginnings of the paths that probes ask for without a token. They never wait.
    """

    def __init__(self, app: ASGIApp, gateway: GovernedGateway, exempt: Collection[str]) -> None:
        self._app = app
        self._gateway = gateway
        self._exempt = tuple(exempt)
        self._stranger = asyncio.Lock()
        self._present: Counter[str] = Counter()
        """The requests that wait or are answered, by the host."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(self._exempt):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if await self._is_known(request):
            await self._app(scope, receive, send)
            return
        scope["state"][STRANGERS_STATE] = True
        # A call that waited for the rest of a body would keep all others waiting.
        body = await _read(receive)
        if body is not None:
            async with self._turn_of(request):
                await self._app(scope, _again(body, receive), send)

    async def _is_known(self, request: Request) -> bool:
        """Return whether a request has a token or a session that is, or was, valid. Raises Problem
        for a token that is not."""
        verifier = self._gateway.verifier
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if not verifier.known.has(token):
                call = audit.current(request)
                async with self._turn_of(request):
                    try:
                        await run_in_threadpool(verifier.verify, token, call.address)
                    except (InvalidToken, MustWait) as exc:
                        gateway = self._gateway
                        raise await run_in_threadpool(refused_token, gateway, call, exc) from None
            return True
        secret = request.cookies.get(sessions.COOKIE)
        if secret is None or verifier.known.has(secret):
            return secret is not None
        async with self._turn_of(request):
            try:
                return await run_in_threadpool(sessions.is_open, self._gateway, secret)
            except InvalidToken:
                return False

    @asynccontextmanager
    async def _turn_of(self, request: Request) -> AsyncIterator[None]:
        """Wait for the slot of strangers. Raises Problem if too many wait."""
        origin = origin_of(request.client.host) if request.client else ""
        if self._present[origin] >= OF_ONE_HOST or self._present.total() >= OF_ALL:
            await _refuse(request)
        self._present[origin] += 1
        try:
            async with self._stranger:
                yield
        finally:
            self._present -= Counter({origin: 1})


async def _refuse(request: Request) -> None:
    connection = getattr(request.state, STATE, None)
    if connection is not None:
        connection.is_refused = True
    await asyncio.sleep(REFUSED_SECONDS)
    raise Problem(
        ProblemCode.REQUEST_LIMIT,
        "too many requests at once without a token that was seen here: wait, and ask for less",
        {"Retry-After": "5", "Connection": "close"},
    )


async def _read(receive: Receive) -> deque[Message] | None:
    """Return the messages that a body comes in, or None: its client is gone."""
    messages: deque[Message] = deque()
    while not messages or messages[-1].get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        messages.append(message)
    return messages


def _again(body: deque[Message], receive: Receive) -> Receive:
    """Return what reads a body that was read."""

    async def read() -> Message:
        return body.popleft() if body else await receive()

    return read
