"""Small disks that behave badly on purpose: full, or failing. Needs root and a loop device."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 1024 * 1024


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


@contextmanager
def small_disk(directory: Path, image: Path, mib: int) -> Iterator[None]:
    """Mount an ext4 of so many MiB on a directory."""
    with image.open("wb") as file:
        file.truncate(mib * MIB)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", image)
    directory.mkdir(parents=True, exist_ok=True)
    _run("mount", "-o", "loop", image, directory)
    try:
        yield
    finally:
        _run("umount", directory)


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
        _run("mount", "-t", "tmpfs", "-o", f"size={real_mib}m", "tmpfs", pool)
        image = pool / "image"
        with image.open("wb") as file:
            file.truncate(says_mib * MIB)
        features = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", "-E", features, image)
        _run("mount", "-o", "loop", image, directory)

    def mend(self) -> None:
        """Give it all the blocks it says it has."""
        _run("mount", "-o", f"remount,size={self._says_mib * 2}m", self._pool)

    def remove(self) -> None:
        """Unmount everything."""
        _run("umount", self._directory)
        _run("umount", self._pool)
