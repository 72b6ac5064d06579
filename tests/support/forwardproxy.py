"""Forward proxy as companies run it: whole URLs over HTTP, CONNECT for TLS."""

from __future__ import annotations

import socket
import threading
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Self
from urllib.parse import quote, urlsplit

from tests.support.tcpproxy import copy


class ForwardProxy:
    """A proxy on loopback that expects a user and a password; a context manager."""

    USER = "user:pass word"

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The first line and the authorization of each connection."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.asked = self.asked
        self.url = f"http://{quote(self.USER, safe=':')}@127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingTCPServer):
    daemon_threads = True
    asked: list[str]


class _Handler(StreamRequestHandler):
    rbufsize = 0
    server: _Server

    def handle(self) -> None:
        lines = []
        while line := self.rfile.readline().decode("latin-1").strip():
            lines.append(line)
        if not lines:
            return
        method, target, _ = lines[0].split()
        said = [line for line in lines if line.lower().startswith("proxy-authorization:")]
        self.server.asked.append(" ".join([lines[0], *said]))
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            upstream = socket.create_connection((host, int(port)))
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            # Each connection carries one request: a second one would not be recorded.
            to = urlsplit(target)
            upstream = socket.create_connection((to.hostname, to.port))
            path = target.partition(to.netloc)[2]
            kept = [f"{method} {path} HTTP/1.1", "Connection: close"]
            kept += [x for x in lines[1:] if not x.lower().startswith(("proxy-", "connection:"))]
            upstream.sendall(("\r\n".join(kept) + "\r\n\r\n").encode("latin-1"))
        with upstream:
            back = threading.Thread(target=copy, args=(upstream, self.request), daemon=True)
            back.start()
            copy(self.request, upstream)
            back.join()
