"""Saves files through mounts of a machine of its own server, and requires that none is lost."""

from __future__ import annotations

from tests.appliance.machine import Machine
from tests.support.s3server import RcloneServer
from tests.support.waiting import until

BUCKET = "checkpoints"
MOUNT = "mkdir -p /mnt/{0} && mount -t nfs4 -o vers=4.1 127.0.0.1:/{1} /mnt/{0}"
CHECKPOINTS = MOUNT.format("ckpt", "checkpoints")
DRAIN_SECONDS = 300


class Saves:
    """What was saved so far.

    Args:
        server: server of its bucket.
    """

    def __init__(self, machine: Machine, server: RcloneServer) -> None:
        self._machine = machine
        self._server = server
        self._digests: dict[str, str] = {}
        """By the paths of the files below a mount."""

    def save(self, path: str, mount: str = "/mnt/ckpt") -> None:
        """Save a file through a mount, and wait until the bucket has it. Raises AssertionError."""
        file = f"{mount}/{path}"
        self._machine.ssh(f"mkdir -p $(dirname {file}) && head -c 300000 /dev/urandom > {file}")
        digest = self._machine.ssh(f"sync {file} && md5sum < {file}").stdout
        stored = self._server.directory / BUCKET / path
        until(stored.is_file, f"{path} in the bucket", DRAIN_SECONDS)
        assert digest == self._machine.ssh("md5sum", stdin=stored.read_bytes()).stdout
        self._digests[path] = digest

    def require_all(self, mount: str = "/mnt/ckpt") -> None:
        """Require that everything that was saved is there, as it was. Raises AssertionError."""
        self._machine.ssh("echo 3 > /proc/sys/vm/drop_caches")
        for path, digest in self._digests.items():
            assert self._machine.ssh(f"md5sum < {mount}/{path}").stdout == digest, path
