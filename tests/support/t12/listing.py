"""Server of listings: it answers ListObjectsV2 of a bucket of any size, whose keys are computed.

A real server would take hours to be filled with a million objects. What it does with a listing is
shown on real ones (tests/t12_recovery/test_imports.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAGE = 1000
IN_A_DIRECTORY = 1000
_ENTRY = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
    "<ETag>&quot;{number:032x}&quot;</ETag><Size>{size}</Size></Contents>"
)


def key_of(number: int) -> str:
    """Return the key of an object."""
    return f"set/{number // IN_A_DIRECTORY:06}/{number:09}.jpg"


class ListingServer(ThreadingHTTPServer):
    """The server.

    Args:
        objects: how many there are.
    """

    daemon_threads = True

    def __init__(self, objects: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects
        self.methods: set[str] = set()
        self.listings = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ListingServer

    def do_GET(self) -> None:
        self.server.methods.add(self.command)
        self.server.listings += 1
        query = parse_qs(urlsplit(self.path).query)
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        first = int(after.rpartition("/")[2].removesuffix(".jpg")) + 1 if after else 0
        end = min(first + PAGE, self.server.objects)
        entries = "".join(
            _ENTRY.format(key=key_of(number), number=number, size=1 + number % 1000)
            for number in range(first, end)
        )
        is_cut = end < self.server.objects
        following = f"<NextContinuationToken>{key_of(end - 1)}</NextContinuationToken>"
        body = (
            '<?xml version="1.0"?><ListBucketResult '
            'xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{following if is_cut else ''}"
            f"{entries}</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self) -> None:
        self.server.methods.add(self.command)
        self.send_error(405)

    do_PUT = do_POST = do_DELETE = _refuse

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def listing(objects: int) -> Iterator[ListingServer]:
    """Run a server of so many objects."""
    with ListingServer(objects) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
