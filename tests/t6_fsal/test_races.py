"""Names that two clients of a real NFS server change at the same time."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.nfs.export_service import ExportService, WantedExport
from tests.support import nfs4
from tests.support.gateway import PLUGINS_DIR
from tests.support.nfsserver import Server
from tests.support.t6.serving import await_control_socket
from tests.support.volumes import query
from tests.support.waiting import until

NATIVE = Path(__file__).parents[2] / "fsal" / "native"
FORGETS = "spw_stale_names_check(self->fh.ino, self->fh.generation);"
ROUNDS = 100
STEP_SECONDS = 0.0001
"""The second client begins later by up to nine of these. A change takes about 1 ms."""
DEADLINE_SECONDS = 60.0
OPENERS = 8
REPLACEMENTS = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("races")
    with Server("spillway", directory, directory / "log") as started:
        await_control_socket(started)
        yield started


@pytest.fixture
def maker(server: Server) -> Iterator[nfs4.Client]:
    with nfs4.Client(server.port) as client:
        yield client


@pytest.fixture
def mover(server: Server) -> Iterator[nfs4.Client]:
    with nfs4.Client(server.port) as client:
        yield client


@pytest.fixture
def reader(server: Server) -> Iterator[nfs4.Client]:
    with nfs4.Client(server.port) as client:
        yield client


def both(first: Callable[[], object], second: Callable[[], object], number: int) -> None:
    """Do both at the same time. Raises what either raises.

    Args:
        number: number of the round.
    """
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(first)
        time.sleep(number % 10 * STEP_SECONDS)
        second()
        started.result()


@contextmanager
def repeatedly(work: Callable[[], object]) -> Iterator[None]:
    """Do something again and again. Raises what it raises."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            work()

    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(run)
        try:
            yield
        finally:
            over.set()
        started.result()


