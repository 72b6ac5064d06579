"""Journal: the inodes that each transaction touched, for the readers that follow changes.

A transaction adds one row with all inodes that it touched, each once, whatever it did to them. It
adds a second row if their flags differ. A row says where to look, never what to find there: a
reader looks at the inodes as they are now. A reader reads rows by number. Its row of ``reader``
keeps its position, the number up to which it is done.

Invariant: numbers are in the order of the commits, so no reader sees row n + 1 before row n. Rows
are added only inside ``Database.transaction`` and the transactions of the NFS server's writer. Only
one of these runs at a time (gateway/CONCURRENCY.md).

While there is no reader, no row is added. A reader that saves its position prunes the rows that all
readers have passed. A reader that falls more than KEPT_MAX rows behind is dropped (``tidy``). It
then gets ``Lost``, as does a reader whose database was restored, and reads the whole namespace
again. Until it begins again, the row of a dropped reader has the position DROPPED, which people
see.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Integer, String, bindparam, delete, exists, func, insert, select, update

from gateway.common.errors import SpillwayError
from gateway.db.compiled import Session, Statement, b, numbers_in, numbers_of
from gateway.db.statements import journal, reader

log = logging.getLogger("spillway.journal")

CHANGED = 1
"""Names, attributes or content changed, or whether the bucket has the content."""
BELOW = 2
"""Everything below the inode has another path, or may be drained now."""
STORED = 4
"""The object of the inode changed, or its key, or what was not certain about them. Of a directory:
the objects below it are at their keys now."""

KEPT_MAX = 2_000_000
"""The rows that are kept: 60 MB if changes come one by one, 1 GB if each row has 64 of them.
Reading more rows would take longer than reading the namespace."""
DROPPED = -1
PRUNED_BY_SAVE = 512
PRUNED_BY_TIDY = 2048
"""The rows that one transaction prunes. A row of a full batch fills a page of the database, so
2,048 rows take up to 30 ms, for which the NFS server waits: only ``tidy`` may, once a minute."""
READ_AT_ONCE = 256
"""The rows that are read at once. A row of a start that seals files has 256 inodes."""

NOTE_INSERT = Statement(
    insert(journal).from_select(
        ["what", "inos"],
        select(bindparam("what", type_=Integer), bindparam("inos", type_=String)).where(
            exists(select(reader.c.name).where(reader.c.position > DROPPED))
        ),
    )
)
ROWS = Statement(
    select(journal.c.seq, journal.c.what, journal.c.inos)
    .where(journal.c.seq > b("after"))
    .order_by(journal.c.seq)
    .limit(b("most"))
)
PRUNE = Statement(delete(journal).where(journal.c.seq <= b("upto")))
_LAST = select(func.max(journal.c.seq)).scalar_subquery()
_SAVED = select(reader.c.position).where(reader.c.name == b("reader")).scalar_subquery()
ENDS = Statement(
    select(
        select(func.min(journal.c.seq)).scalar_subquery(),
        _LAST,
        select(func.min(reader.c.position)).where(reader.c.position > DROPPED).scalar_subquery(),
    )
)
"""Selects the first row, the last row, and the position of the reader that is furthest behind."""
STANDING = Statement(
    select(
        _SAVED,
        func.coalesce(_LAST, 0),
        select(journal.c.inos)
        .where(journal.c.seq == func.coalesce(b("position"), _SAVED))
        .scalar_subquery(),
    )
)
"""Selects the saved position of a reader, the last row, and the inodes of the row at a position."""
READER_INSERT = Statement(insert(reader))
READER_DELETE = Statement(delete(reader).where(reader.c.name == b("reader")))
READER_MOVE = Statement(
    update(reader)
    .where(reader.c.name == b("reader"), reader.c.position > DROPPED)
    .values(position=b("new_position"))
)
READERS_BEHIND = Statement(
    update(reader)
    .where(reader.c.position < b("least"), reader.c.position > DROPPED)
    .values(position=DROPPED)
)
READERS_DROPPED = Statement(
    select(reader.c.name).where(reader.c.position == DROPPED).order_by(reader.c.name)
)
READERS_FORGET = Statement(delete(reader))


class Lost(SpillwayError):
    """The journal lacks rows that the reader has not read."""


class TouchedInode(NamedTuple):
    """An inode that a transaction touched."""

    ino: int
    what: int


def note(session: Session, touched: Mapping[int, int]) -> None:
    """Add the inodes that a write transaction touched.

    Args:
        touched: flags by inode.
    """
    kinds = set(touched.values())
    for kind in kinds:
        inos = touched if len(kinds) == 1 else [i for i, flags in touched.items() if flags == kind]
        session.run(NOTE_INSERT, what=kind, inos=numbers_of(inos))


class _Standing(NamedTuple):
    """The position of a reader, as one transaction sees it."""

    saved: int | None
    """The position in its row, or None if there is no row."""
    last: int
    """The last row of the journal, or 0 if there never was one."""
    inos: str | None
    """The inodes of the row at its position. That row is never pruned."""


class Reader:
    """A reader of the journal. Not safe to use from several threads.

    Args:
        name: no other reader has.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._at = _Standing(None, 0, None)
        """The standing as this reader left it."""
        self._position = 0
        """The number of the row that was read last."""
        self.is_at_end = True
        """Whether that was the last row."""

    @property
    def position(self) -> int:
        """The row that was read last."""
        return self._position

    @property
    def saved(self) -> int:
        """The row at which the position was saved last."""
        return self._at.saved or 0

    @property
    def unsaved(self) -> int:
        """The number of rows that were read since the position was saved."""
        return self._position - (self._at.saved or 0)

    def begin(self, session: Session, lease: int | None = None) -> None:
        """Begin at the end, inside a write transaction. What is read of the namespace after that
        transaction, together with the rows to come, is complete.

        Args:
            lease: lease with which the reader ends.
        """
        session.run(READER_DELETE, reader=self.name)
        last = self._standing(session, None).last
        session.run(READER_INSERT, name=self.name, position=last, lease=lease)
        self.resume(session)

    def resume(self, session: Session) -> None:
        """Begin at the saved position. Raises Lost."""
        position = self._standing(session, None)
        if position.saved is None or not DROPPED < position.saved <= position.last:
            raise Lost(f"the journal was not kept for reader {self.name!r}")
        self._at, self._position = position, position.saved

    def read(self, session: Session, most: int) -> list[TouchedInode]:
        """Return the inodes of the next rows, and stop after the row that brings them to ``most``.
        Raises Lost."""
        position = self._standing(session, self._position)
        # A database that was restored, or that failed over, continues without rows that were seen.
        if (position.saved, position.inos) != (self._at.saved, self._at.inos):
            raise Lost(f"the journal was not kept for reader {self.name!r}")
        touched: list[TouchedInode] = []
        self.is_at_end = position.last == self._position
        if self.is_at_end:
            return touched
        for seq, kind, inos in session.all(ROWS, after=self._position, most=READ_AT_ONCE):
            touched.extend(TouchedInode(ino, kind) for ino in numbers_in(inos))
            self._position, self._at = seq, self._at._replace(inos=inos)
            if len(touched) >= most:
                break
        self.is_at_end = self._position >= position.last
        return touched

    def save(self, session: Session) -> None:
        """Save the position inside a write transaction, and prune. What the reader made of the rows
        must be durable by then, unless the reader reads everything again when it starts.

        If the transaction is not committed, the next ``read`` raises Lost. Raises Lost.
        """
        if not session.run(READER_MOVE, reader=self.name, new_position=self._position):
            raise Lost(f"the journal was not kept for reader {self.name!r}")
        self._at = self._at._replace(saved=self._position)
        _prune(session, PRUNED_BY_SAVE)

    def _standing(self, session: Session, position: int | None) -> _Standing:
        row = session.one(STANDING, reader=self.name, position=position)
        assert row is not None, "a query without a table has one row"
        return _Standing(*row)


def _prune(session: Session, most: int) -> None:
    """Delete up to ``most`` rows that every reader has passed, but neither the last row nor a row
    at which a reader is."""
    row = session.one(ENDS)
    assert row is not None, "a query without a table has one row"
    first, last, least = row
    if first is None:
        return
    upto = min(last if least is None else least, last, first + most) - 1
    if upto >= first:
        session.run(PRUNE, upto=upto)


def dropped(session: Session) -> list[str]:
    """Return the readers that were dropped and have not begun again."""
    return [name for (name,) in session.all(READERS_DROPPED)]


def tidy(session: Session) -> None:
    """Drop readers that are too far behind, and prune, inside a write transaction. The NFS server
    does this from time to time: a reader that is gone would keep rows for ever."""
    row = session.one(ENDS)
    if row is not None and row[2] is not None and row[1] is not None:
        least = row[1] - KEPT_MAX
        if row[2] < least and (count := session.run(READERS_BEHIND, least=least)):
            log.warning("dropped %d readers of the journal, over %d behind", count, KEPT_MAX)
    _prune(session, PRUNED_BY_TIDY)


def forget_readers(session: Session) -> None:
    """Make every reader read everything again, because rows were changed that no transaction
    noted."""
    session.run(READERS_FORGET)
