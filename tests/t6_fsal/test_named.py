"""What clients of a real NFS server see of a link when the checkpoint that it names changes."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.common.types import GATEWAY_CRED
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import RUNS_INO, TRASH_INO
from gateway.namespace import fingerprint, latest_links
from gateway.rpc.control import ControlSocket
from gateway.rpc.frames import Op, RpcRequest
from tests.support import nfs4, trash
from tests.support.nfs4 import op, opaque, putfh
from tests.support.nfsserver import Server
from tests.support.t6.serving import serving
from tests.support.waiting import until

LINK, NEW = b"latest-complete", b".new~latest-complete"


class Site(NamedTuple):
    server: Server
    control: ControlSocket
    client: nfs4.Client
    """It changes checkpoints."""
    reader: nfs4.Client
    """It reads links."""

    @contextmanager
    def reading(self) -> Iterator[Session]:
        url = self.server.settings.database_url
        with closing(Database(url)) as database, database.reading() as session:
            yield session

    def ask(self, asked: Op, *values: Any) -> int:
        """Ask over the control socket as the gateway. Returns an errno.

        Args:
            values: values of the request.
        """
        [answer] = self.control.run([RpcRequest(asked, *values)._replace(cred=GATEWAY_CRED)])
        return answer.errno

    def mkdir(self, above: bytes, name: str) -> None:
        self.client.mkdir(above, name)

    def change_of(self, *names: str) -> int:
        return self.reader.getattr(self.reader.handle("export", *names)).change

    def target(self, run: str) -> bytes | None:
        try:
            handle = self.reader.handle("export", ".spillway", "runs", run, LINK.decode())
        except nfs4.Status as exc:
            assert exc.number == nfs4.NOENT
            return None
        reply = self.reader.call(putfh(handle), op(nfs4.READLINK))
        reply.unpack("IIII")
        return reply.opaque()

    def name(self, run: str) -> int:
        """Have a link name the checkpoint of a run. Returns the inode of the checkpoint."""
        self.ask(Op.MKDIR, RUNS_INO, run.encode())
        fileid = self.reader.lookup(self.reader.handle("export", ".spillway", "runs"), run).fileid
        ino = self.reader.lookup(self.reader.handle("export", run), "step").fileid
        with self.reading() as session:
            seen = latest_links.seen(session, ino)
        target = f"../../../{run}/step".encode()
        assert self.ask(Op.SYMLINK, fileid, NEW, 0, target) == 0
        assert self.ask(Op.RENAME, fileid, NEW, fileid, LINK, seen + 1) == errno.EBUSY
        assert self.ask(Op.RENAME, fileid, NEW, fileid, LINK, seen) == 0
        assert self.target(run) == target
        return ino


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("named")
    with ExitStack() as stack:
        server, control = stack.enter_context(serving(directory))
        clients = [stack.enter_context(nfs4.Client(server.port)) for _ in range(2)]
        yield Site(server, control, *clients)


def save(site: Site, run: str) -> bytes:
    """Save a checkpoint. Returns the handle of its directory."""
    site.mkdir(site.client.handle("export"), run)
    site.mkdir(site.client.handle("export", run), "step")
    directory = site.client.handle("export", run, "step")
    for name in ("a", "b"):
        with site.client.opened(directory, name) as file:
            file.write(b"12345")
    site.mkdir(directory, "deep")

    ino = site.client.lookup(site.client.handle("export", run), "step").fileid

    def is_sealed() -> bool:
        with site.reading() as session:
            return fingerprint.of(session, ino).open_files == 0

    until(is_sealed, "the files are sealed")
    return directory


def open_again(site: Site, at: bytes) -> None:
    with site.client.opened(at, "a"):
        assert site.target("open_again") is None


def empty(site: Site, at: bytes) -> None:
    with site.client.opened(at, "a", empties=True):
        assert site.target("empty") is None


def create(site: Site, at: bytes) -> None:
    with site.client.opened(at, "new"):
        assert site.target("create") is None


def mkdir(site: Site, at: bytes) -> None:
    site.mkdir(at, "new")


def mkdir_below(site: Site, at: bytes) -> None:
    site.mkdir(site.client.handle("export", "mkdir_below", "step", "deep"), "new")


def remove(site: Site, at: bytes) -> None:
    site.client.remove(at, "b")


def rename(site: Site, at: bytes) -> None:
    site.client.rename(at, "a", "b")


def rename_the_run(site: Site, at: bytes) -> None:
    site.client.rename(site.client.handle("export"), "rename_the_run", "other")


def link(site: Site, at: bytes) -> None:
    file = site.client.handle("export", "link", "step", "a")
    site.client.call(putfh(file), op(nfs4.SAVEFH), putfh(at), op(nfs4.LINK) + opaque(b"c"))


def truncate(site: Site, at: bytes) -> None:
    file = site.client.handle("export", "truncate", "step", "a")
    size = struct.pack(">II", 1, 1 << 4) + opaque(bytes(8))
    site.client.call(putfh(file), op(nfs4.SETATTR) + bytes(16) + size)


def put_into_the_trash(site: Site, at: bytes) -> None:
    run = site.client.lookup(site.client.handle("export"), "put_into_the_trash").fileid
    step = site.client.lookup(site.client.handle("export", "put_into_the_trash"), "step").fileid
    trash.reserve(site.server.settings, step)
    assert site.ask(Op.RENAME, run, b"step", TRASH_INO, b"t1") == 0


CHANGES: list[Callable[[Site, bytes], None]] = [
    *(open_again, empty, create, mkdir, mkdir_below, remove, rename, rename_the_run, link),
    *(truncate, put_into_the_trash),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_link_is_gone_when_the_change_is_answered(
    change: Callable[[Site, bytes], None], site: Site
) -> None:
    run = change.__name__
    at = save(site, run)
    site.name(run)
    runs = site.reader.handle("export", ".spillway", "runs", run)
    assert site.reader.names(runs) == [LINK.decode()]
    before = site.change_of(".spillway", "runs", run)
    change(site, at)
    assert site.target(run) is None
    assert site.reader.names(runs) == []
    assert site.change_of(".spillway", "runs", run) > before


def test_what_is_not_of_the_checkpoint_leaves_the_link(site: Site) -> None:
    at = save(site, "left")
    site.name("left")
    above = site.client.handle("export", "left")
    site.mkdir(above, "next")
    with site.client.opened(above, "beside") as file:
        file.write(b"1")
    with site.client.opened(at, "a", reads=True):
        pass
    assert site.target("left") is not None
