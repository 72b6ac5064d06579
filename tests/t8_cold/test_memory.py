"""The memory of the hydrator, with more bytes to fetch than there is memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme

from gateway.rpc.frames import Op
from tests.support.drainsite import MIB
from tests.support.t8.site import BLOCK_BYTES, ColdSite

SIZE = 10 * 1024 * MIB
FILES = 64
MEMORY_MAX_KIB = 512 * 1024

BLOCK = os.urandom(BLOCK_BYTES)


class _Repeating(BaseHTTPRequestHandler):
    """Answers every GET with the range of an object all of whose blocks are the same."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        self.send_response_only(206)
        self.send_header("Content-Length", str(int(last) - int(first) + 1))
        self.end_headers()
        for _ in range(int(first), int(last), BLOCK_BYTES):
            self.wfile.write(BLOCK)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the hydrator is killed in the middle of a body."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = _Listener(("127.0.0.1", 0), _Repeating)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def make_large(site: ColdSite) -> list[int]:
    """Make absent files without writing their bytes anywhere."""
    inos = [site.write(f"f{number}", b"x") for number in range(FILES)]
    blocks = SIZE // BLOCK_BYTES
    crcs = (crc64nvme(BLOCK).to_bytes(8, "big") * blocks).hex()
    for change in (
        f"UPDATE inode SET size = {SIZE}, drained_version = 1, residency = 0 WHERE kind = 1",
        "INSERT INTO object SELECT ino, 'key-' || ino, content_version, size, 'etag', NULL, 0,"
        " NULL FROM inode WHERE kind = 1",
        f"INSERT INTO block_digest SELECT ino, {BLOCK_BYTES}, x'{crcs}' FROM object",
    ):
        site.rows(f"{change} RETURNING 1")
    for ino in inos:
        site.namespace.files.remove(ino, 0)
    return inos


def test_memory_is_bounded_with_many_large_files(site: ColdSite, endpoint: str) -> None:
    inos = make_large(site)
    site.values["bucket"]["endpoint_url"] = endpoint
    site.configure("cache", workers=16)
    with site.control, site.process("cache") as process:
        for ino in inos:
            site.control.want(ino, SIZE // 2)
        for ino in inos:
            site.control.wait(Op.PRESENT, ino, 1, 60)
        status = Path(f"/proc/{process.pid}/status").read_text()
    peak_kib = int(status.split("VmHWM:")[1].split()[0])
    print(f"{FILES} files of {SIZE // MIB} MiB in flight: {peak_kib} KiB")
    assert peak_kib < MEMORY_MAX_KIB
