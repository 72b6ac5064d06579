"""Rows of the catalogue, and the states that commands, the admin API and its pages show. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import case, literal_column

from gateway.catalogue.facts import CheckpointState, Grade
from gateway.catalogue.record import CheckpointRecord
from gateway.db.statements import checkpoint


class CheckpointRow(NamedTuple):
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
    before: CheckpointRow | None
    """Its row as it was."""
    now: CheckpointRow | None
    """Its row as it is to be. None: it is no checkpoint."""
    wanted: int | None = None
    """An evicted file that a rule must read."""
    known: CheckpointRecord | None = None
    """Its record as it was."""
    record: CheckpointRecord | None = None
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
        before = CheckpointState.WRITING if self.before is None else self.before.state
        is_writing = self.now is not None and self.now.state == CheckpointState.WRITING
        return is_writing and before == CheckpointState.WRITING and self.wanted is None

    @property
    def is_of_durable(self) -> bool:
        """Whether the checkpoint was durable or is durable now."""
        rows = (self.before, self.now)
        return any(row is not None and row.state == CheckpointState.DURABLE for row in rows)

    @property
    def is_rebuilt(self) -> bool:
        """Whether what is below it may be other checkpoints now."""
        extents = [None if row is None else row.extent for row in (self.before, self.now)]
        return extents[0] != extents[1]


ARCHIVED = "archived"
"""State that is only shown: of a durable one whose objects were moved to another storage class."""
EXPIRED: Final = "expired"
"""State that is only shown: of one in the trash, which the catalogue does not have."""
CATALOGUED = (*map(str, CheckpointState), ARCHIVED)
"""The states that a checkpoint of the catalogue is shown in."""

MEANING: dict[str, str] = {
    CheckpointState.WRITING: "its save has not ended",
    CheckpointState.COMPLETE: "its save has ended, and only this gateway has it",
    CheckpointState.DRAINING: "its save has ended, and the bucket has some of it",
    CheckpointState.DURABLE: "the bucket has all of it",
    CheckpointState.BROKEN: (
        "it was complete, and has lost members since: no other one is deleted for it. Save it "
        "again, or delete it"
    ),
    ARCHIVED: "the bucket has all of it, in another storage class",
    EXPIRED: "it was deleted, and can be restored from the trash",
    Grade.LISTED: "its index names its members, and all are there and as long as the index says",
    Grade.ALIKE: "it has the same members as the complete ones before it in its run",
    Grade.MARKED: "its save has ended, and nothing lists its members: no other one is deleted for "
    "it, and a policy deletes it only by its age, after an approval",
}
"""What the states and grades of a checkpoint mean, for people."""
ALARMING = (CheckpointState.BROKEN, Grade.MARKED)
"""Those that keep other checkpoints from being deleted."""

SHOWN = case(
    (
        (checkpoint.c.state == literal_column(f"'{CheckpointState.DURABLE}'"))
        & checkpoint.c.storage_class.is_not(None),
        literal_column(f"'{ARCHIVED}'"),
    ),
    else_=checkpoint.c.state,
)
"""The state of a row of the catalogue as it is shown."""


def shown_state(state: str, storage_class: str | None) -> str:
    """Return the same of a row that was read.

    Args:
        state, storage_class: its columns of these names.
    """
    return (
        ARCHIVED if state == CheckpointState.DURABLE and storage_class is not None else str(state)
    )
