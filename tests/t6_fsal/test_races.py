"""Names that two clients of a real NFS server change at the same time."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from gateway.db.models import ROOT_INO
from tests.conformance.server import Server
from tests.support import nfs4
from tests.support.gateway import PLUGINS_DIR
from tests.support.volumes import query

NATIVE = Path(__file__).parents[2] / "fsal" / "native"
FORGETS = "spw_named_check(spw_handle_of(obj));"
ROUNDS = 100
STEP_SECONDS = 0.0001
"""The second client begins later by up to nine of these. A change takes about 1 ms."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("races")
    with Server("spillway", directory, directory / "log") as started:
        yield started


def both(first: Callable[[], object], second: Callable[[], object], number: int) -> None:
    """Do both at the same time. Parameters: number, of the round. Raises what either raises."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            first()
        except BaseException as exc:
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(number % 10 * STEP_SECONDS)
    second()
    thread.join()
    if errors:
        raise errors[0]


def open_(file: nfs4.File) -> None:
    """Open a file, and again after each delay."""
    while True:
        try:
            file.open()
            return
        except nfs4.Status as exc:
            if exc.number != nfs4.DELAY:
                raise
        time.sleep(nfs4.AGAIN_SECONDS)


def owner(server: Server, name: str) -> int | None:
    """Return the inode that has a name in the export, as the database has it."""
    statement = "SELECT ino FROM dirent WHERE parent = :parent AND name = :name"
    rows = query(server.settings, statement, parent=ROOT_INO, name=name.encode())
    return rows[0][0] if rows else None


def test_a_name_that_is_made_and_replaced_at_once_leads_to_what_replaced_it(
    server: Server,
) -> None:
    """Whichever is first, the rename puts its file in the place of the new one.

    Ganesha adds the name of the creation to its names of the directory after the plugin answered,
    without a lock: the name would lead to the replaced file, which its last close deletes.
    """
    with (
        nfs4.Client(server.port) as maker,
        nfs4.Client(server.port) as mover,
        nfs4.Client(server.port) as reader,
    ):
        top = maker.handle("export")
        for number in range(ROUNDS):
            source, name = f"source-{number}", f"name-{number}"
            with mover.opened(top, source):
                moved = mover.lookup(top, source).fileid
            made = maker.file(top, name)
            both(partial(open_, made), partial(mover.rename, top, source, name), number)
            assert owner(server, name) == moved
            assert reader.lookup(top, name).fileid == moved
            file = reader.file(top, name)
            open_(file)
            file.write(b"kept")
            assert reader.getattr(file.handle).fileid == moved
            file.until_closed()
            made.until_closed()
            assert file.content(top, name) == b"kept"


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Server]:
    """Run a server whose plugin never tells Ganesha to forget a name."""
    source, plugins = tmp_path / "native", tmp_path / "lib"
    shutil.copytree(NATIVE, source)
    text = (source / "ops.c").read_text()
    assert text.count(FORGETS) == 1
    (source / "ops.c").write_text(text.replace(FORGETS, ""))
    arguments = [f"OUT={plugins}", f"GANESHA={PLUGINS_DIR.parent / 'ganesha'}"]
    subprocess.run(["make", "-s", "-j2", "-C", source, *arguments], check=True)
    directory = tmp_path / "server"
    directory.mkdir()
    values = {"nfs": {"plugins_dir": plugins}}
    with Server("spillway", directory, tmp_path / "log", values) as started:
        yield started


def test_a_replaced_file_is_not_opened_while_its_name_leads_to_it(forgetful: Server) -> None:
    """Ganesha is told to forget the name, but another client may be faster."""
    refused = 0
    with nfs4.Client(forgetful.port) as maker, nfs4.Client(forgetful.port) as mover:
        top = maker.handle("export")
        for number in range(ROUNDS):
            source, name = f"source-{number}", f"name-{number}"
            with mover.opened(top, source):
                moved = mover.lookup(top, source).fileid
            made, file = maker.file(top, name), mover.file(top, name)
            both(partial(open_, made), partial(mover.rename, top, source, name), number)
            try:
                open_(file)
            except nfs4.Status as exc:
                assert exc.number == nfs4.NOENT
                refused += 1
            else:
                assert mover.getattr(file.handle).fileid == moved
                file.until_closed()
            made.until_closed()
    assert refused > 0


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_name_that_is_made_and_moved_at_once_is_gone(server: Server, kind: str) -> None:
    with (
        nfs4.Client(server.port) as maker,
        nfs4.Client(server.port) as mover,
        nfs4.Client(server.port) as reader,
    ):
        top = maker.handle("export")
        with maker.opened(top, f"linked-{kind}") as linked:
            pass
        file = maker.file(top, f"{kind}-0")

        def make(name: str) -> None:
            if kind == "file":
                file.where = top, name
                open_(file)
            elif kind == "directory":
                maker.mkdir(top, name)
            else:
                maker.link(linked.handle, top, name)

        def move(name: str) -> None:
            while True:  # until the name is there
                with suppress(nfs4.Status):
                    return mover.rename(top, name, f"{name}-moved")

        for number in range(ROUNDS):
            name = f"{kind}-{number}"
            both(partial(move, name), partial(make, name), number)
            with pytest.raises(nfs4.Status) as gone:
                reader.lookup(top, name)
            assert gone.value.number == nfs4.NOENT
            file.until_closed()


@contextmanager
def busy(client: nfs4.Client, directory: bytes, name: str) -> Iterator[None]:
    """Rename a file to and fro all the time, so that others wait for its directory."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            client.rename(directory, name, f"{name}-other")
            client.rename(directory, f"{name}-other", name)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_name_whose_file_is_replaced_while_it_is_renamed_leads_to_the_file_that_moved(
    server: Server,
) -> None:
    """Ganesha looks up the old name, and then the new one, for which it may wait. Then it calls the
    rename, and gives the new name to the file that it found first. While the replaced file is open,
    Ganesha keeps it."""
    with (
        nfs4.Client(server.port) as mover,
        nfs4.Client(server.port) as other,
        nfs4.Client(server.port) as third,
    ):
        top = mover.handle("export")
        mover.mkdir(top, "below")
        below = mover.handle("export", "below")
        with mover.opened(top, "busy"):
            pass
        for number in range(ROUNDS):
            old, new, source = f"old-{number}", f"new-{number}", f"other-{number}"
            with mover.opened(below, source):
                pass
            with other.opened(below, old):
                with busy(third, top, "busy"):
                    both(
                        partial(mover.rename, below, old, new, into=top),
                        partial(other.rename, below, source, old),
                        number,
                    )
                assert mover.lookup(top, new).fileid == owner(server, new)
