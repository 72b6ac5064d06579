"""Rows of ``trash``, the contents of its directory, and the log of what leaves it.

What leaves the trash is recorded as an action (gateway.lifecycle.retention.store): begun before,
ended after.

An undelete begins and ends while its process is alone. A removal is not alone; one that was cut off
is continued under its action.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import (
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    union,
    update,
)

from gateway.common import clock
from gateway.common.clock import ElapsedTime
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import TRASH_INO
from gateway.db.statements import (
    IS_DIRECTORY,
    IS_DIRTY,
    IS_REGULAR,
    IS_RESIDENT,
    dirent,
    inode,
    object_,
    pin,
    promotion,
    trash,
    with_below,
)
from gateway.lifecycle.retention import store
from gateway.lifecycle.retention.store import ActionRow
from gateway.namespace.lookup import way_up

_INTEGER_MAX = (1 << 63) - 1


class TrashState(StrEnum):
    """How far an entry is."""

    PUTTING = "putting"
    """It is on its way, or did not get there."""
    KEPT = "kept"
    """It can be taken back."""
    EXPIRING = "expiring"
    """It is being removed."""
    RETURNING = "returning"
    """It comes back, or did not get there: it is given back to clients bit by bit."""


class TrashRow(NamedTuple):
    """A row of ``trash``."""

    id: str
    ino: int
    path: bytes
    run: bytes
    step: int | None
    files: int
    size: int
    dirty_used: int
    deleted_ns: int
    since_ns: int
    expires_ns: int
    deleted_by: str
    reason: str
    state: str
    complete_ns: int | None = None
    stays: str | None = None
    rotated: int | None = None
    """The inode of the checkpoint, if clients removed it: it is held for a newer one."""
    completion: int | None = None
    run_ino: int | None = None
    released_by: str | None = None

    @property
    def is_there(self) -> bool:
        """Whether it is in the trash, neither on its way there nor back."""
        return self.state in (TrashState.KEPT, TrashState.EXPIRING)


class Totals(NamedTuple):
    """What an entry takes. Bytes, except for the number of files."""

    local: int = 0
    """Bytes on the local disk."""
    stored: int = 0
    """Bytes in the bucket."""
    dirty_files: int = 0
    """Sealed files that the bucket does not have."""
    dirty_size: int = 0
    """The length of them."""


ENTRIES = Statement(
    select(*(trash.c[name] for name in TrashRow._fields))
    .select_from(trash.join(inode, inode.c.ino == trash.c.ino))
    .where(inode.c.nlink > 0)
    .order_by(trash.c.since_ns, trash.c.id)
)
INSERT = Statement(insert(trash))
DELETE = Statement(delete(trash).where(trash.c.id == b("the_id")))
DELETE_OF = Statement(delete(trash).where(trash.c.ino == b("the_ino")))
MOVE_ON = Statement(
    update(trash)
    .where(
        trash.c.id == b("the_id"),
        trash.c.state == b("before"),
        trash.c.since_ns == b("since_ns"),
    )
    .values(state=b("after"))
)
"""Changes the state of the entry that was read. Its id is given again to the same inode, if that
comes back and is deleted once more: such an entry has a grace of its own."""
STAYS = Statement(
    update(trash)
    .where(trash.c.id == b("the_id"), trash.c.since_ns == b("since_ns"))
    .values(stays=b("why"))
)
COUNTED = Statement(update(trash).where(trash.c.id == b("the_id")).values(dirty_used=b("used")))
IN_TRASH = Statement(
    select(dirent.c.name, dirent.c.ino).where(dirent.c.parent == literal_column(f"{TRASH_INO}"))
)
IS_THERE = Statement(select(inode.c.ino).where(inode.c.ino == literal_column(f"{TRASH_INO}")))
DIRECTORIES_IN = Statement(
    select(inode.c.ino)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino))
    .where(dirent.c.parent == b("parent"), IS_DIRECTORY)
    .limit(1)
)
WANTED = Statement(
    union(
        select(pin.c.ino),
        select(promotion.c.ino).where(promotion.c.state == literal_column("'copying'")),
    )
)
"""Selects what people pinned, and what is being copied for them."""

_TREE = with_below(
    select(trash.c.id, trash.c.ino).where(
        trash.c.since_ns.between(b("first_ns"), b("last_ns")),
        exists().where(
            dirent.c.parent == literal_column(f"{TRASH_INO}"), dirent.c.ino == trash.c.ino
        ),
    )
)
_is_waiting = and_(*IS_DIRTY, inode.c.write_open == 0)
TOTALS = Statement(
    select(
        _TREE.c.id,
        func.sum(case((IS_RESIDENT, inode.c.used), else_=0)),
        func.sum(func.coalesce(object_.c.size, 0)),
        func.sum(case((_is_waiting, 1), else_=0)),
        func.sum(case((_is_waiting, inode.c.size), else_=0)),
    )
    .select_from(
        _TREE.join(inode, inode.c.ino == _TREE.c.ino).outerjoin(
            object_, object_.c.ino == inode.c.ino
        )
    )
    # Without the second condition newer releases of SQLite scan the inodes.
    .where(IS_REGULAR, inode.c.ino.in_(select(_TREE.c.ino)))
    .group_by(_TREE.c.id)
)


def entries(session: Session) -> list[TrashRow]:
    """Return all entries, also those that are on their way there, the oldest first."""
    return [_entry(row) for row in session.all(ENTRIES)]


def _entry(row: Sequence[Any]) -> TrashRow:
    made = TrashRow(*row)
    return made._replace(path=bytes(made.path), run=bytes(made.run))


def in_trash(session: Session) -> dict[str, int] | None:
    """Return what is in the trash: inodes by name. None: this namespace has no trash."""
    if session.one(IS_THERE) is None:
        return None
    inos = {bytes(name).decode("utf-8", "replace"): ino for name, ino in session.all(IN_TRASH)}
    # Others build there what clients are not to see yet (gateway.lifecycle.promotion).
    return {name: ino for name, ino in inos.items() if name == id_of(ino)}


def id_of(ino: int) -> str:
    """Return the id that an inode has in the trash."""
    return f"t{ino}"


def has_directories(session: Session, ino: int) -> bool:
    """Return whether a directory has directories in it."""
    return session.one(DIRECTORIES_IN, parent=ino) is not None


def totals(session: Session, first_ns: int = 0, last_ns: int = _INTEGER_MAX) -> dict[str, Totals]:
    """Return what each entry takes, by id. It reads all inodes of these entries.

    Args:
        first_ns, last_ns: ``since_ns`` of the first and the last entry.
    """
    rows = session.all(TOTALS, first_ns=first_ns, last_ns=last_ns)
    return {row[0]: Totals(*map(int, row[1:])) for row in rows}


def wanted(session: Session) -> set[int]:
    """Return what is pinned or being copied, and the directories above it."""
    inos = {ino for (ino,) in session.all(WANTED)}
    return inos | {parent for ino in inos for _at, parent, _name in way_up(session, ino)}


def move_on(session: Session, entry: TrashRow, after: TrashState) -> bool:
    """Give an entry another state, inside a write transaction. Returns False if its state is not
    what it was, or if it came back meanwhile and was deleted once more."""
    given = {"the_id": entry.id, "before": entry.state, "since_ns": entry.since_ns}
    return session.run(MOVE_ON, **given, after=str(after)) > 0


def elapsed_time(session: Session) -> ElapsedTime:
    """Return the elapsed time. Raises OSError."""
    row = session.one(sql.ELAPSED_TIME)
    stored = None if row is None else ElapsedTime(*row)
    return clock.elapsed_time(clock.reading(), stored)


def tick(session: Session) -> ElapsedTime:
    """Store the elapsed time, inside a write transaction, and return it. Raises OSError."""
    now = elapsed_time(session)
    session.run(sql.ELAPSED_TIME_DELETE)
    session.run(sql.ELAPSED_TIME_INSERT, id=1, **now._asdict())
    return now


REMOVE, UNDELETE, RELEASE = "remove", "undelete", "release"
REMOVED = "removed for good"


def begin_removal(session: Session, entry: TrashRow, by: str, reason: str) -> int:
    """Record that a removal begins or continues, inside a write transaction. Returns the id of its
    action."""
    for row in store.unfinished(session):
        if (row.what, row.ino) == (REMOVE, entry.ino):
            return row.id
    return store.begin(session, REMOVE, entry, by, reason)


def cut_off(
    session: Session, there: dict[str, int], known: Sequence[TrashRow]
) -> Iterator[tuple[ActionRow, str]]:
    """Yield the actions that nothing continues, with how they ended. It reads all actions.

    Args:
        there, known: what is in the trash and its rows, both of this transaction.
    """
    leaving = {row.ino for row in known if row.state == TrashState.EXPIRING}
    for action in store.unfinished(session):
        is_there = there.get(id_of(action.ino)) == action.ino
        place = "it is still in the trash" if is_there else "it is not in the trash any more"
        if action.what == REMOVE and not is_there:
            yield action, REMOVED
        elif action.what == UNDELETE or (action.what == REMOVE and action.ino not in leaving):
            yield action, f"interrupted: {place}"
