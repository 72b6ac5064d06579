"""A receiver of webhooks: a real HTTP server, which verifies signatures and can be told to fail."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"


class Hook:
    """What a receiver got, and how it answers."""

    def __init__(self) -> None:
        self.answers: list[int | tuple[int, dict[str, str]]] = []
        """The answers to the next requests; then 204."""
        self.got: list[dict[str, Any]] = []
        """The documents of requests that were taken."""
        self.ids: list[str] = []
        """The webhook-id of each request, taken or not."""
        self.wrong: list[str] = []
        """What was wrong with requests."""
        self.is_silent = threading.Event()
        """Set: requests are not answered until it is cleared."""
        self.goes_on = threading.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def types(self) -> list[str]:
        return [document["type"] for document in self.got]

    def take(self, headers: Any, body: bytes) -> tuple[int, dict[str, str]]:
        """Take a request. Returns the status and headers of the answer."""
        id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        signed = f"{id}.{timestamp}.".encode() + body
        digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        document = json.loads(body)
        if headers["webhook-signature"] != f"v1,{digest}":
            self.wrong.append("signature")
        if document["id"] != id or headers["Content-Type"] != "application/json":
            self.wrong.append("head")
        self.ids.append(id)
        if self.is_silent.is_set():
            self.goes_on.wait(30)
        answer = self.answers.pop(0) if self.answers else 204
        status, more = answer if isinstance(answer, tuple) else (answer, {})
        if 200 <= status < 300:
            self.got.append(document)
        return status, more


@contextmanager
def receiving(port: int = 0) -> Iterator[Hook]:
    """Serve a receiver. Args: port, 0 for any."""
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers = hook.take(self.headers, body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", port), Handler)
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hook
    finally:
        hook.goes_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


def table(directory: Path, hook: Hook, name: str = "chat", **more: Any) -> dict[str, Any]:
    """Return the table of a receiver, and write its secret."""
    path = directory / f"{name}.secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return {"name": name, "url": hook.url, "secret_file": str(path), **more}
