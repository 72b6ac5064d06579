"""A gateway with absent files, and the hydrator."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.cache.hydrator import Hydrator
from gateway.common.types import Attr, Residency
from gateway.db.drain_models import HYDRATE
from gateway.namespace import residency
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.fake_control_socket import FakeControlSocket
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import Server
from tests.support.waiting import until

BLOCK_BYTES = 4 * MIB


class ColdSite(Site):
    """One gateway and one bucket. Args: as of Site."""

    def __init__(self, directory: Path, server: Server, bucket: str, proxy: S3Proxy) -> None:
        super().__init__(directory, server, bucket, proxy)
        # The disk of the tests may be full of other things.
        self.configure("cache", workers=4, evict_from=1.0)
        self.configure("space", slow_from=0.999, reserve_bytes=0)
        self.control = FakeControlSocket(self.namespace, self.settings.run_dir)

    def evict(self, ino: int) -> Attr:
        """Evict a file as the server does."""
        before = self.namespace.getattr(ino)
        version = self.rows(f"SELECT content_version FROM inode WHERE ino = {ino}")[0][0]
        attr = self.namespace.run(residency.evict, ino, version, None)
        self.namespace.files.remove(ino, before.epoch)
        self.rows(f"DELETE FROM eviction WHERE ino = {ino} RETURNING 1")
        return attr

    def cold(self, files: dict[str, bytes]) -> list[int]:
        """Make absent files. Returns their inodes."""
        inos = [self.write(path, data) for path, data in files.items()]
        self.drain()
        assert self.is_clean()
        for ino, data in zip(inos, files.values(), strict=True):
            self.evict(ino)
            self.control.expected[ino] = data
        self.proxy.forget()
        return inos

    def cold_file(self, size: int, path: str = "f") -> tuple[int, bytes]:
        """Make an absent file with random bytes. Returns inode and bytes."""
        data = os.urandom(size)
        return self.cold({path: data})[0], data

    def replace(self, path: str, data: bytes) -> None:
        """Replace an object behind the gateway's back."""
        self.client.put_object(Bucket=self.bucket, Key=f"{PREFIX}/{path}", Body=data)

    def bytes_of(self, ino: int) -> bytes:
        """Return the bytes of the data file of the current epoch."""
        return self.namespace.files.path(ino, self.namespace.getattr(ino).epoch).read_bytes()

    def is_resident(self, ino: int) -> bool:
        return self.namespace.getattr(ino).residency == Residency.RESIDENT

    def arrive(self, ino: int, seconds: float = 30.0) -> None:
        """Wait until a file is resident."""
        until(lambda: self.is_resident(ino), f"the arrival of inode {ino}", seconds)

    def finish(self, hydrator: Hydrator, seconds: float = 30.0) -> None:
        """Wait until no client waits, and the hydrator has nothing left to do."""
        until(
            lambda: not self.control.lacking() and len(hydrator._scheduler) == 0,
            "the end of all hydrations",
            seconds,
        )

    def hydrate(self, ino: int, data: bytes, at: int = 0) -> None:
        """Let a client wait for a byte of an absent file, until the file is back with its bytes."""
        with self.hydrating() as hydrator:
            self.control.want(ino, at)
            self.finish(hydrator)
        assert self.bytes_of(ino) == data

    def fetched_bytes(self) -> int:
        """Return the bytes that were asked for in ranges."""
        total = 0
        for request in self.gets():
            first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
            total += int(last) - int(first) + 1
        return total

    def gets(self) -> list[Any]:
        return [request for request in self.proxy.operations("GET") if "range" in request.headers]

    def retries(self) -> list[tuple[Any, ...]]:
        return self.rows(f"SELECT ino, key, tries, error FROM retry WHERE work = '{HYDRATE}'")

    def durable(self, ino: int) -> list[int]:
        """Return the blocks that the durable map names."""
        rows = self.rows(f"SELECT blocks FROM present_blocks WHERE ino = {ino}")
        bits = int.from_bytes(bytes(rows[0][0]), "little") if rows else 0
        return [block for block in range(bits.bit_length()) if bits >> block & 1]

    def cache_report(self) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(
                (self.settings.run_dir / "cache.json").read_text()
            )
        except FileNotFoundError:
            return {}
        return document

    @contextmanager
    def hydrating(self) -> Iterator[Hydrator]:
        """Run the hydrator on threads of this process, and the control socket."""
        stop = threading.Event()
        hydrator = Hydrator(self.settings, stop)
        thread = threading.Thread(target=hydrator.run)
        thread.start()
        try:
            with self.control:
                yield hydrator
        finally:
            stop.set()
            thread.join(20)
            assert not thread.is_alive()
        assert self.control.wrong == []
