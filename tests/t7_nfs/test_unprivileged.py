"""The NFS server needs no root: it serves as an ordinary user who may listen on a low port."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config import loader
from gateway.nfs.server import answers
from tests.support import nfs4
from tests.support.clisite import PROGRAM, Running, environ, spillway
from tests.support.gateway import PLUGINS_DIR
from tests.support.nfs4 import op, opaque, putfh
from tests.support.ports import free_port
from tests.support.waiting import until

NOBODY = 65534
NET_BIND_SERVICE = 10
"""The number of the capability (capabilities(7), linux/capability.h)."""
GRACE_SECONDS = 5
OWNER, GROUP = 36 - 32, 37 - 32
"""The bits of the attributes in the second word of a bitmap (RFC 7530 section 5)."""


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="spillway-nobody-"))
    if os.geteuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


def become() -> tuple[str, ...]:
    """Return the command that leaves a program the one capability; root becomes nobody."""
    if os.geteuid() != 0:
        return ()
    capabilities = [f"--{kind}=-all,+net_bind_service" for kind in ("inh-caps", "ambient-caps")]
    bounds = "--bounding-set=-all,+net_bind_service"
    user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs")
    return ("setpriv", *user, *capabilities, bounds)


def low_port() -> int:
    """Return a free port that only root, or the capability, can have."""
    return free_port() if os.geteuid() != 0 else next(filter(is_free, range(1023, 600, -1)))


def is_free(number: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", number)) != 0


def chown(client: nfs4.Client, handle: bytes, uid: int, gid: int) -> None:
    bitmap = struct.pack(">III", 2, 0, 1 << OWNER | 1 << GROUP)
    values = opaque(str(uid).encode()) + opaque(str(gid).encode())
    client.call(putfh(handle), op(nfs4.SETATTR) + bytes(16) + bitmap + opaque(values))


def test_an_ordinary_user_serves(directory: Path) -> None:
    """It reads and writes, and a client's root changes owners: they are rows, not owners of files
    of this machine."""
    prefix, source = become(), directory / "spillway.toml"
    nfs = {
        **{"bind": "127.0.0.1", "port": low_port(), "plugins_dir": PLUGINS_DIR},
        **{"lease_seconds": GRACE_SECONDS, "grace_seconds": GRACE_SECONDS},
    }
    source.write_text(
        loader.render(
            {
                "gateway": {"data_dir": directory / "data"},
                "nfs": nfs,
                "bucket": {"name": "b", "endpoint_url": "http://127.0.0.1:9"},
            }
        )
    )
    source.chmod(0o644)
    env = {"HOME": str(directory)}
    made = spillway("init", "--config", source, env=env, prefix=prefix)
    assert made.returncode == 0, made.stderr
    settings = loader.load(source, {})
    argv = [*prefix, str(PROGRAM), "serve", "nfs", "--config", str(source)]
    with Running(argv, environ(**env)) as server:
        until(lambda: answers(settings) or server.process.poll() is not None, "the server")
        facts = Path(f"/proc/{server.process.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in facts.splitlines() if ":\t" in line)
        assert fields["Name"] == "ganesha.nfsd"
        if prefix:
            assert set(fields["Uid"].split()) == {str(NOBODY)}
            for held in ("CapEff", "CapPrm", "CapBnd"):
                assert int(fields[held], 16) == 1 << NET_BIND_SERVICE
        with nfs4.Client(settings.nfs.port) as client:
            root = client.handle("checkpoints")
            with client.opened(root, "shard") as file:
                file.write(b"weights")
                assert file.read() == b"weights"
            chown(client, client.handle("checkpoints", "shard"), 1234, 5678)
        shown = spillway("stat", "--json", "--config", source, "shard", env=env, prefix=prefix)
        [facts_of_file] = json.loads(shown.stdout)
        assert (facts_of_file["uid"], facts_of_file["gid"]) == (1234, 5678)
