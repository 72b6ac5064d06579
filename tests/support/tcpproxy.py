"""TCP proxy that fails as networks do.

It cuts a connection between a request and its answer, refuses connections, holds all bytes back, or
leads to another server from then on.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

CHUNK_BYTES = 65_536


class TcpProxy:
    """A proxy from a new loopback port to ``upstream_port``; a context manager."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        """The port to which new connections lead."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cut_after = b""
        self._skip = 0
        self._then_refuse = False
        self._then_port: int | None = None
        self.cuts = 0
        self.accepted = 0
        self.refusing = False
        """Whether new connections are closed at once."""
        self._speaks = threading.Event()
        self._speaks.set()
        self._clients: set[socket.socket] = set()
        self._unheard = False
        self._kept: list[socket.socket] = []
        self._accepts = threading.Thread(target=self._accept, daemon=True)
        self._serving: list[threading.Thread] = []
        self._lock = threading.Lock()

    def cut_after(
        self, text: bytes, *, skip: int = 0, then_refuse: bool = False, then_port: int = 0
    ) -> None:
        """Forward the next request that contains a text, and cut the connection before its answer.

        Args:
            skip: how many such requests are answered before.
            then_refuse: whether to refuse connections from then on.
            then_port: the port to which connections lead from then on.
        """
        with self._lock:
            self._cut_after = text
            self._skip = skip
            self._then_refuse = then_refuse
            self._then_port = then_port or None

    def cut(self, *, unheard: bool = False) -> None:
        """Cut all connections.

        Args:
            unheard: keep the upstream side open.
        """
        with self._lock:
            self._unheard = unheard
            clients = list(self._clients)
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Hold back the bytes of both sides. New connections are accepted and get no answer."""
        self._speaks.clear()

    def speak(self) -> None:
        """End the silence, and forward the bytes that were held back."""
        self._speaks.set()

    def _wants_cut(self, data: bytes) -> bool:
        with self._lock:
            if not self._cut_after or self._cut_after not in data:
                return False
            if (name := _prepared(data)) is not None:
                self._cut_after = name
                return False
            if self._skip > 0:
                self._skip -= 1
                return False
            self._cut_after = b""
            self.cuts += 1
            self.refusing = self._then_refuse
            self.upstream_port = self._then_port or self.upstream_port
            return True

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self.refusing:
                client.close()
                continue
            with self._lock:
                self._clients.add(client)
            serves = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._serving.append(serves)
            serves.start()

    def _serve(self, client: socket.socket) -> None:
        upstream = ("127.0.0.1", self.upstream_port)
        try:
            with client, suppress(OSError):
                server = socket.create_connection(upstream)
                with suppress(OSError):
                    self._forward(client, server)
                if self._unheard:
                    self._kept.append(server)
                else:
                    _end(server)
        finally:
            with self._lock:
                self._clients.discard(client)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        answers = threading.Thread(target=copy, args=(server, client, self._speaks), daemon=True)
        answers.start()
        while data := client.recv(CHUNK_BYTES):
            if self._wants_cut(data):
                # In the other order, bytes of the answer could reach the client.
                client.shutdown(socket.SHUT_RDWR)
                server.sendall(data)
                server.shutdown(socket.SHUT_WR)
                answers.join(10)
                return
            self._speaks.wait()
            server.sendall(data)

    def __enter__(self) -> Self:
        self._accepts.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._speaks.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # accept() would wait on, and the port stay open
        self._accepts.join()
        self._listener.close()
        self.cut()
        # A thread that ends later would leave the upstream side of its connection open.
        for serves in self._serving:
            serves.join()
        for server in self._kept:
            _end(server)


def _end(connection: socket.socket) -> None:
    # A close alone would leave a thread that reads from it waiting.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _prepared(data: bytes) -> bytes | None:
    """Return the name that a message of PostgreSQL's protocol gives to a statement, if it does
    nothing else: the client prepares what it has sent five times."""
    length = int.from_bytes(data[1:5], "big")
    if data[:1] != b"P" or data[1 + length : 2 + length] not in (b"S", b""):
        return None
    return data[5 : data.index(b"\0", 5)] or None


def copy(
    source: socket.socket, target: socket.socket, allowed: threading.Event | None = None
) -> None:
    """Copy bytes from one socket to the other until the end, whenever that is allowed."""
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            if allowed is not None:
                allowed.wait()
            with suppress(OSError):
                target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
