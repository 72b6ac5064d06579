"""What clients of a real NFS server see of ``/.spillway``, and what the gateway changes there."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.common.types import GATEWAY_CRED, SetAttr
from gateway.db.models import (
    CHECKPOINTS_INO,
    PROMOTED_INO,
    RESERVED_INO,
    ROOT_INO,
    RUNS_INO,
    TRASH_INO,
)
from gateway.rpc.frames import Op, RpcRequest
from tests.support import nfs4, trash
from tests.support.nfs4 import op, opaque, putfh
from tests.support.t6.reserved import Site
from tests.support.t6.serving import serving
from tests.support.volumes import query
from tests.support.waiting import until

NO_ATTRIBUTES = struct.pack(">II", 0, 0)
READ, MODIFY, EXTEND, DELETE = 1, 4, 8, 16


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("reserved")
    with serving(directory) as (server, control), nfs4.Client(server.port) as client:
        with client.opened(client.handle("export"), "theirs") as file:
            file.write(b"bytes")
        yield Site(server, control, client)


def test_the_roots_listing_lacks_it_and_a_lookup_finds_it(site: Site) -> None:
    root = site.client.handle("export")
    for _ in range(2):
        assert ".spillway" not in site.client.names(root)
        assert site.client.lookup(root, ".spillway").fileid == RESERVED_INO
    assert site.client.names(site.inside()) == ["promoted", "runs", "checkpoints"]
    for _ in range(2):
        with pytest.raises(nfs4.Status) as refused:
            site.client.lookup(site.inside(), "trash")
        assert refused.value.number == nfs4.NOENT
        attr = site.ask(Op.LOOKUP, RESERVED_INO, b"trash")
        assert attr is not None
        assert (attr.ino, attr.reserved) == (TRASH_INO, 1)


def test_what_another_process_makes_in_the_trash_is_found_after_it_left(site: Site) -> None:
    """The gateway looked for the name before; the server may not remember that it was absent."""
    copy, first = (site.ask(Op.MKDIR, TRASH_INO, name) for name in (b"copy", b"first"))
    assert copy is not None and first is not None
    [answer] = site.control.run([RpcRequest(Op.LOOKUP, copy.ino, b"made", cred=GATEWAY_CRED)])
    assert answer.errno == errno.ENOENT
    query(
        site.server.settings,
        "UPDATE dirent SET parent = :copy, name = :name WHERE ino = :ino",
        copy=copy.ino,
        name=b"made",
        ino=first.ino,
    )
    site.ask(Op.RENAME, TRASH_INO, b"copy", ino2=PROMOTED_INO, name2=b"copy")
    assert site.client.lookup(site.inside("promoted", "copy"), "made").fileid == first.ino


def test_every_change_is_refused(site: Site) -> None:
    run = site.ask(Op.MKDIR, RUNS_INO, b"frozen", wanted=SetAttr(mode=0o777))
    assert run is not None
    site.install(run.ino, b"receipt", b"bytes")
    root, runs = site.client.handle("export"), site.inside("runs", "frozen")
    receipt, theirs = (
        site.inside("runs", "frozen", "receipt"),
        site.client.handle("export", "theirs"),
    )
    name, old = opaque(b"new"), opaque(b"receipt")
    mode = struct.pack(">III", 2, 0, 1 << 1) + opaque(struct.pack(">I", 0o777))
    size = struct.pack(">II", 1, 1 << 4) + opaque(bytes(8))
    link = struct.pack(">I", 5) + opaque(b"x")
    changes = {
        "mkdir": (putfh(runs), op(nfs4.CREATE) + struct.pack(">I", 2) + name + NO_ATTRIBUTES),
        "symlink": (putfh(runs), op(nfs4.CREATE) + link + name + NO_ATTRIBUTES),
        "mknod": (putfh(runs), op(nfs4.CREATE) + struct.pack(">I", 7) + name + NO_ATTRIBUTES),
        "link": (putfh(theirs), op(nfs4.SAVEFH), putfh(runs), op(nfs4.LINK) + name),
        "link out": (putfh(receipt), op(nfs4.SAVEFH), putfh(root), op(nfs4.LINK) + name),
        "remove": (putfh(runs), op(nfs4.REMOVE) + old),
        "remove it": (putfh(root), op(nfs4.REMOVE) + opaque(b".spillway")),
        "chmod": (putfh(receipt), op(nfs4.SETATTR) + bytes(16) + mode),
        "chmod directory": (putfh(runs), op(nfs4.SETATTR) + bytes(16) + mode),
        "truncate": (putfh(receipt), op(nfs4.SETATTR) + bytes(16) + size),
        "write": (
            putfh(receipt),
            op(nfs4.WRITE) + bytes(16) + struct.pack(">QI", 0, 2) + opaque(b"x"),
        ),
    }
    for what, (source, before, target, after) in {
        "rename in": (root, b"theirs", runs, b"new"),
        "rename over": (root, b"theirs", runs, b"receipt"),
        "rename out": (runs, b"receipt", root, b"new"),
        "rename inside": (runs, b"receipt", runs, b"new"),
        "rename it": (root, b".spillway", root, b"new"),
    }.items():
        names = opaque(before) + opaque(after)
        changes[what] = (putfh(source), op(nfs4.SAVEFH), putfh(target), op(nfs4.RENAME) + names)
    listed = site.client.names(runs)
    for what, operations in changes.items():
        with pytest.raises(nfs4.Status) as refused:
            site.client.call(*operations)
            raise AssertionError(f"{what} was not refused")
        assert refused.value.number == nfs4.ROFS, what
    for file, empties in (("new", False), ("receipt", False), ("receipt", True)):
        with pytest.raises(nfs4.Status) as refused, site.client.opened(runs, file, empties):
            raise AssertionError("an open for writing was not refused")
        assert refused.value.number == nfs4.ROFS
    assert site.client.names(runs) == listed
    assert site.client.read_once(receipt, 0, 9) == b"bytes"


def test_the_control_socket_needs_the_flag(site: Site) -> None:
    run = site.ask(Op.MKDIR, RUNS_INO, b"flagged")
    assert run is not None
    site.install(run.ino, b"receipt", b"bytes")
    (site.server.settings.files_dir / "incoming" / "x").write_bytes(b"x")
    for request in (
        RpcRequest(Op.MKDIR, RUNS_INO, b"x"),
        RpcRequest(Op.REMOVE, RUNS_INO, b"flagged"),
        RpcRequest(Op.REMOVE, run.ino, b"receipt"),
        RpcRequest(Op.SETATTR, run.ino, wanted=SetAttr(mode=0o700)),
        RpcRequest(Op.INSTALL, RUNS_INO, b"x", name2=b"x"),
        RpcRequest(Op.MKDIR, ROOT_INO, b".spillway", cred=GATEWAY_CRED),
    ):
        [answer] = site.control.run([request])
        assert answer.errno == errno.EROFS, request


def test_clients_see_what_the_gateway_replaced(site: Site) -> None:
    run = site.ask(Op.MKDIR, RUNS_INO, b"moving", wanted=SetAttr(mode=0o555))
    assert run is not None
    for number in range(3):
        target = b"../../../%d" % number
        site.ask(Op.SYMLINK, run.ino, b"new", name2=target)
        site.ask(Op.RENAME, run.ino, b"new", ino2=run.ino, name2=b"latest")
        reply = site.client.call(putfh(site.inside("runs", "moving", "latest")), op(nfs4.READLINK))
        reply.unpack("IIII")
        assert reply.opaque() == target
        assert site.client.names(site.inside("runs", "moving")) == ["latest"]


def test_a_reader_keeps_the_installed_file_that_it_opened(site: Site) -> None:
    site.install(CHECKPOINTS_INO, b"1.json", b"first")
    directory = site.inside("checkpoints")
    with site.client.opened(directory, "1.json", reads=True) as file:
        made = site.install(CHECKPOINTS_INO, b"1.json", b"second one")
        assert file.read() == b"first"
        assert site.client.getattr(file.handle).names == 0
        attributes = site.client.lookup(directory, "1.json")
        assert (attributes.fileid, attributes.size) == (made.ino, 10)
        assert site.client.read_once(site.inside("checkpoints", "1.json"), 0, 99) == b"second one"
    site.ask(Op.REMOVE, CHECKPOINTS_INO, b"1.json")
    assert "1.json" not in site.client.names(directory)
    files = site.server.settings.files_dir
    until(lambda: not list(files.glob(f"*/{made.ino}.0")), "the bytes are reclaimed")


def test_a_checkpoint_goes_into_the_trash_and_back(site: Site) -> None:
    root = site.client.handle("export")
    made = site.ask(Op.MKDIR, ROOT_INO, b"step-1", wanted=SetAttr(mode=0o755))
    assert made is not None
    site.client.lookup(root, "step-1")
    settings = site.server.settings
    trash.reserve(settings, made.ino)
    site.ask(Op.RENAME, ROOT_INO, b"step-1", ino2=TRASH_INO, name2=b"1")
    with pytest.raises(nfs4.Status):
        site.client.lookup(root, "step-1")
    number = trash.let_out(settings, made.ino)
    site.ask(Op.RENAME, TRASH_INO, b"1", ino2=ROOT_INO, name2=b"step-1", change=number)
    trash.give_back(settings, made.ino)
    assert site.client.lookup(root, "step-1").fileid == made.ino
