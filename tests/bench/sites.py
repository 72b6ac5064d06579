"""The places where measured servers run: the disk, a tmpfs, an ext4 mounted dirsync."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config import loader
from tests.bench.scale import ROOT, creator, spread
from tests.support.namespace import Namespace
from tests.support.nfsserver import Server
from tests.support.tools import tool

TMPFS_MIB = 6144
DIRSYNC_MIB = 1024
POPULATING_CALLERS = 64


@contextmanager
def mounted(mount_point: Path, *arguments: str) -> Iterator[Path]:
    """Mount a file system until the end of the block. Raises CalledProcessError without root."""
    mount_point.mkdir()
    subprocess.run(["mount", *arguments, mount_point], check=True)
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", mount_point], check=True)


@contextmanager
def tmpfs(mount_point: Path) -> Iterator[Path]:
    with mounted(mount_point, "-t", "tmpfs", "-o", f"size={TMPFS_MIB}m", "none") as directory:
        yield directory


@contextmanager
def dirsync_ext4(mount_point: Path) -> Iterator[Path]:
    """Mount an ext4 in a file beside the mount point. It answers when changed names are durable.

    The file is filled with zeros, because holes would make each first write slower for the peer.
    """
    image = mount_point.with_suffix(".img")
    eager = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    try:
        fill = ["dd", "if=/dev/zero", f"of={image}", "bs=1M", f"count={DIRSYNC_MIB}", "conv=fsync"]
        subprocess.run([*fill, "status=none"], check=True)
        subprocess.run([tool("mkfs.ext4"), "-q", "-E", eager, image], check=True)
        with mounted(mount_point, "-o", "loop,dirsync", str(image)) as directory:
            yield directory
    finally:
        image.unlink()


def start(
    stack: ExitStack, kind: str, directory: Path, files: Mapping[str, int] | None = None
) -> Server:
    """Start a server of ``tests.support.nfsserver.KINDS`` in a new directory.

    They are made before the server starts, so they are in none of its caches.

    Args:
        files: the number of empty files (f0000000 …) by directory name.
    """
    directory.mkdir()
    server = Server(kind, directory, directory / "ganesha.log")
    for name, count in (files or {}).items():
        _populate(kind, directory, name, count)
    return stack.enter_context(server)


def _populate(kind: str, directory: Path, name: str, count: int) -> None:
    if kind == "vfs":
        made = directory / "files" / name
        made.mkdir()
        for number in range(count):
            (made / f"f{number:07d}").touch()
        return
    namespace = Namespace(loader.load(directory / "spillway.toml", {}))
    try:
        parent = namespace.mkdir(ROOT_CRED, ROOT, name.encode(), SetAttr(mode=0o755)).ino
        spread(POPULATING_CALLERS, count, creator(namespace, [parent]))
    finally:
        namespace.close()