def again(work: Callable[[], None], after: int) -> None:
    """Do something, and again at once while it is answered with one status. Raises Status."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return work()
        except nfs4.Status as exc:
            if exc.number != after or time.monotonic() > deadline:
                raise


def open_(file: nfs4.File) -> None:
    """Open a file, and again after each delay. Raises Status."""
    again(file.open, nfs4.DELAY)


def owner(server: Server, name: str) -> int | None:
    """Return the inode that has a name in the export, as the database has it."""
    statement = "SELECT ino FROM dirent WHERE parent = :parent AND name = :name"
    rows = query(server.settings, statement, parent=ROOT_INO, name=name.encode())
    return rows[0][0] if rows else None


def made(client: nfs4.Client, directory: bytes, name: str) -> int:
    """Make a file. Returns its inode."""
    with client.opened(directory, name) as file:
        return client.getattr(file.handle).fileid


def test_a_name_that_is_made_and_replaced_at_once_leads_to_what_replaced_it(
    server: Server, maker: nfs4.Client, mover: nfs4.Client, reader: nfs4.Client
) -> None:
    """Whichever is first, the rename puts its file in the place of the new one.

    Ganesha adds the name of the creation to its names of the directory after the plugin answered,
    without a lock: the name would lead to the replaced file, which its last close deletes.
    """
    top = maker.handle("export")
    for number in range(ROUNDS):
        source, name = f"source-{number}", f"name-{number}"
        moved = made(mover, top, source)
        first, file = maker.file(top, name), reader.file(top, name)
        both(partial(open_, first), partial(mover.rename, top, source, name), number)
        assert owner(server, name) == moved
        open_(file)
        file.write(b"kept")
        assert reader.getattr(file.handle).fileid == moved
        file.until_closed()
        first.until_closed()
        attributes = reader.lookup(top, name)
        assert (attributes.fileid, attributes.size) == (moved, 4)


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Server]:
    """Run a server whose plugin never has Ganesha forget a name."""
    source, plugins, directory = tmp_path / "native", tmp_path / "lib", tmp_path / "server"
    shutil.copytree(NATIVE, source)
    text = (source / "ops.c").read_text()
    assert text.count(FORGETS) == 1
    (source / "ops.c").write_text(text.replace(FORGETS, ""))
    arguments = [f"OUT={plugins}", f"GANESHA={PLUGINS_DIR.parent / 'ganesha'}"]
    subprocess.run(["make", "-s", "-j2", "-C", source, *arguments], check=True)
    directory.mkdir()
    values = {"nfs": {"plugins_dir": plugins}}
    with Server("spillway", directory, tmp_path / "log", values) as started:
        yield started


def test_a_replaced_file_is_not_opened_while_its_name_leads_to_it(forgetful: Server) -> None:
    """Ganesha forgets the name soon, but another client may be faster."""
    refused = 0
    numbers = count()
    deadline = time.monotonic() + DEADLINE_SECONDS
    with nfs4.Client(forgetful.port) as maker, nfs4.Client(forgetful.port) as mover:
        top = maker.handle("export")
        while not refused and time.monotonic() < deadline:
            moved = made(mover, top, "source")
            first, file = maker.file(top, "name"), mover.file(top, "name")
            both(partial(open_, first), partial(mover.rename, top, "source", "name"), next(numbers))
            try:
                open_(file)
            except nfs4.Status as exc:
                assert exc.number == nfs4.NOENT
                refused += 1
            else:
                assert mover.getattr(file.handle).fileid == moved
                file.until_closed()
            first.until_closed()
            mover.remove(top, "name")
    assert refused > 0


def test_many_clients_that_open_a_file_while_it_is_replaced_find_one(
    server: Server, maker: nfs4.Client, mover: nfs4.Client
) -> None:
    """Ganesha looks the name up, and then waits for other opens of the file before it opens it."""
    top = maker.handle("export")
    for name in ("many", *(f"next-{number}" for number in range(REPLACEMENTS))):
        made(maker, top, name)
    over = threading.Event()

    def run() -> int:
        count = 0
        with nfs4.Client(server.port) as client:
            file = client.file(top, "many", reads=True)
            while not over.is_set():
                open_(file)
                file.until_closed()
                count += 1
        return count

    with ThreadPoolExecutor(OPENERS) as pool:
        openers = [pool.submit(run) for _ in range(OPENERS)]
        try:
            for number in range(REPLACEMENTS):
                mover.rename(top, f"next-{number}", "many")
        finally:
            over.set()
        assert all(opener.result() > 0 for opener in openers)


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_name_that_is_made_and_moved_at_once_is_gone(
    maker: nfs4.Client, mover: nfs4.Client, reader: nfs4.Client, kind: str
) -> None:
    top = maker.handle("export")
    with maker.opened(top, f"linked-{kind}") as linked:
        pass
    file = maker.file(top, "")

    def make(name: str) -> None:
        if kind == "file":
            file.where = top, name
            open_(file)
        elif kind == "directory":
            maker.mkdir(top, name)
        else:
            maker.link(linked.handle, top, name)

    for number in range(ROUNDS):
        name = f"{kind}-{number}"
        move = partial(mover.rename, top, name, f"{name}-moved")
        both(partial(again, move, nfs4.NOENT), partial(make, name), number)
        until(partial(reader.is_absent, top, name), "the name to be forgotten")
        file.until_closed()


def test_a_name_whose_file_is_replaced_while_it_is_renamed_leads_to_the_file_that_moved(
    server: Server, maker: nfs4.Client, mover: nfs4.Client, reader: nfs4.Client
) -> None:
    """Ganesha looks up the old name, and then the new one, for which it may wait. Then it calls the
    rename, and gives the new name to the file that it found first. While the replaced file is open,
    Ganesha keeps it."""
    top = mover.handle("export")
    mover.mkdir(top, "below")
    below = mover.handle("export", "below")
    made(mover, top, "busy")

    def hold_up() -> None:
        reader.rename(top, "busy", "busy-other")
        reader.rename(top, "busy-other", "busy")

    for number in range(ROUNDS):
        old, new, source = f"old-{number}", f"new-{number}", f"other-{number}"
        made(mover, below, source)
        with maker.opened(below, old):
            with repeatedly(hold_up):
                both(
                    partial(mover.rename, below, old, new, into=top),
                    partial(maker.rename, below, source, old),
                    number,
                )
            assert mover.lookup(top, new).fileid == owner(server, new)


def test_a_directory_that_clients_know_through_another_export(
    server: Server, maker: nfs4.Client
) -> None:
    """Ganesha takes a lock of a directory that it finds for another export than before. It may hold
    that lock when it asks for the attributes. The name is too long for the plugin to know it, so
    the plugin has it forgotten."""
    name = "n" * 200
    maker.mkdir(maker.handle("export"), "shared")
    maker.names(maker.handle("export", "shared"))
    with closing(Database(server.settings.database_url)) as database:
        exports = ExportService(server.settings, database)
        exports.put(WantedExport("/second", b"/", ["127.0.0.0/8 rw"], "none"), "the test")
        try:
            shared = maker.handle("second", "shared")
            made(maker, shared, name)
            assert maker.names(shared) == [name]
        finally:
            exports.remove("/second", "the test")
