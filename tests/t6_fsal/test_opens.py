"""Tests opens of a real NFS server that a kernel's client does not make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.nfsserver import Server
from tests.support.volumes import query
from tests.support.waiting import until

NOBODY = 65534


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("opens")
    with Server("spillway", directory, directory / "log") as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[nfs4.Client]:
    with nfs4.Client(server.port) as found:
        yield found


@pytest.mark.parametrize("reads", [True, False])
def test_a_second_open_by_a_user_without_permission_does_not_empty_the_file(
    client: nfs4.Client, reads: bool
) -> None:
    """The owner of the open is the same, so Ganesha does not check the user of the second one."""
    top = client.handle("export")
    with client.opened(top, f"kept-{reads}") as file:
        file.write(b"bytes")
    with client.opened(top, f"kept-{reads}", reads=reads) as file:
        file.reads = False
        client.uid = NOBODY
        with pytest.raises(nfs4.Status) as refused:
            file.open(empties=True)
        client.uid = 0
        assert refused.value.number == nfs4.DENIED
        assert file.read() == b"bytes"
        # The user of the first open may.
        file.open(empties=True)
        assert client.getattr(file.handle).size == 0


def test_a_file_that_is_looked_up_while_it_is_written_has_its_size_after_the_seal(
    server: Server, client: nfs4.Client
) -> None:
    top = client.handle("export")
    with client.opened(top, "grows") as file:
        file.write(b"x" * 100)
        for _ in range(3):
            # Ganesha forgets the names of the directory, so the LOOKUP reaches Spillway.
            client.mkdir(top, "other")
            client.remove(top, "other")
            client.getattr(top)
            attributes = client.lookup(top, "grows")
            assert attributes.size == 100
        file.write(b"x" * 100, 100)
    statement = "SELECT 1 FROM inode WHERE ino = :ino AND write_open = 0"
    until(lambda: query(server.settings, statement, ino=attributes.fileid), "the seal")
    after = client.getattr(file.handle)
    assert (after.size, after.fileid) == (200, attributes.fileid)
    assert after.change > attributes.change
