"""Directories for users other than root, also where no client is root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gateway import running
from tests.support.nfs4 import DENIED, Client, Status

TEAM, GROUP, NOBODY = 1000, 1000, 65534


def writes(port: int, uid: int, directory: str) -> None:
    """Make a file as a user. Raises Status."""
    with Client(port) as client:
        client.uid = uid
        with client.opened(client.handle("checkpoints", directory), f"of-{uid}") as file:
            file.write(b"bytes")


@pytest.mark.parametrize("squash", ["none", "root", "all"])
def test_a_team_gets_a_directory(tmp_path: Path, squash: str) -> None:
    with running(tmp_path, {"nfs": {"squash": squash}}) as gateway:
        owner, other = (NOBODY, None) if squash == "all" else (TEAM, 1001)
        gateway.spillway("mkdir", "-m", "2770", "root-s")
        with pytest.raises(Status, match=str(DENIED)):
            writes(gateway.port, TEAM, "root-s")
        gateway.spillway("mkdir", "--owner", f"{owner}:{owner}", "-m", "2770", "team")
        writes(gateway.port, TEAM, "team")
        gateway.spillway("chown", f"{owner}:{owner}", "root-s")
        writes(gateway.port, TEAM, "root-s")
        gateway.spillway("chmod", "0", "root-s")
        with pytest.raises(Status, match=str(DENIED)):
            writes(gateway.port, TEAM, "root-s")
        if other is not None:
            with pytest.raises(Status, match=str(DENIED)):
                writes(gateway.port, other, "team")
        gateway.spillway("chmod", "1777", "/")
        with Client(gateway.port) as client:
            client.uid = TEAM
            client.mkdir(client.handle("checkpoints"), "own")
