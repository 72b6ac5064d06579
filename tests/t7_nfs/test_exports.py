"""Exports are added, changed and removed while clients of the others work."""

from __future__ import annotations

import json
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.common.errors import ExportRefused
from gateway.common.types import Attr, SetAttr
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.nfs import export_blocks, ganesha_conf
from gateway.nfs import server as exports_server
from gateway.nfs.export_service import ExportService, WantedExport, at_start
from gateway.rpc.control import opened
from gateway.rpc.frames import Op, RpcRequest
from tests.support import nfs4
from tests.support.nfs4 import op, opaque, putfh
from tests.support.nfsserver import Server
from tests.support.waiting import until

LOAD = Path(__file__).parents[2] / "build" / "bench" / "nfsload"
HERE = "127.0.0.0/8 rw"
DENIED = 10010
LOCK, LOCKT, LOCKU, LOOKUPP = 12, 13, 14, 16
NOTEMPTY = 66
WRITE_LOCK = 2
KILLED = """
import os, signal, sys
from pathlib import Path
from gateway.config import loader
from gateway.db.engine import Database
from gateway.nfs import export_service
source, name, path, hosts = sys.argv[1:]
settings = loader.load(Path(source), {})
export_service.put = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
exports = export_service.ExportService(settings, Database(settings.database_url))
exports.put(export_service.WantedExport(name, path.encode(), [hosts], "none"), "me")
"""
"""A process that ends when the server has its change, and before it is stored."""
ROOT_NAMES = ["run7", "other"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("exports")
    with Server("spillway", directory, directory / "log") as started:
        until((started.settings.run_dir / "nfs.sock").exists, "the control socket")
        for name in ROOT_NAMES:
            ask(started, Op.MKDIR, name)
        yield started


@pytest.fixture
def exports(server: Server) -> Iterator[ExportService]:
    database = Database(server.settings.database_url)
    service = ExportService(server.settings, database)
    yield service
    for export in service.listed():
        service.remove(export.export.name, "the test")
    database.close()


@pytest.fixture
def client(server: Server) -> Iterator[nfs4.Client]:
    with nfs4.Client(server.port) as made:
        yield made


def ask(server: Server, what: Op, name: str, parent: int = ROOT_INO) -> Attr | None:
    with opened(server.settings) as control:
        mode = SetAttr(mode=0o777)
        [answer] = control.run([RpcRequest(what, parent, name.encode(), wanted=mode)])
    assert answer.errno == 0
    return answer.attr


def put(exports: ExportService, name: str, path: str, *clients: str, squash: str = "none") -> int:
    wanted = WantedExport(name, path.encode(), clients or (HERE,), squash)
    return exports.put(wanted, "the test").version


@contextmanager
def locked(client: nfs4.Client, file: nfs4.File) -> Iterator[None]:
    """Lock a whole file for writing, by an owner of its own."""
    owner = struct.pack(">II", 1, file._seqid) + file._state + struct.pack(">I", 0)
    owner += file._client_id + opaque(b"locker")
    lock = op(LOCK) + struct.pack(">IIQQ", WRITE_LOCK, 0, 0, 2**64 - 1) + owner
    reply = client.call(putfh(file.handle), lock)
    file._seqid += 1
    reply.unpack("IIII")
    state = struct.pack(">4I", *reply.unpack("4I"))
    yield
    unlock = (
        op(LOCKU) + struct.pack(">II", WRITE_LOCK, 1) + state + struct.pack(">QQ", 0, 2**64 - 1)
    )
    client.call(putfh(file.handle), unlock)


def is_locked(client: nfs4.Client, file: nfs4.File) -> bool:
    """Return whether another owner's lock would be refused."""
    test = op(LOCKT) + struct.pack(">IQQ", WRITE_LOCK, 0, 2**64 - 1)
    try:
        client.call(putfh(file.handle), test + file._client_id + opaque(b"another"))
    except nfs4.Status as exc:
        assert exc.number == DENIED
        return True
    return False


def file_system(client: nfs4.Client, handle: bytes) -> tuple[int, ...]:
    """Return the fsid of a handle."""
    reply = client.call(putfh(handle), op(nfs4.GETATTR) + struct.pack(">II", 1, 1 << 8))
    reply.unpack("IIII")
    reply.unpack(f"{reply.number()}I")
    reply.unpack("I")
    return reply.unpack("QQ")


def test_clients_with_open_and_locked_files_continue(
    server: Server, exports: ExportService, client: nfs4.Client
) -> None:
    root = client.handle("export")
    with client.opened(root, "locked") as file, locked(client, file):
        assert is_locked(client, file)
        for step in (
            lambda: put(exports, "/datasets", "run7"),
            lambda: put(exports, "/datasets", "run7", "127.0.0.1 ro"),
            lambda: put(exports, "/datasets", "other"),
            lambda: put(exports, "/everything", ""),
            lambda: exports.remove("/datasets", "me"),
            exports.reload,
        ):
            before = exports_server.served_exports(server.settings)
            step()
            after = exports_server.served_exports(server.settings)
            assert before is not None
            assert after is not None
            assert after.last_reading > before.last_reading, "it returns after the reload"
            file.write(b"two")
            assert client.read(file.handle, 0, 3, file._state) == b"two"
            assert is_locked(client, file)
        assert client.names(client.handle("everything")) == client.names(root)
    client.remove(root, "locked")


def test_load_on_another_export_sees_no_error(server: Server, exports: ExportService) -> None:
    argv = [str(LOAD), "127.0.0.1", str(server.port), "/export", "mixed", "--seconds", "10"]
    options = ["--connections", "4", "--dir", "load"]
    with subprocess.Popen([*argv, *options], stdout=subprocess.PIPE, text=True) as load:
        changes = 0
        while load.poll() is None:
            put(exports, "/busy", "run7", HERE if changes % 2 else "127.0.0.1 ro")
            put(exports, "/other", "load")
            exports.remove("/other", "me")
            changes += 1
        assert load.stdout is not None
        told = json.loads(load.stdout.read())
    assert changes > 1
    assert (told["errors"], told["lost_leases"]) == (0, 0), told
    assert told["ops"] > 100


def test_rights_of_hosts(server: Server, exports: ExportService, client: nfs4.Client) -> None:
    put(exports, "/data", "run7", HERE)
    made = client.handle("data")
    with client.opened(made, "file") as file:
        file.write(b"bytes")
    # Read-only, and at once also for those that have it mounted.
    put(exports, "/data", "run7", "127.0.0.1 ro", HERE)
    assert client.lookup(made, "file").size == 5
    for change in (
        lambda: client.remove(made, "file"),
        lambda: client.open(made, "new"),
        lambda: client.open(made, "file"),
    ):
        with pytest.raises(nfs4.Status) as refused:
            change()
        assert refused.value.number == nfs4.ROFS
    # Another network: the export is not there for this host.
    put(exports, "/data", "run7", "10.0.0.0/8 rw")
    with pytest.raises(nfs4.Status) as hidden:
        client.handle("data")
    assert hidden.value.number == nfs4.NOENT
    assert client.names(client.handle()) == ["export"]
    with pytest.raises(nfs4.Status):
        client.getattr(made)
    # Every user becomes nobody.
    put(exports, "/data", "run7", "127.0.0.1 rw all_squash")
    with client.opened(made, "squashed") as file:
        file.write(b"bytes")
    directory = ask(server, Op.LOOKUP, "run7")
    assert directory is not None
    attr = ask(server, Op.LOOKUP, "squashed", directory.ino)
    assert attr is not None
    assert (attr.uid, attr.gid) == (export_blocks.ANONYMOUS, export_blocks.ANONYMOUS)


def test_a_directory_alone_has_no_way_out(
    server: Server, exports: ExportService, client: nfs4.Client
) -> None:
    ask(server, Op.MKDIR, "secret")
    put(exports, "/data", "run7")
    root = client.handle("data")
    assert client.getattr(root).fileid == client.lookup(client.handle("export"), "run7").fileid
    reply = client.call(putfh(root), op(LOOKUPP), op(nfs4.GETFH))
    for _ in range(2):
        reply.unpack("II")
    reply.unpack("II")
    above = reply.opaque()
    assert above == client.handle(), "the place of the exports, and not the directory above"
    assert client.names(above) == ["export", "data"]
    for name in ("..", "secret"):
        with pytest.raises(nfs4.Status):
            client.lookup(root, name)
    # Two exports are two file systems to clients: no rename leads from one to the other.
    assert len({file_system(client, at) for at in (root, client.handle("export"), above)}) == 3
    rename = op(nfs4.RENAME) + opaque(b"secret") + opaque(b"mine")
    whole = client.handle("export")
    with pytest.raises(nfs4.Status):
        client.call(putfh(whole), op(nfs4.SAVEFH), putfh(root), rename)


def test_handles_are_no_boundary(
    server: Server, exports: ExportService, client: nfs4.Client
) -> None:
    """A client that makes handles up reaches the whole namespace, as with every NFS server that
    does not check subtrees (exports(5), no_subtree_check). SEMANTICS.md says so."""
    put(exports, "/data", "run7")
    inside = client.handle("data")
    whole = client.handle("export", "other")
    forged = whole[:2] + inside[2:4] + whole[4:]
    assert client.getattr(forged).fileid == client.getattr(whole).fileid


def test_an_export_is_a_directory_not_a_path(
    server: Server, exports: ExportService, client: nfs4.Client
) -> None:
    ask(server, Op.MKDIR, "first")
    put(exports, "/data", "first")
    root, whole = client.handle("data"), client.handle("export")
    # No client renames or removes it while it is exported. The gateway can.
    rename = op(nfs4.RENAME) + opaque(b"first") + opaque(b"second")
    for refused in (
        lambda: client.call(putfh(whole), op(nfs4.SAVEFH), rename),
        lambda: client.remove(whole, "first"),
    ):
        with pytest.raises(nfs4.Status, match=str(NOTEMPTY)):
            refused()
    with client.opened(root, "file") as file:
        file.write(b"bytes")
        with opened(server.settings) as control:
            move = RpcRequest(Op.RENAME, ROOT_INO, b"first", ROOT_INO, b"second")
            assert control.run([move])[0].errno == 0
        ask(server, Op.MKDIR, "first")
        exports.reload()
        assert client.names(client.handle("data")) == ["file"]
        file.write(b"more")
    [listed] = exports.listed()
    assert (listed.path, listed.is_served) == (b"second", True)
    client.remove(root, "file")
    ask(server, Op.REMOVE, "second")
    with pytest.raises(nfs4.Status):
        client.names(root)
    assert exports.listed()[0].path is None
    exports.reload()
    assert exports.listed()[0].is_served is False
    assert client.names(client.handle()) == ["export"]
    assert "run7" in client.names(whole)


@contextmanager
def unchanged(server: Server, exports: ExportService) -> Iterator[None]:
    """Require that exports are afterwards what they were before, with other readings."""

    def seen() -> object:
        told = exports_server.served_exports(server.settings)
        assert told is not None
        without = {(export.number, export.directory, export.revision) for export in told.exports}
        return without, server.settings.ganesha_conf.read_text(), exports.listed()

    before = seen()
    yield
    assert seen() == before


def test_a_refused_reload_is_noticed_and_taken_back(
    server: Server, exports: ExportService, client: nfs4.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(exports, "/data", "run7")
    settings = server.settings
    data = exports.listed()[0].export
    gone = export_blocks.render(
        settings, [data, data._replace(name="/x", number=999, directory=99999)]
    )
    monkeypatch.setattr(exports_server, "RELOAD_SECONDS", 5.0)
    root = client.handle("export")
    with client.opened(root, "open") as file:
        whole = gone.rpartition("EXPORT {")
        wrong_option = "".join(
            [*whole[:2], whole[2].replace("Access_Type = None", "Access_Type = x")]
        )
        for refused in (gone, wrong_option):
            with (
                unchanged(server, exports),
                pytest.raises(ExportRefused, match="the former ones are in force"),
                exports_server.taken(settings, refused),
            ):
                raise AssertionError("it was taken")
            file.write(b"still open")
            assert client.names(client.handle("data")) == client.names(
                client.handle("export", "run7")
            )
        # What Ganesha 4.3 would answer by a drop of all exports, or a loop without end.
        moved = export_blocks.render(settings, [data._replace(name="/elsewhere")])
        larger = gone.replace("MaxRead = 1048576", "MaxRead = 8388608")
        for wrong in (gone + "EXPORT {{{\n", gone[:-2], gone.replace(";", ""), moved, larger):
            with (
                unchanged(server, exports),
                pytest.raises((ExportRefused, ValueError), match=r"would have|restart|no exports"),
                exports_server.taken(settings, wrong),
            ):
                raise AssertionError("it was taken")
        file.write(b"still open")
    client.remove(root, "open")


def test_what_cannot_be_stored_is_taken_back(
    server: Server, exports: ExportService, client: nfs4.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(exports, "/data", "run7")

    def fail(*_: object) -> None:
        raise RuntimeError("the database went away")

    with unchanged(server, exports):
        with monkeypatch.context() as patched, pytest.raises(RuntimeError):
            patched.setattr("gateway.nfs.export_service.put", fail)
            put(exports, "/more", "other")
        with pytest.raises(nfs4.Status):
            client.handle("more")


def test_a_command_that_was_killed_is_followed_by_the_rest(
    server: Server, exports: ExportService, client: nfs4.Client
) -> None:
    put(exports, "/data", "run7")
    source = str(server.settings.source)
    argv = [sys.executable, "-c", KILLED, source, "/half", "other", HERE]
    assert subprocess.run(argv, cwd=Path(__file__).parents[2]).returncode == -signal.SIGKILL
    assert client.names(client.handle()) == ["export", "data", "half"]
    assert [export.export.name for export in exports.listed()] == ["/data"]
    exports.reload()
    assert client.names(client.handle()) == ["export", "data"]


def test_they_survive_a_restart(server: Server, exports: ExportService) -> None:
    put(exports, "/first", "other", HERE)
    put(exports, "/data", "run7", HERE)
    exports.remove("/first", "me")
    with nfs4.Client(server.port) as client:
        root = client.handle("data")
    ganesha_conf.write(server.settings, at_start(server.settings)[0])
    server.crash()
    # The socket of the killed server is still there, so its name says nothing.
    until(lambda: exports_server.served_exports(server.settings) is not None, "the control socket")
    with nfs4.Client(server.port) as client:
        assert client.handle("data") == root, "the number is a part of it"
        assert client.names(root) == client.names(client.handle("export", "run7"))
    assert [export.is_served for export in exports.listed()] == [True]


def test_the_command(
    server: Server, exports: ExportService, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> str:
        verb, *rest = words
        status = main(["export", verb, *rest, "--config", str(server.settings.source)])
        out, err = capsys.readouterr()
        return out if status == 0 else err

    name = "/command"
    assert run("set", name, "--path", "/export/run7", "--client", HERE) == f"{name}: version 1\n"
    assert run("set", name, "--squash", "root", "--version", "1") == f"{name}: version 2\n"
    assert "has version 2, not 1" in run("remove", name, "--version", "1")
    listed = run("list").splitlines()
    assert listed[1].split() == ["export", "directory", "hosts", "squash", "version", "served"]
    assert re.split("  +", listed[2]) == [name, "/export/run7", HERE, "root", "2", "yes"]
    [facts] = json.loads(run("list", "--json"))
    assert (facts["served"], facts["path"], facts["clients"]) == (True, "/export/run7", [HERE])
    assert "the exports are in force" in run("reload")
    assert "no directory" in run("set", name, "--path", "missing")
    assert run("remove", name) == f"{name}: removed\n"
    assert f"there is no export {name}" in run("show", name)
