"""Data files on the local disk, and the stamp that says whose they are and how old.

A data file is named by inode number and epoch and is never renamed. Inode numbers are never reused,
so a late unlink cannot delete newer bytes. The C side has the same rule (fd.c).

The stamp, ``files/stamp.json``, lies on the disk of the data files. A mount point without its disk
has no stamp, and the stamp of another disk has other values. ``gateway.namespace.identity``
compares it with the row of the volume.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gateway.common import files
from gateway.common.errors import IdentityError, SpillwayError
from gateway.common.types import DataFileOnDisk

SHARDS = 256
_NAME = re.compile(r"([0-9]+)\.([0-9]+)")


class SyncError(SpillwayError, OSError):
    """A data file could not be put on stable storage. Its bytes may be lost for good.

    The kernel reports the failure once. A later sync of the file succeeds without those bytes.
    """


class DataFiles:
    """The data files below one directory.

    Files move between its directories only, so that it may be a disk of its own.

    Args:
        root: the ``files`` directory; its 256 shard directories are made by ``create``.
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
            stat = os.fstat(fd)
            sync_directory(path.parent)
        except OSError as error:
            raise SyncError(error.errno, error.strerror) from error
        finally:
            os.close(fd)
        return stat

    def look(self, ino: int, epoch: int) -> DataFileOnDisk | None:
        """Return what a data file is, or None without one. Raises OSError."""
        try:
            stat = self.path(ino, epoch).stat()
        except FileNotFoundError:
            return None
        return DataFileOnDisk(stat.st_size, stat.st_mtime_ns)

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


NAME = "stamp.json"


class Stamp(NamedTuple):
    """The identity and the marks of the data files."""

    fs_id: str
    """Id of the namespace, in hexadecimal digits."""
    gateway: str
    """Id of the gateway, in hexadecimal digits."""
    marks: tuple[int, ...]
    """The volume's mark. It is two numbers while the mark moves: the database has one of them."""
    directory: int
    """Inode number of the directory of the data files. A copy of the files has another one."""
    lineage: tuple[str, int] | None = None
    """Origin and branch of the database that got the mark (gateway.db.url). A stamp of an
    earlier release has None."""
    is_stopped: bool = False
    """Whether nothing was committed after the mark, because the server was stopped with it."""
    is_behind: bool = False
    """Whether the database was found to lack changes, and the data files were not compared since.
    """


def directory_of(root: Path) -> int:
    """Return the inode number of a directory, as a stamp has it. Raises OSError."""
    return root.stat().st_ino


def read(root: Path) -> Stamp | None:
    """Return the stamp of the data files below a directory, or None without one.

    Raises IdentityError when the file is there and cannot be understood.
    """
    path = root / NAME
    try:
        document: Any = json.loads(path.read_bytes())
        return Stamp(
            str(document["fs_id"]),
            str(document["gateway"]),
            tuple(int(mark) for mark in document["marks"]),
            int(document["directory"]),
            None if (of := document.get("lineage")) is None else (str(of[0]), int(of[1])),
            bool(document.get("is_stopped", False)),
            bool(document.get("is_behind", False)),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, LookupError, TypeError, OSError) as exc:
        raise IdentityError(
            f"the stamp {path} of the data files cannot be read ({exc}): check the disk; if it "
            "is sound, remove the stamp and run: spillway adopt files"
        ) from None


def write(root: Path, stamp: Stamp) -> None:
    """Write the stamp, durably. Raises OSError."""
    files.replace(root / NAME, json.dumps(stamp._asdict()) + "\n", 0o600)
