"""Records what leaves the trash as actions (gateway.retention.store): begun before, ended after.

An undelete begins and ends while its process is alone. A removal is not alone; one that was cut off
is continued under its action.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.db.compiled import Session
from gateway.retention import store
from gateway.retention.store import Action
from gateway.trash import rows
from gateway.trash.rows import Entry, State

REMOVE, UNDELETE, RELEASE = "remove", "undelete", "release"
REMOVED = "removed for good"


def begin_removal(session: Session, entry: Entry, by: str, reason: str) -> int:
    """Record that a removal begins or continues, inside a write transaction. Returns the id of its
    action."""
    for one in store.unfinished(session):
        if (one.what, one.ino) == (REMOVE, entry.ino):
            return one.id
    return store.begin(session, REMOVE, entry, by, reason)


def cut_off(
    session: Session, there: dict[str, int], known: Sequence[Entry]
) -> Iterator[tuple[Action, str]]:
    """Yield the actions that nothing continues, with how they ended. It reads all actions.

    Parameters: there and known, what is in the trash and its rows, both of this transaction.
    """
    leaving = {one.ino for one in known if one.state == State.EXPIRING}
    for action in store.unfinished(session):
        is_there = there.get(rows.id_of(action.ino)) == action.ino
        place = "it is still in the trash" if is_there else "it is not in the trash any more"
        if action.what == REMOVE and not is_there:
            yield action, REMOVED
        elif action.what == UNDELETE or (action.what == REMOVE and action.ino not in leaving):
            yield action, f"interrupted: {place}"
