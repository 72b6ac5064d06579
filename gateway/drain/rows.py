"""Rows that the drain works with, as named tuples."""

from __future__ import annotations

from typing import NamedTuple

from gateway.common.types import Residency


class File(NamedTuple):
    """An inode as the drain needs it."""

    ino: int
    kind: int
    nlink: int
    content_version: int
    drained_version: int
    write_open: int
    drain_after_ns: int
    size: int
    epoch: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    generation: int
    residency: int

    @property
    def is_dirty(self) -> bool:
        return self.content_version > self.drained_version

    @property
    def is_resident(self) -> bool:
        """Whether the bytes of the file are on the local disk."""
        return self.residency == Residency.RESIDENT


class ObjectRow(NamedTuple):
    """A row of ``object``."""

    ino: int
    key: str
    content_version: int
    size: int
    etag: str
    storage_class: str | None
    """The one that the store told after a transition. None: the one in which it was sent."""
    checksum: str | None
    """None: another program may have made it."""


class Intent(NamedTuple):
    """A row of ``upload``: bytes of this inode may be at the key without an ``object`` row."""

    ino: int
    content_version: int
    key: str
    upload_id: str | None
    part_bytes: int | None
    generation: int
    """The generation of the inode, or 0 if it is not known."""


class IndeterminateRow(NamedTuple):
    """A row of ``indeterminate_write``. What is noted later about its key is another row."""

    key: str
    ino: int
    check_after_ns: int
