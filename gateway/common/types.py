"""Value types of the namespace, and the storage classes of S3 that Spillway tells apart. Pure.

This module imports nothing of the gateway.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NAME_MAX_BYTES = 255
LINK_MAX = 32_000
SYMLINK_MAX_BYTES = 4095
FIRST_NS = 1_577_836_800 * 10**9
"""The beginning of 2020. An earlier time is that of a clock that was not set."""


class InodeKind(IntEnum):
    """The type of an inode. The numbers are Ganesha's object_file_type_t (include/fsal_types.h)."""

    REGULAR = 1
    CHARACTER = 2
    BLOCK = 3
    SYMLINK = 4
    SOCKET = 5
    FIFO = 6
    DIRECTORY = 7


class Residency(IntEnum):
    """The place of a regular file's bytes."""

    ABSENT = 0
    """The bytes are in the bucket. Verified blocks of them may be in the local data file."""
    RESIDENT = 2
    """All bytes are in the local data file. Kinds without bytes are resident too."""


class Extent(IntEnum):
    """Which inodes are the members of a checkpoint."""

    TREE = 1
    """Everything below the directory. No other checkpoint is in it."""
    FILES = 2
    """What is directly in the directory. Directories in it are checkpoints of their own, or none:
    a final model is saved beside the checkpoints of its run."""
    FILE = 3
    """One file."""


class Attr(NamedTuple):
    """The attributes of an inode as a client sees them. Times are nanoseconds since 1970."""

    ino: int
    generation: int
    kind: int
    mode: int
    """Permission bits, 07777."""
    uid: int
    gid: int
    nlink: int
    size: int
    """Bytes."""
    used: int
    """Allocated bytes."""
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int
    change: int
    """Grows with every change of the inode (RFC 8881 section 5.8.1.4)."""
    rdev: int
    """major << 32 | minor of a device node."""
    epoch: int
    """Suffix of the local data file's name. Each eviction moves it."""
    residency: int = Residency.RESIDENT
    reserved: int = 0
    """1 if only the gateway may change it: see gateway.namespace.reserved."""


class Dirent(NamedTuple):
    """One entry of a directory listing."""

    cookie: int
    """Position after this entry, unique in the directory and stable for the life of the name."""
    name: bytes
    attr: Attr


class Cred(NamedTuple):
    """The identity of a caller: numeric ids as Ganesha resolved them, after squashing."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    is_gateway: bool = False
    """Whether the gateway asks for itself, over the control socket. No client's request has it."""

    def is_member(self, gid: int) -> bool:
        return gid == self.gid or gid in self.groups


ROOT_CRED = Cred(0, 0)
GATEWAY_CRED = Cred(0, 0, is_gateway=True)


class SetAttr(NamedTuple):
    """Attributes to set. None leaves one as it is. Size is missing: it belongs to the data file."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None


class RemovedName(NamedTuple):
    """The rest of an inode that lost a name by an unlink or a replacing rename."""

    ino: int
    kind: int
    nlink: int
    """0 means that no name is left. The bytes of a regular file stay until it is reclaimed."""
    epoch: int
    change: int


class DataFileOnDisk(NamedTuple):
    """A data file as the disk has it."""

    size: int
    mtime_ns: int


class Sealed(NamedTuple):
    """The facts of a data file when its last writer closed."""

    size: int
    used: int
    mtime_ns: int
    writes: int
    """Changes made to the bytes since the file was opened for writing."""


TIERED = "INTELLIGENT_TIERING"
"""It has archives of its own, into which a bucket can be told to move what is not read. What is
given back from them stays readable."""
READ_AT_ONCE = ("STANDARD_IA", "ONEZONE_IA", TIERED, "GLACIER_IR")
"""Cheaper ones whose objects are read like all others. A policy may move objects to them."""
ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Those whose objects are given back hours after they were asked for."""

EXPEDITED, STANDARD, BULK = "Expedited", "Standard", "Bulk"
"""How fast an object is given back."""
RESTORE_HOURS = {EXPEDITED: 5 / 60, STANDARD: 5.0, BULK: 12.0}
"""The longest that this usually takes."""
DEEP_RESTORE_HOURS = {STANDARD: 12.0, BULK: 48.0}
"""The same for deep archives, which give back nothing at once."""
