"""The state of a checkpoint as it is shown: by commands, by the admin API, and on its pages."""

from __future__ import annotations

from typing import Final

from sqlalchemy import case, literal_column

from gateway.checkpoints.facts import Grade, State
from gateway.db.statements import checkpoint

ARCHIVED = "archived"
"""State that is only shown: of a durable one whose objects were moved to another storage class."""
EXPIRED: Final = "expired"
"""State that is only shown: of one in the trash, which the catalogue does not have."""
CATALOGUED = (*map(str, State), ARCHIVED)
"""The states that a checkpoint of the catalogue is shown in."""

MEANING: dict[str, str] = {
    State.WRITING: "its save has not ended",
    State.COMPLETE: "its save has ended, and only this gateway has it",
    State.DRAINING: "its save has ended, and the bucket has some of it",
    State.DURABLE: "the bucket has all of it",
    State.BROKEN: "it was complete, and has lost members since: no other one is deleted for it",
    ARCHIVED: "the bucket has all of it, in another storage class",
    EXPIRED: "it is in the trash, and can be taken back",
    Grade.LISTED: "its index names its members, and all are there and as long as the index says",
    Grade.ALIKE: "it has the same members as the complete ones before it in its run",
    Grade.MARKED: "its save has ended, and nothing lists its members: no other one is deleted for "
    "it, and a policy deletes it only by its age, after an approval",
}
"""What the states and grades of a checkpoint mean, for people."""
ALARMING = (State.BROKEN, Grade.MARKED)
"""Those that keep other checkpoints from being deleted."""

SHOWN = case(
    (
        (checkpoint.c.state == literal_column(f"'{State.DURABLE}'"))
        & checkpoint.c.storage_class.is_not(None),
        literal_column(f"'{ARCHIVED}'"),
    ),
    else_=checkpoint.c.state,
)
"""The state of a row of the catalogue as it is shown."""


def shown_state(state: str, storage_class: str | None) -> str:
    """Return the same of a row that was read. Parameters: its columns of these names."""
    return ARCHIVED if state == State.DURABLE and storage_class is not None else str(state)
