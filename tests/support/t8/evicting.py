"""A gateway on a small disk, with a drained namespace, and its evictor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gateway.cache.evictor import Evictor
from gateway.common import clock
from gateway.common.types import Residency
from gateway.db.engine import Database
from gateway.objectstore.s3 import S3Store
from gateway.rpc.frames import RpcReply, RpcRequest
from tests.support.direct import Direct
from tests.support.drainsite import Site
from tests.support.namespace import Namespace
from tests.support.tools import run_as_root
from tests.support.volumes import query

DISK_BYTES = 16 << 20
FILE_BYTES = 512 << 10
HOUR_NS = 3600 * clock.NS


@contextmanager
def tmpfs(directory: Path) -> Iterator[None]:
    """Mount a disk of DISK_BYTES on a directory."""
    directory.mkdir(parents=True)
    ours = f"size={DISK_BYTES},uid={os.geteuid()},gid={os.getegid()}"
    run_as_root("mount", "-t", "tmpfs", "-o", ours, "tmpfs", directory)
    try:
        yield
    finally:
        run_as_root("umount", "--lazy", directory)


class RecordingControlSocket:
    """The control socket of a stopped gateway, which keeps the requests.

    Args:
        asked: gets the requests.
        before: hears of them first.
    """

    def __init__(
        self, direct: Direct, asked: list[RpcRequest], before: Callable[[list[RpcRequest]], None]
    ) -> None:
        self._direct = direct
        self._asked = asked
        self._before = before

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        self._before(list(requests))
        self._asked += requests
        return self._direct.run(requests)

    def close(self) -> None:
        self._direct.close()


class Cold(Site):
    """A gateway whose namespace is closed while its evictor works."""

    asked: list[RpcRequest]
    """The requests of the evictors over the control socket."""
    before_asked: Callable[[list[RpcRequest]], None] = staticmethod(lambda _requests: None)
    """Hears of requests before they are answered."""

    def save(self, directory: str, files: int, hours_ago: float) -> list[int]:
        """Make a directory of drained files that were uploaded some hours ago. Returns them."""
        inos = [
            self.write(f"{directory}/f{number:02}", os.urandom(FILE_BYTES))
            for number in range(files)
        ]
        self.drain()
        stored_ns = clock.now_ns() - int(hours_ago * HOUR_NS)
        for ino in inos:
            self.run("UPDATE object SET stored_ns = :ns WHERE ino = :ino", ns=stored_ns, ino=ino)
        return inos

    def read(self, ino: int, hours_ago: float) -> None:
        read_ns = clock.now_ns() - int(hours_ago * HOUR_NS)
        self.run("DELETE FROM last_read WHERE ino = :ino", ino=ino)
        self.run("INSERT INTO last_read VALUES (:ino, :ns)", ino=ino, ns=read_ns)

    def run(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return query(self.settings, statement, **values)

    @contextmanager
    def control(self) -> Iterator[RecordingControlSocket]:
        """Open the namespace in place of a server."""
        self.namespace.close()
        try:
            with closing(
                RecordingControlSocket(Direct(self.settings), self.asked, self.before_asked)
            ) as control:
                yield control
        finally:
            # A control socket inside of this one has opened it.
            self.namespace.close()
            self.namespace = Namespace(self.settings)

    def evictor(self) -> Evictor:
        """Return a new evictor."""
        database = Database(self.settings.database_url)
        return Evictor(self.settings, database, S3Store(self.settings), self.control)

    def absent(self) -> set[int]:
        """Return the absent files. Their data files are gone, and no others."""
        rows = self.run("SELECT ino, epoch, residency, size FROM inode WHERE kind = 1")
        absent = {ino for ino, _epoch, residency, _size in rows if residency == Residency.ABSENT}
        for ino, epoch, _residency, size in rows:
            there = self.namespace.files.path(ino, epoch).exists()
            assert there == (ino not in absent and size > 0), f"data file of inode {ino}"
        return absent

    def used_bytes(self) -> int:
        disk = os.statvfs(self.settings.files_dir)
        return (disk.f_blocks - disk.f_bavail) * disk.f_frsize
