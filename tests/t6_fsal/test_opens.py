"""Tests opens of a real NFS server that a kernel's client does not make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.server import Server
from tests.support import nfs4

NOBODY = 65534


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nfs4.Client]:
    directory: Path = tmp_path_factory.mktemp("opens")
    with (
        Server("spillway", directory, directory / "log") as server,
        nfs4.Client(server.port) as found,
    ):
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
