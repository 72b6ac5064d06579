"""Tests the control socket of a real NFS server: what clients see after its answers, and what it
survives."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.common.types import Attr, Cred, SetAttr
from gateway.config.settings import Settings
from gateway.db.models import ROOT_INO
from gateway.namespace.data_files import DataFiles
from gateway.rpc.control import ControlSocket, Remote, opened
from gateway.rpc.frames import Op, RpcRequest
from tests.support import nfs4
from tests.support.nfsserver import Server
from tests.support.t6.serving import await_control_socket, serving
from tests.support.volumes import query
from tests.support.waiting import until

RENAMES = int(os.environ.get("SPILLWAY_CONTROL_RENAMES", "600"))
HAMMERS = 3
BYTES = b"some bytes"


class Site(NamedTuple):
    """A server, its control socket and a client of it."""

    server: Server
    control: ControlSocket
    client: nfs4.Client

    @property
    def settings(self) -> Settings:
        return self.server.settings

    def ask(self, op: Op, ino: int, name: bytes = b"", **more: Any) -> Attr:
        """Have one request done. If the answer has no attributes, return those of the directory."""
        request = RpcRequest(op, ino, name)._replace(**more)
        [answer] = self.control.run([request])
        assert answer.errno == 0, os.strerror(answer.errno)
        if answer.attr is not None:
            return answer.attr
        [answer] = self.control.run([RpcRequest(Op.GETATTR, ino)])
        assert answer.attr is not None
        return answer.attr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("control")
    with serving(directory) as (server, control), nfs4.Client(server.port) as client:
        yield Site(server, control, client)


def look(client: nfs4.Client, file: nfs4.File, directory: bytes) -> int:
    """List a directory, look up its last names and read those that are files. A name may disappear
    at this moment. Returns how many files were read."""
    opened = 0
    try:
        for name in client.names(directory)[-3:]:
            if client.lookup(directory, name).kind == nfs4.REGULAR:
                assert file.content(directory, name) == BYTES
                opened += 1
    except nfs4.Status as exc:
        assert exc.number in (nfs4.NOENT, nfs4.STALE)
    return opened


@contextmanager
def hammered(site: Site, *paths: str) -> Iterator[list[int]]:
    """Let clients list directories, look up and read what they find, while another process changes
    them. At the end the list has how many files each client has read."""
    done = threading.Event()
    failures: list[BaseException] = []
    counts: list[int] = []
    inos = [site.ask(Op.LOOKUP, ROOT_INO, path.encode()).ino for path in paths]

    def hammer() -> None:
        with nfs4.Client(site.server.port) as client:
            handles = [client.handle("export", path) for path in paths]
            file = client.file(handles[0], "", reads=True)
            count = 0
            while not done.is_set():
                for handle in handles:
                    client.getattr(handle)
                    count += look(client, file, handle)
            counts.append(count)

    def change() -> None:
        with opened(site.settings) as control:
            while not done.is_set():
                for op in (Op.MKDIR, Op.REMOVE):
                    answers = control.run([RpcRequest(op, ino, b"busy") for ino in inos])
                    assert not any(answer.errno for answer in answers)

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=run, args=(act,)) for act in (change, *[hammer] * HAMMERS)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures


def names(client: nfs4.Client, directory: bytes) -> list[str]:
    """Return a listing. Ganesha fails the whole listing when an entry disappears meanwhile."""
    while True:
        try:
            return client.names(directory)
        except nfs4.Status as exc:
            assert exc.number == nfs4.STALE


def test_clients_never_see_less_than_the_control_socket_has_answered(site: Site) -> None:
    """The control socket renames a directory and a file back and forth between directories that
    clients list and look into."""
    client = site.client
    inos = [site.ask(Op.MKDIR, ROOT_INO, name.encode()).ino for name in ("here", "there")]
    handles = [client.handle("export", name) for name in ("here", "there")]
    for number in range(20):
        site.ask(Op.MKDIR, inos[0], b"other%d" % number)
    moved = site.ask(Op.MKDIR, inos[0], b"moved").ino
    inside = client.handle("export", "here", "moved")
    with client.opened(handles[0], "file") as made:
        made.write(BYTES)
    fileid = client.getattr(made.handle).fileid
    file = client.file(handles[0], "file", reads=True)
    at, old = 0, ("moved", "file")
    with hammered(site, "here", "there") as counts:
        for number in range(RENAMES):
            to, new = (at if number % 3 else 1 - at), (f"moved{number}", f"file{number}")
            attr, _ = (
                site.ask(Op.RENAME, inos[at], was.encode(), ino2=inos[to], name2=name.encode())
                for was, name in zip(old, new, strict=True)
            )
            assert client.is_absent(handles[at], old[0])
            attributes = client.lookup(handles[to], new[0])
            assert attributes.fileid == moved
            assert attributes.change >= attr.change
            assert client.getattr(inside).change >= attr.change
            with pytest.raises(nfs4.Status, match=f" {nfs4.NOENT}$"):
                file.content(handles[at], old[1])
            assert file.content(handles[to], new[1]) == BYTES
            assert client.getattr(file.handle).fileid == fileid
            for which in {at, to}:
                told = site.ask(Op.GETATTR, inos[which]).change
                assert client.getattr(handles[which]).change >= told
                if number % 10 == 0:
                    listed = set(names(client, handles[which]))
                    assert listed & {*new} == ({*new} if which == to else set())
                    assert not listed & {*old}
            at, old = to, new
    print(f"{RENAMES} renames of each, {sum(counts)} files read meanwhile")
    assert min(counts) > 0


def test_both_directories_of_a_rename_are_told(site: Site) -> None:
    """No other client is there that would make the server look at the directories again."""
    client = site.client
    inos = [site.ask(Op.MKDIR, ROOT_INO, name.encode()).ino for name in ("from", "to")]
    handles = [client.handle("export", name) for name in ("from", "to")]
    moved = site.ask(Op.MKDIR, inos[0], b"moved").ino
    inside = client.handle("export", "from", "moved")
    at, to = 0, 1
    for _ in range(20):
        before = [client.getattr(handle).change for handle in (*handles, inside)]
        assert [client.names(handle) for handle in handles] == [
            ["moved"] * (1 - at),
            ["moved"] * at,
        ]
        site.ask(Op.RENAME, inos[at], b"moved", ino2=inos[to], name2=b"moved")
        after = [client.getattr(handle).change for handle in (*handles, inside)]
        assert all(new > old for new, old in zip(after, before, strict=True))
        assert client.is_absent(handles[at], "moved")
        assert client.lookup(handles[to], "moved").fileid == moved
        at, to = to, at


def test_what_the_control_socket_makes_and_removes_is_seen_at_once(site: Site) -> None:
    client = site.client
    top = site.ask(Op.MKDIR, ROOT_INO, b"top").ino
    handle = client.handle("export", "top")
    with hammered(site, "top"):
        for number in range(RENAMES // 5):
            name = f"d{number}"
            assert client.is_absent(handle, name)
            made = site.ask(Op.MKDIR, top, name.encode(), wanted=SetAttr(mode=0o700))
            assert client.lookup(handle, name).fileid == made.ino
            inside = client.handle("export", "top", name)
            site.ask(Op.SYMLINK, top, b"link", name2=b"target")
            assert client.lookup(handle, "link").names == 1
            site.ask(Op.REMOVE, top, b"link")
            changed = site.ask(Op.SETATTR, made.ino, wanted=SetAttr(mtime_ns=number))
            assert client.getattr(inside).change >= changed.change
            site.ask(Op.REMOVE, top, name.encode())
            assert client.is_absent(handle, name)
            assert name not in names(client, handle)
            with pytest.raises(nfs4.Status) as stale:
                client.getattr(inside)
            assert stale.value.number == nfs4.STALE


def is_reclaimed(site: Site, path: Path) -> bool:
    """Whether neither the row nor the bytes of a file are there."""
    ino = int(path.name.partition(".")[0])
    return not query(site.settings, "SELECT 1 FROM inode WHERE ino = :ino", ino=ino) and (
        not path.exists()
    )


def data_file(site: Site, ino: int) -> Path:
    [[epoch]] = query(site.settings, "SELECT epoch FROM inode WHERE ino = :ino", ino=ino)
    path = DataFiles(site.settings.files_dir).path(ino, epoch)
    assert path.exists()
    return path


@pytest.mark.parametrize("op", [Op.REMOVE, Op.RENAME])
def test_a_file_that_the_control_socket_removed_is_reclaimed(site: Site, op: Op) -> None:
    """A client has looked it up, so the server has an entry of it in its cache."""
    client = site.client
    top = site.ask(Op.MKDIR, ROOT_INO, b"cached%d" % op).ino
    directory = client.handle("export", f"cached{op:d}")
    with client.opened(directory, "other") as file:
        file.write(b"other")
    with client.opened(directory, "file") as file:
        file.write(b"bytes")
        path = data_file(site, client.getattr(file.handle).fileid)
    assert client.lookup(directory, "file").size == 5
    assert set(client.names(directory)) == {"file", "other"}
    if op is Op.REMOVE:
        site.ask(op, top, b"file")
    else:
        site.ask(op, top, b"other", ino2=top, name2=b"file")
    until(lambda: is_reclaimed(site, path), "a reclaimed file")


def test_a_file_that_the_control_socket_removed_stays_until_its_last_close(site: Site) -> None:
    client = site.client
    top = site.ask(Op.MKDIR, ROOT_INO, b"open").ino
    with client.opened(client.handle("export", "open"), "file") as file:
        file.write(b"bytes")
        path = data_file(site, client.getattr(file.handle).fileid)
        site.ask(Op.REMOVE, top, b"file")
        time.sleep(2.5)  # longer than until the next try
        assert client.getattr(file.handle).names == 0
        assert file.read() == b"bytes"
        file.write(b"BYTES")
        assert file.read() == b"BYTES"
        assert not is_reclaimed(site, path)
    until(lambda: is_reclaimed(site, path), "a reclaimed file")


def test_credentials_are_those_of_the_request(site: Site) -> None:
    top = site.ask(Op.MKDIR, ROOT_INO, b"private", wanted=SetAttr(mode=0o770, gid=7))
    asked = [
        (RpcRequest(Op.MKDIR, top.ino, b"x", cred=Cred(5, 5)), errno.EACCES),
        (RpcRequest(Op.MKDIR, top.ino, b"x", cred=Cred(5, 5, (6, 7))), 0),
        (RpcRequest(Op.SETATTR, top.ino, wanted=SetAttr(mode=0o777), cred=Cred(5, 5)), errno.EPERM),
        (RpcRequest(Op.MKDIR, ROOT_INO, b".spillway"), errno.EROFS),
        (RpcRequest(Op.MKDIR, top.ino, b"a/b"), errno.EINVAL),
        (RpcRequest(Op.MKDIR, top.ino, b"n" * 256), errno.ENAMETOOLONG),
        (RpcRequest(Op.GETATTR, 2**63), errno.EINVAL),
        (RpcRequest(Op.GETATTR, 2**40), errno.ESTALE),
        (RpcRequest(Op.REMOVE, top.ino, b"x", ino2=top.ino, change=1), errno.ENOENT),
    ]
    for request, error in asked:
        [answer] = site.control.run([request])
        assert answer.errno == error, request


def test_more_is_asked_than_buffers_hold(site: Site) -> None:
    answers = site.control.run([RpcRequest(Op.GETATTR, ROOT_INO)] * 8000)
    assert {answer.errno for answer in answers} == {0}


def test_an_unknown_operation_is_not_done(site: Site) -> None:
    for op in (0, 5, 9, max(Op) + 1, 999):
        [answer] = site.control.run([RpcRequest(op, ROOT_INO)])  # type: ignore[arg-type]
        assert answer.errno == errno.ENOTSUP


def test_what_only_root_asks_is_refused_to_others(site: Site) -> None:
    for op in (Op.EVICT, Op.WANTED, Op.PRESENT, Op.ARRIVED, Op.FAILED):
        [answer] = site.control.run([RpcRequest(op, ROOT_INO, cred=Cred(5, 5))])
        assert answer.errno == errno.EPERM
    asked = [
        (RpcRequest(Op.EVICT, ROOT_INO), errno.EBUSY),
        (RpcRequest(Op.PRESENT, ROOT_INO, length=1), errno.ESTALE),
        (RpcRequest(Op.ARRIVED, ROOT_INO, ino2=7), errno.ESTALE),
        (RpcRequest(Op.FAILED, ROOT_INO), errno.ESTALE),
    ]
    for request, error in asked:
        [answer] = site.control.run([request])
        assert answer.errno == error, request


def dial(settings: Settings) -> socket.socket:
    directory = os.open(settings.run_dir, os.O_PATH)
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(30)
        connection.connect(f"/proc/self/fd/{directory}/nfs.sock")
        return connection
    finally:
        os.close(directory)


@pytest.mark.alone
def test_rubbish_and_peers_that_stall_harm_nobody(site: Site) -> None:
    with ExitStack() as stack:
        halves = [stack.enter_context(dial(site.settings)) for _ in range(20)]
        for half in halves:
            half.sendall(struct.pack("=IHHI", 0x524F4F44, 1, 2, 100))
        began = time.monotonic()
        for length in (0, 1, 23, 8193, 2**32 - 1):
            rubbish = stack.enter_context(dial(site.settings))
            rubbish.sendall(struct.pack("=IHHIIQ", 0x524F4F44, 1, 2, length, 0, 0) + b"x" * 200)
            assert rubbish.recv(1) == b""
        # The connections end at once, and not because no more bytes came.
        assert time.monotonic() - began < 5
        site.ask(Op.GETATTR, ROOT_INO)
        site.client.handle("export")
    site.server.require_alive()


def test_the_control_socket_is_closed_with_the_server(tmp_path: Path) -> None:
    with Server("spillway", tmp_path, tmp_path / "log") as server:
        await_control_socket(server)
        path = server.settings.run_dir / "nfs.sock"
        assert path.stat().st_mode & 0o777 == 0o600
        with opened(server.settings) as control:
            assert control.run([RpcRequest(Op.GETATTR, ROOT_INO)])[0].errno == 0
            stale = path.stat().st_ino
            server.crash()
            until(lambda: path.stat().st_ino != stale, "a new control socket")
            # Nothing was under way when the connection ended.
            assert control.run([RpcRequest(Op.GETATTR, ROOT_INO)])[0].errno == 0
        with opened(server.settings) as control:
            assert isinstance(control, Remote)
            assert control.run([RpcRequest(Op.GETATTR, ROOT_INO)])[0].errno == 0
    assert not path.exists()
    assert "cleanup" not in server.log.read_text()
