"""A row of the catalogue, and what a look at an inode found. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gateway.checkpoints.facts import State
from gateway.checkpoints.record import Record


class Row(NamedTuple):
    """A row of ``checkpoint``."""

    ino: int
    parent: int
    path: bytes
    run: bytes
    step: int | None
    rule: str
    extent: int
    state: str
    reason: str | None
    files: int
    size: int
    dirty_files: int
    dirty_size: int
    complete_ns: int | None
    durable_ns: int | None
    due_ns: int | None
    evidence: str
    dirty_since_ns: int | None
    storage_class: str | None
    grade: str | None


class Look(NamedTuple):
    """What a look at an inode found."""

    ino: int
    before: Row | None
    """Its row as it was."""
    now: Row | None
    """Its row as it is to be. None: it is no checkpoint."""
    wanted: int | None = None
    """An evicted file that a rule must read."""
    known: Record | None = None
    """Its record as it was."""
    record: Record | None = None
    """Its record as it is to be. None: it has none."""

    @property
    def is_news(self) -> bool:
        return self.before != self.now or self.known != self.record

    @property
    def completes(self) -> bytes | None:
        """The run of which it is a complete checkpoint that others may be alike to now, or None."""
        before = None if self.known is None else self.known.shape
        is_new = self.record is not None and self.record.shape != before
        return self.now.run if is_new and self.now is not None else None

    @property
    def is_unnumbered(self) -> bool:
        """Whether its record has no place in the order of completions yet."""
        return self.record is not None and self.record.completion is None

    @property
    def is_progress(self) -> bool:
        """Whether it changes only the progress of a checkpoint that is being written."""
        before = State.WRITING if self.before is None else self.before.state
        is_writing = self.now is not None and self.now.state == State.WRITING
        return is_writing and before == State.WRITING and self.wanted is None

    @property
    def is_of_durable(self) -> bool:
        """Whether the checkpoint was durable or is durable now."""
        rows = (self.before, self.now)
        return any(row is not None and row.state == State.DURABLE for row in rows)

    @property
    def is_rebuilt(self) -> bool:
        """Whether what is below it may be other checkpoints now."""
        extents = [None if row is None else row.extent for row in (self.before, self.now)]
        return extents[0] != extents[1]
