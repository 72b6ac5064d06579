"""Small disks that behave badly on purpose: full, or failing. Needs root or sudo, a loop device."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.tools import run_as_root, tool

MIB = 1024 * 1024


def make_ext4(image: Path, mib: int, *options: str, extended: str = "discard") -> None:
    """A file system in a file of so many MiB; its root directory belongs to us, not to root."""
    with image.open("wb") as file:
        file.truncate(mib * MIB)
    extended += f",root_owner={os.geteuid()}:{os.getegid()}"
    command = [tool("mkfs.ext4"), "-q", "-F", "-m", "0", *options, "-E", extended]
    subprocess.run([*command, image], check=True, capture_output=True, stdin=subprocess.DEVNULL)


@contextmanager
def small_disk(directory: Path, image: Path, mib: int) -> Iterator[None]:
    """Mount a new ext4 of so many MiB on a directory."""
    make_ext4(image, mib)
    with mounted(image, directory):
        yield


@contextmanager
def mounted(image: Path, directory: Path) -> Iterator[None]:
    """Mount an image on a directory. What root left on it in a VM belongs to us then."""
    directory.mkdir(parents=True, exist_ok=True)
    run_as_root("mount", "-o", "loop", image, directory)
    try:
        run_as_root("chown", "--recursive", f"{os.geteuid()}:{os.getegid()}", directory)
        yield
    finally:
        run_as_root("umount", directory)


class ThinDisk:
    """An ext4 that has fewer blocks than it says: writing the first one too many is an I/O error.

    Its image lies on a tmpfs that is smaller than the image. All of the file system's own blocks
    are there from the beginning, so only file data can fail.

    Parameters: directory, to mount it on; pool, a directory for the tmpfs; real_mib, says_mib.
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
        """Give it all the blocks it says it has."""
        run_as_root("mount", "-o", f"remount,size={self._says_mib * 2}m", self._pool)

    def remove(self) -> None:
        """Unmount everything."""
        run_as_root("umount", self._directory)
        run_as_root("umount", self._pool)
