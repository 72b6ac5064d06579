"""nfs.clients and nfs.squash decide which hosts may mount, and as which user their calls run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db.models import ROOT_INO
from tests.support.client import MOUNT
from tests.support.gateway import Gateway
from tests.support.namespace import Namespace
from tests.support.s3server import RcloneServer
from tests.support.vm.client import ClientError, ClientVm
from tests.support.volumes import query
from tests.t7_nfs.conftest import MakeGateway

LOAD = Path(__file__).parents[2] / "build" / "bench" / "nfsload"
NOBODY = "65534"
USER = 1000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RcloneServer]:
    with RcloneServer(tmp_path / "s3") as started:
        yield started


def gateway(directory: Path, server: RcloneServer, **nfs: Any) -> Gateway:
    return Gateway(
        directory,
        server,
        values={"nfs": nfs},
    )


def create(port: int) -> subprocess.CompletedProcess[str]:
    """Create a file as root with nfsload."""
    argv = [str(LOAD), "127.0.0.1", str(port), "/checkpoints", "create", "--count", "1"]
    return subprocess.run(argv, capture_output=True, text=True)


def open_files(port: int, workload: str, prefix: str, uid: int) -> str:
    """Create or truncate the file ``<prefix>0000000`` of a directory that the user makes."""
    argv = [str(LOAD), "127.0.0.1", str(port), "/checkpoints", workload, "--count", "1"]
    # The path is three deep. With two, fresh.c would forget the second directory: its number shares
    # a slot with the first.
    argv += ["--dir", "open/own/new", "--prefix", prefix, "--uid", str(uid)]
    return subprocess.run(argv, capture_output=True, text=True).stdout


def open_directory(namespace: Namespace) -> None:
    """Make a directory that every user may write."""
    namespace.mkdir(ROOT_CRED, ROOT_INO, b"open", SetAttr(mode=0o777))


def test_a_host_that_is_not_listed_cannot_mount(vm: ClientVm, make_gateway: MakeGateway) -> None:
    with pytest.raises(ClientError, match="No such file or directory"):
        make_gateway(nfs={"clients": ["10.0.0.0/8 rw", "::1 rw"]})


def test_a_host_that_may_read_cannot_write(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway(open_directory, nfs={"clients": ["127.0.0.1 ro", "127.0.0.0/8 rw"]})
    assert gateway.said("hosts that may mount: 127.0.0.1 (read, root is root); 127.0.0.0/8") == 1
    refused = vm.run(["touch", str(MOUNT / "open/file")], check=False)
    assert "Read-only file system" in refused.stderr
    assert vm.run(["ls", str(MOUNT)]).stdout.split() == ["open"]


@pytest.mark.parametrize(
    ("clients", "squash"), [(["127.0.0.1 rw"], "root"), (["127.0.0.1 rw all_squash"], "none")]
)
def test_a_squashed_root_is_nobody(
    vm: ClientVm, make_gateway: MakeGateway, clients: list[str], squash: str
) -> None:
    make_gateway(open_directory, nfs={"clients": clients, "squash": squash})
    refused = vm.run(["touch", str(MOUNT / "file")], check=False)
    assert "Permission denied" in refused.stderr
    vm.run(["touch", str(MOUNT / "open/file")])
    assert vm.run(["stat", "-c", "%u %g", str(MOUNT / "open/file")]).stdout.split() == [NOBODY] * 2


@pytest.mark.parametrize(("owner", "mode"), [(0, 0o400), (USER, 0o444)], ids=["theirs", "own"])
def test_an_open_that_may_not_write_does_not_empty_the_file(
    tmp_path: Path, server: RcloneServer, owner: int, mode: int
) -> None:
    """An OPEN with size 0, as a shell's > sends it, finds a name that Ganesha's look-up missed.

    The look-up in the new directory is answered from memory (``fresh.c``). Therefore only the
    CREATE finds a name that the test puts into the database meanwhile. The same happens with a name
    that another client makes at this moment.
    """
    made = gateway(tmp_path / "gateway", server)
    settings = made.settings
    namespace = Namespace(settings)
    open_directory(namespace)
    values = SetAttr(mode=mode, uid=owner, gid=owner)
    file = namespace.create(ROOT_CRED, ROOT_INO, b"f0000000", values, for_writing=True)
    data = namespace.files.path(file.ino, file.epoch)
    data.write_bytes(b"precious")
    namespace.close()
    with made as running:
        assert '"errors": 0' in open_files(running.port, "create", "g", USER)
        moved = query(
            settings,
            "UPDATE dirent SET parent = (SELECT parent FROM dirent WHERE name = :beside)"
            " WHERE ino = :ino RETURNING name",
            beside=b"g0000000",
            ino=file.ino,
        )
        assert moved == [(b"f0000000",)]
        assert "NFS4ERR 13" in open_files(running.port, "truncate", "f", USER)  # NFS4ERR_ACCESS
        assert data.read_bytes() == b"precious"
        assert '"errors": 0' in open_files(running.port, "truncate", "f", 0)
        assert data.read_bytes() == b""


@pytest.mark.parametrize(
    ("bind", "client", "serves"),
    [
        ("::", "127.0.0.1 rw", True),
        ("::", "::1 rw", False),
        ("127.0.0.1", "0.0.0.0/0 rw", True),
        ("127.0.0.1", "::/0 rw", False),
    ],
)
def test_an_address_of_version_4_is_one_whatever_the_server_listens_on(
    tmp_path: Path, server: RcloneServer, bind: str, client: str, serves: bool
) -> None:
    """A socket that accepts both versions shows 127.0.0.1 as ::ffff:127.0.0.1."""
    with gateway(tmp_path / "gateway", server, bind=bind, clients=[client]) as running:
        done = create(running.port)
    assert (done.returncode == 0) is serves, done.stderr
