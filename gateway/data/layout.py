"""Finds the bytes of an inode on the local disk. The C side has the same rule (fd.c).

A data file is named by inode number and epoch and is never renamed. Inode numbers are never reused,
so a late unlink cannot delete newer bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from gateway.errors import SpillwayError
from gateway.types import Found

SHARDS = 256
_NAME = re.compile(r"([0-9]+)\.([0-9]+)")


class SyncError(SpillwayError, OSError):
    """A data file could not be put on stable storage. Its bytes may be lost for good.

    The kernel reports the failure once. A later sync of the file succeeds without those bytes.
    """


class DataFiles:
    """The data files below one directory.

    Files move between its directories only, so that it may be a disk of its own.

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

    @property
    def is_made(self) -> bool:
        """Whether all shard directories are there. Raises OSError."""
        return all((self.root / f"{shard:02x}").is_dir() for shard in range(SHARDS))

    def path(self, ino: int, epoch: int) -> Path:
        """Return the path of the data file of an inode and epoch."""
        return self.root / f"{ino % SHARDS:02x}" / f"{ino}.{epoch}"

    def sync(self, ino: int, epoch: int) -> os.stat_result | None:
        """Put a data file on stable storage. Returns its attributes, or None without a data file.

        Raises SyncError when bytes may be lost for good, OSError when the file cannot be opened,
        which loses nothing.
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

    def look(self, ino: int, epoch: int) -> Found | None:
        """Return what a data file is, or None without one. Raises OSError."""
        try:
            found = self.path(ino, epoch).stat()
        except FileNotFoundError:
            return None
        return Found(found.st_size, found.st_mtime_ns)

    def set_mtime(self, ino: int, epoch: int, mtime_ns: int) -> None:
        """Give a data file the time of its row (ns since 1970). Raises OSError."""
        os.utime(self.path(ino, epoch), ns=(mtime_ns, mtime_ns))

    @property
    def incoming(self) -> Path:
        """The directory in which other processes prepare files that INSTALL takes."""
        return self.root / "incoming"

    def take(self, name: str, ino: int, epoch: int) -> None:
        """Make a prepared file the data file of an inode, durably. Raises OSError."""
        path = self.path(ino, epoch)
        self.incoming.joinpath(name).rename(path)
        self.sync(ino, epoch)

    def clear_incoming(self) -> None:
        """Delete what processes that died had prepared."""
        for path in self.incoming.iterdir() if self.incoming.is_dir() else ():
            if not path.is_dir():
                path.unlink()

    def remove(self, ino: int, epoch: int) -> None:
        """Delete a data file. Call it only after the commit that deleted its row."""
        with suppress(FileNotFoundError):
            self.path(ino, epoch).unlink()

    def sync_shards(self, inos: Iterable[int]) -> None:
        """Make deletions of data files of these inodes durable. Raises OSError."""
        for shard in {ino % SHARDS for ino in inos}:
            sync_directory(self.root / f"{shard:02x}")

    @property
    def aside(self) -> Path:
        """The directory for data files that no inode owns. It is not ``lost+found``, which the root
        of an ext4 has: that one is root's alone."""
        return self.root / "set-aside"

    def set_aside(self, ino: int, epoch: int) -> None:
        """Move a data file that no inode owns out of the way. It deletes and replaces nothing."""
        self.aside.mkdir(mode=0o700, exist_ok=True)
        target = self.aside / f"{ino}.{epoch}"
        number = 0
        while target.exists():
            number += 1
            target = self.aside / f"{ino}.{epoch}.{number}"
        self.path(ino, epoch).rename(target)
        sync_directory(self.aside)

    def walk(self) -> Iterator[tuple[int, int]]:
        """Yield (ino, epoch) of every data file."""
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
