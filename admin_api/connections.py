"""The connections of the admin API: one that says nothing keeps no other out.

Uvicorn bounds the silence after an answer. It has no bound for that before a request, or within
one, and while there are too many connections it refuses every request. Here the connection that
waits for its client gives way to a new one: the oldest of the host that has most of them. That host
cannot end its own younger ones by new ones: the new one is closed instead, before it costs a
handshake.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from admin_api.access.limiter import origin_of
from gateway import clock

CONNECTIONS_MAX = 512
"""Each takes 256 KiB while it speaks TLS (asyncio)."""
HEAD_SECONDS = 15.0
"""The time for the head of a request, since the connection was made or the last answer ended."""
CHANCE_SECONDS = 1.0
"""The time that a connection has before it gives way to another one of its own host."""
STATE = "connection"
"""The name of the connection in the state of its requests."""


class Connection(H11Protocol):
    """A connection whose TLS handshake is over. Parameters: connections; those of uvicorn."""

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
        self.connection: Connection | None = None
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

    Parameters: most, how many there are while one of them waits for its client.
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
        return partial(Connection, self)

    def accepted(self, sock: socket.socket, address: str) -> None:
        """Take a connection, for which another one may have to end. Raises ConnectionAbortedError
        if it is one too many of its host."""
        opened = _Open(sock, address)
        if len(self._open) >= self._most:
            self._make_room(opened.origin)
        self._open[sock.fileno()] = opened

    def made(self, descriptor: int, connection: Connection) -> None:
        """Take what uvicorn has made of a connection."""
        if (found := self._open.get(descriptor)) is not None:
            found.connection = connection

    def _make_room(self, origin: str) -> None:
        now = clock.monotonic_seconds()
        # A crowd comes back at once: to look at all connections each time would take the processor
        # that it wants to take.
        if origin == self._crowd and now < self._crowd_until:
            raise ConnectionAbortedError
        # A socket that was closed has another descriptor than its key.
        self._open = {at: one for at, one in self._open.items() if one.sock.fileno() == at}
        waiting = [one for one in self._open.values() if one.is_waiting]
        if len(self._open) < self._most or not waiting:
            return
        counts = Counter(one.origin for one in waiting)
        found = max(waiting, key=lambda one: (counts[one.origin], -one.since))
        if found.origin == origin and now < found.since + CHANCE_SECONDS:
            self._crowd, self._crowd_until = origin, found.since + CHANCE_SECONDS
            raise ConnectionAbortedError
        del self._open[found.sock.fileno()]
        found.end()


class Listener(socket.socket):
    """A socket that listens. Parameters: listening, which is used up; connections, which get what
    it accepts."""

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
