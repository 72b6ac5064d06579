"""One inode of the model: what a client sees of it, and where its bytes are."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.common import errors
from gateway.common.types import Attr, Cred, Residency

Errors = set[type[errors.NamespaceError]]


class Refused(Exception):
    """The operation must answer one of these errors.

    Args:
        found: the errors.
        or_nothing: whether it may also succeed and change nothing.
    """

    def __init__(self, classes: Errors, *, or_nothing: bool = False) -> None:
        super().__init__(", ".join(sorted(error.__name__ for error in classes)))
        self.errnos = {error.errno for error in classes}
        self.or_nothing = or_nothing


@dataclass(frozen=True)
class AtLeast:
    """A value that the standards leave to the implementation, with a lower limit."""

    low: int


Value = int | AtLeast


@dataclass(eq=False)
class Node:
    """An inode. Times and change have the value seen last, or AtLeast until they are seen."""

    kind: int
    mode: int
    uid: int
    gid: int
    atime_ns: Value
    mtime_ns: Value
    ctime_ns: Value
    btime_ns: Value
    change: Value = field(default_factory=lambda: AtLeast(0))
    ino: int = 0
    generation: int = 0
    size: int = 0
    used: int = 0
    rdev: int = 0
    target: bytes | None = None
    verifier: bytes | None = None
    entries: dict[bytes, Node] = field(default_factory=dict)
    write_open: bool = False
    data: int | None = None
    """The size of the local data file, or None without one."""
    writes: int = 0
    written_ns: int = 0
    version: int = 0
    drained: int = 0
    """The newest version that the bucket has as it was sealed."""
    object: tuple[int, int] | None = None
    """Version and size of the object. That of a snapshot is ahead of ``drained``."""
    is_moved: bool = False
    """Whether a name has changed since the object was stored, so that its key may be wrong."""
    residency: int = Residency.RESIDENT
    epoch: int = 0
    has_blocks: bool = False
    """Whether some blocks of an absent file are known to be in its data file."""
    seen: Attr | None = None
    cookies: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """The cookies of the entries in the last listing, by name and inode."""

    def grants(self, cred: Cred, wanted: int) -> bool:
        """Return whether POSIX (XBD 4.7) grants access: only the first class that fits decides."""
        if cred.uid == 0:
            return True
        if cred.uid == self.uid:
            return (self.mode >> 6) & wanted == wanted
        if self.gid == cred.gid or self.gid in cred.groups:
            return (self.mode >> 3) & wanted == wanted
        return self.mode & wanted == wanted

    @property
    def is_absent(self) -> bool:
        return self.residency == Residency.ABSENT

    def grew(self) -> None:
        """Require a larger ``change``, because clients can see a change (RFC 8881, 5.8.1.4)."""
        if not isinstance(self.change, AtLeast):
            self.change = AtLeast(self.change + 1)

    def may_grow(self) -> None:
        if not isinstance(self.change, AtLeast):
            self.change = AtLeast(self.change)
