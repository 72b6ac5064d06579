"""Where the bytes of an inode are on the local disk. The C side has the same rule (fd.c).

A data file is named by inode number and epoch and never renamed; inode numbers are never reused,
so a late unlink cannot hit newer bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SHARDS = 256
_NAME = re.compile(r"([0-9]+)\.([0-9]+)")


class SyncError(OSError):
    """A data file could not be put on stable storage: its bytes may be lost for good.

    The kernel reports it once: a later sync of the same file succeeds without those bytes.
    """


class DataFiles:
    """The data files below one directory.

    Parameters: root, the ``files`` directory; its 256 shard directories are made by ``create``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self) -> None:
        """Make the shard directories, durably. Raises OSError."""
        self.root.mkdir(parents=True, exist_ok=True)
        for shard in range(SHARDS):
            (self.root / f"{shard:02x}").mkdir(exist_ok=True)
        sync_directory(self.root)

    def path(self, ino: int, epoch: int) -> Path:
        """The data file of one inode and epoch."""
        return self.root / f"{ino % SHARDS:02x}" / f"{ino}.{epoch}"

    def sync(self, ino: int, epoch: int) -> os.stat_result | None:
        """Put a data file on stable storage; None when it was never written.

        Raises SyncError: bytes may be lost for good. Raises OSError when the file cannot be opened,
        which takes nothing away.
        """
        path = self.path(ino, epoch)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            os.fsync(fd)
            found = os.fstat(fd)
            sync_directory(path.parent)
        except OSError as error:
            raise SyncError(error.errno, error.strerror) from error
        finally:
            os.close(fd)
        return found

    def remove(self, ino: int, epoch: int) -> None:
        """Delete a data file. Only after the commit that took its row away."""
        with suppress(FileNotFoundError):
            self.path(ino, epoch).unlink()

    @property
    def aside(self) -> Path:
        """Where data files go that no inode owns."""
        return self.root.parent / "lost+found"

    def set_aside(self, ino: int, epoch: int) -> None:
        """Move a data file that no inode owns out of the way; nothing is deleted or replaced."""
        self.aside.mkdir(exist_ok=True)
        target = self.aside / f"{ino}.{epoch}"
        number = 0
        while target.exists():
            number += 1
            target = self.aside / f"{ino}.{epoch}.{number}"
        self.path(ino, epoch).rename(target)
        sync_directory(self.aside)

    def walk(self) -> Iterator[tuple[int, int]]:
        """(ino, epoch) of every data file there is."""
        for shard in range(SHARDS):
            directory = self.root / f"{shard:02x}"
            for entry in os.scandir(directory) if directory.is_dir() else ():
                if match := _NAME.fullmatch(entry.name):
                    yield int(match[1]), int(match[2])


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
