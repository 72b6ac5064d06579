"""Real NFS server and its control socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gateway.rpc.control import Remote
from tests.support.nfsserver import Server
from tests.support.waiting import until


def await_control_socket(server: Server) -> None:
    """Wait for the control socket: without ``spillway up``, no lock says that the server is
    starting."""
    until((server.settings.run_dir / "nfs.sock").exists, "the control socket")


@contextmanager
def serving(directory: Path) -> Iterator[tuple[Server, Remote]]:
    """Run a server.

    Args:
        directory: empty.
    """
    with Server("spillway", directory, directory / "log") as server:
        await_control_socket(server)
        with closing(Remote(server.settings)) as control:
            yield server, control
