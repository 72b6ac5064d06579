"""Inputs and results of checkpoint rules: places in the namespace, and verdicts on them. Pure.

Names are bytes everywhere. ``printable`` (gateway.common.text) makes the text of reasons and
listings; nothing reads such a text back.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from gateway.common.errors import SpillwayError
from gateway.common.text import printable
from gateway.common.types import Extent, InodeKind

Parts = tuple[bytes, ...]
"""A path below the export's root."""

NOT_MADE = "the namespace was not looked at as a whole yet"
"""Why nothing can be said of all checkpoints: the catalogue is made at the first start."""
READ_MAX_BYTES = 16 << 20
"""A rule reads no more of a file at once."""


class PlaceEntry(NamedTuple):
    """An inode that a name leads to."""

    ino: int
    kind: int
    size: int
    is_open: bool
    """Whether it is open for writing."""
    change: int
    """Grows with every change of the inode, but not when it is evicted."""
    content_version: int
    epoch: int
    is_absent: bool

    @property
    def is_file(self) -> bool:
        return self.kind == InodeKind.REGULAR


class Unread(SpillwayError):
    """A rule asked for bytes that cannot be read now. What it would say is not known.

    Args:
        name: name of the file.
    """

    def __init__(self, name: bytes, entry: PlaceEntry) -> None:
        self.name, self.entry = name, entry
        why = ""
        if entry.is_absent or entry.is_open:
            why = " is evicted, so it" if entry.is_absent else " is open for writing, so it"
        super().__init__(f"{printable(name)}{why} cannot be read now")


class Place(Protocol):
    """A directory or file, what is in it and what is beside it."""

    @property
    def parts(self) -> Parts: ...

    @property
    def entry(self) -> PlaceEntry: ...

    def inside(self, *names: bytes) -> PlaceEntry | None:
        """Return what a path below the place leads to."""

    def beside(self, name: bytes) -> PlaceEntry | None:
        """Return what has a name in the directory of the place."""

    def ending(self, suffix: bytes, most: int) -> Sequence[bytes]:
        """Return up to ``most`` names in the place that end so, in order."""

    def starting(self, prefix: bytes, most: int) -> Sequence[bytes]:
        """Return up to ``most`` names in the place that begin so, in order."""

    def is_in_series(self, before: bytes, after: bytes) -> bool:
        """Return whether something beside the place has the same name but for its number, or the
        place was a step already.

        Args:
            before, after: the name without the number.
        """

    def read(self, name: bytes, entry: PlaceEntry, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes of a file, from ``start``. Raises Unread."""


class Recognised(NamedTuple):
    """What a rule recognised."""

    rule: str
    """Name of the rule."""
    run: bytes
    """What its series is called: the path of the directory that has the steps. Of single files,
    that path and their name with N in place of the number."""
    step: int | None
    extent: Extent


class CheckpointMember(NamedTuple):
    """A member of a checkpoint that is no directory."""

    path: bytes
    """The path in the checkpoint. Of a checkpoint of one file, its name."""
    entry: PlaceEntry


class Members(NamedTuple):
    """The members of a checkpoint together."""

    files: int
    """The number of regular files."""
    open_files: int
    """The number of files that are open for writing."""
    held: bytes | None
    """A member's name that says that it is not final."""
    unmatched: tuple[str, ...]
    """The patterns of the rule that no member matches."""
    newest_ns: int
    """The time of the newest change of a member."""
    newest_file_ns: int = 0
    """The time of the newest change of a file among them."""
    each: Sequence[CheckpointMember] | None = None
    """The members, in the order of their paths. None: there are more than MEMBERS_MAX."""


MEMBERS_MAX = 20_000
"""A checkpoint with more members is judged by its index, or by its names and sizes as a whole."""


class Completeness(NamedTuple):
    """Whether a checkpoint is complete."""

    reason: str | None
    """Why it is not, for people. None: it is complete."""
    due_ns: int | None = None
    """The time when that may change although nothing else does."""
    grade: Grade | None = None
    """What shows that it is complete. None: it is not."""
    is_pattern: bool = True
    """Whether later ones of its run may be complete because they are alike to it."""


class CheckpointState(StrEnum):
    """How far a checkpoint is."""

    WRITING = "writing"
    COMPLETE = "complete"
    """Every member is there. The bucket has none of them."""
    DRAINING = "draining"
    """Complete, and the bucket has some of the members."""
    DURABLE = "durable"
    """Complete, and the bucket has the present version of every member."""
    BROKEN = "broken"
    """It was complete, and members are gone or shorter since, without a writer."""


class Grade(StrEnum):
    """What shows that a checkpoint is complete, from the strongest to the weakest."""

    LISTED = "listed"
    """Every member that its index names is there, and as long as the index says."""
    ALIKE = "alike"
    """It has the members of the complete ones before it in its run."""
    MARKED = "marked"
    """The last step of the save was done, and nothing changed for a while."""


TRUSTED = (Grade.LISTED, Grade.ALIKE)
"""The grades of a checkpoint for which an older one may be deleted."""
