"""Small disks that are full or fail on purpose. They need root or sudo, and a loop device."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.tools import run_as_root, tool

MIB = 1024 * 1024


def make_ext4(image: Path, mib: int, *options: str, extended: str = "discard") -> None:
    """Make a file system in a file of this size. Its root directory belongs to us, not to root."""
    with image.open("wb") as file:
        file.truncate(mib * MIB)
    extended += f",root_owner={os.geteuid()}:{os.getegid()}"
    command = [tool("mkfs.ext4"), "-q", "-F", "-m", "0", *options, "-E", extended]
    subprocess.run([*command, image], check=True, capture_output=True, stdin=subprocess.DEVNULL)


@contextmanager
def small_disk(directory: Path, image: Path, mib: int) -> Iterator[None]:
    """Mount a new ext4 of this size on a directory."""
    make_ext4(image, mib)
    with mounted(image, directory):
        yield


@contextmanager
def mounted(image: Path, directory: Path) -> Iterator[None]:
    """Mount an image on a directory. Files that root made on it in a VM become ours."""
    directory.mkdir(parents=True, exist_ok=True)
    run_as_root("mount", "-o", "loop", image, directory)
    try:
        run_as_root("chown", "--recursive", f"{os.geteuid()}:{os.getegid()}", directory)
        yield
    finally:
        run_as_root("umount", directory)


class ThinDisk:
    """An ext4 that reports more blocks than it has: a write beyond them is an I/O error.

    Its image lies on a tmpfs that is smaller than the image. All of the file system's own blocks
    are there from the beginning, so only file data can fail.

    Args:
        directory: to mount it on.
        pool: a directory for the tmpfs.
        real_mib: the space that there is.
        says_mib: the space that is reported.
    """

    def __init__(self, directory: Path, pool: Path, real_mib: int, says_mib: int) -> None:
        self._directory = directory
        self._pool = pool
        self._says_mib = says_mib
        pool.mkdir(parents=True)
        directory.mkdir(parents=True, exist_ok=True)
        ours = f"uid={os.geteuid()},gid={os.getegid()}"
        run_as_root("mount", "-t", "tmpfs", "-o", f"size={real_mib}m,{ours}", "tmpfs", pool)
        image = pool / "image"
        eager = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        make_ext4(image, says_mib, "-J", "size=4", extended=eager)
        run_as_root("mount", "-o", "loop", image, directory)

    def mend(self) -> None:
        """Give the disk all the blocks that it reports."""
        run_as_root("mount", "-o", f"remount,size={self._says_mib * 2}m", self._pool)

    def remove(self) -> None:
        """Unmount everything."""
        run_as_root("umount", self._directory)
        # The loop device lets go of its image late if another program has the device open.
        run_as_root("umount", "--lazy", self._pool)
