"""A real NFS server and its door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gateway.rpc.control import Remote
from tests.support.nfsserver import Server
from tests.support.waiting import until


def await_door(server: Server) -> None:
    """Wait for the door: without ``spillway up``, no lock says that the server is starting."""
    until((server.settings.run_dir / "nfs.sock").exists, "the door")


@contextmanager
def serving(directory: Path) -> Iterator[tuple[Server, Remote]]:
    """Run a server. Parameters: directory, empty."""
    with Server("spillway", directory, directory / "log") as server:
        await_door(server)
        with closing(Remote(server.settings)) as door:
            yield server, door
