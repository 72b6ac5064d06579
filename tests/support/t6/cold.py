"""NFS server with evicted files, and a hydrator that the test plays, for tests of cold reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.config.settings import Settings
from gateway.namespace.data_files import DataFiles
from gateway.rpc.control import Remote
from gateway.rpc.frames import Op, RpcReply, RpcRequest
from tests.support import nfs4
from tests.support.nfsserver import Server
from tests.support.t6.serving import serving
from tests.support.volumes import query
from tests.support.waiting import until

MIB = 1024 * 1024


GRANULE_BYTES = 4 * MIB


PIECE_BYTES = 512 * 1024


SESSION = 4711


class Site(NamedTuple):
    """A server, a connection of the hydrator's, and a client."""

    server: Server
    control: Remote
    client: nfs4.Client

    @property
    def settings(self) -> Settings:
        return self.server.settings

    def ask(self, op: Op, ino: int, **more: Any) -> RpcReply:
        [answer] = self.control.run([RpcRequest(op, ino, **more)])
        return answer

    def done(self, op: Op, ino: int, **more: Any) -> RpcReply:
        answer = self.ask(op, ino, **more)
        assert answer.errno == 0, os.strerror(answer.errno)
        return answer


class File(NamedTuple):
    """A file, as it was before it was evicted."""

    name: str
    handle: bytes
    data: bytes
    ino: int
    version: int


def start(stack: ExitStack, directory: Path) -> Site:
    server, control = stack.enter_context(serving(directory))
    return Site(server, control, stack.enter_context(nfs4.Client(server.port)))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        yield start(stack, tmp_path_factory.mktemp("cold"))


def path_of(site: Site, ino: int, epoch: int) -> Path:
    return DataFiles(site.settings.files_dir).path(ino, epoch)


def drained(site: Site, name: str, size: int) -> File:
    """Make a file, and the rows that a drain would have made of it."""
    data = os.urandom(size)
    with site.client.opened(site.client.handle("export"), name) as file:
        for at in range(0, size, PIECE_BYTES):
            file.write(data[at : at + PIECE_BYTES], at)
    handle = site.client.handle("export", name)
    ino = site.client.getattr(handle).fileid
    row = "SELECT content_version, write_open FROM inode WHERE ino = :ino"
    until(lambda: query(site.settings, row, ino=ino)[0][1] == 0, "the seal")
    [[version, _]] = query(site.settings, row, ino=ino)
    for statement in (
        "UPDATE inode SET drained_version = content_version WHERE ino = :ino",
        "INSERT INTO object (ino, key, content_version, size, etag, stored_ns)"
        f" SELECT ino, '{name}', content_version, size, 'x', 1 FROM inode WHERE ino = :ino",
        "INSERT INTO block_digest (ino, block_bytes, crcs) VALUES (:ino, 4194304, x'00')",
    ):
        query(site.settings, statement, ino=ino)
    return File(name, handle, data, ino, version)


def wanted(site: Site, ino: int, size: int) -> list[tuple[int, int]]:
    """Take ranges until all bytes of a file are wanted."""
    ranges: list[tuple[int, int]] = []

    def all_wanted() -> bool:
        answer = site.done(Op.WANTED, SESSION, ino2=100)
        if answer.attr is not None and answer.attr.ino == ino:  # others are of earlier tests
            ranges.append((answer.offset, answer.length))
        return sum(length for _, length in ranges) >= size

    until(all_wanted, "the wanted ranges")
    return ranges


def hydrate(site: Site, file: File, epoch: int, offset: int = 0) -> None:
    """Write bytes to the data file as the hydrator does."""
    path = path_of(site, file.ino, epoch)
    with path.open("r+b" if path.exists() else "w+b") as data:
        data.truncate(len(file.data))
        data.seek(offset)
        data.write(file.data[offset:])


def tried(client: nfs4.Client, file: File, offset: int) -> bytes | int:
    try:
        return client.read_once(file.handle, offset, PIECE_BYTES)
    except nfs4.Status as exc:
        return exc.number
