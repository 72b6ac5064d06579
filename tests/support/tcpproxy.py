"""A TCP proxy that can cut a connection at the worst moment: after a request, before its answer."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

CHUNK_BYTES = 65_536


class TcpProxy:
    """Forwards a loopback port to another; a context manager.

    Parameters: upstream_port.
    """

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cut_after = b""
        self.cuts = 0
        self._lock = threading.Lock()

    def cut_after(self, text: bytes) -> None:
        """Let the next request that has a text pass, and drop the connection before the answer."""
        with self._lock:
            self._cut_after = text

    def _wants_cut(self, data: bytes) -> bool:
        with self._lock:
            if not self._cut_after or self._cut_after not in data:
                return False
            self._cut_after = b""
            self.cuts += 1
            return True

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = ("127.0.0.1", self._upstream_port)
        with client, suppress(OSError), socket.create_connection(upstream) as server:
            answers = threading.Thread(target=copy, args=(server, client), daemon=True)
            answers.start()
            while data := client.recv(CHUNK_BYTES):
                if self._wants_cut(data):
                    # First deaf, then forward: no byte of the answer can slip through.
                    client.shutdown(socket.SHUT_RDWR)
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                    answers.join(10)
                    return
                server.sendall(data)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    """What comes from one goes to the other, until the end."""
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            with suppress(OSError):
                target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
