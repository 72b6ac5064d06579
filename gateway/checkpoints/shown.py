"""The state of a checkpoint as it is shown: by commands, by the admin API, and on its pages."""

from __future__ import annotations

from sqlalchemy import case, literal_column

from gateway.checkpoints.facts import State
from gateway.db.statements import checkpoint

ARCHIVED, EXPIRED = "archived", "expired"
"""States that are only shown: of a durable one whose objects were moved to another storage class,
and of one in the trash. The catalogue has the former as durable, and the latter not at all."""
CATALOGUED = (*map(str, State), ARCHIVED)
"""The states that a checkpoint of the catalogue is shown in."""

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
