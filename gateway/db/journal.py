"""The journal: which inodes each transaction touched, for readers that follow what changes.

A transaction adds one row with all inodes that it touched, each once, whatever it did to them; a
second row where their flags differ. A row says where to look, never what to find there: a reader
looks at the inodes as they are now. It reads rows by number, and keeps its position, the number up
to which it is done, in its row of ``reader``.

Invariant: numbers are in the order of the commits, so nobody sees row n + 1 before row n. Rows are
added only inside ``Database.transaction`` and the transactions of the NFS server's writer, of which
there is one at a time (gateway/CONCURRENCY.md).

While there is no reader, no row is added. A reader that saves its position prunes what all readers
are past. One that falls more than KEPT_MAX rows behind is dropped (``tidy``): it is told ``Lost``,
as is one whose database was restored, and reads the namespace itself again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Integer, String, bindparam, delete, exists, func, insert, select, update

from gateway.db.compiled import Session, Statement, b, numbers_in, numbers_of
from gateway.db.statements import journal, reader
from gateway.errors import GatewayError

log = logging.getLogger("spillway.journal")

CHANGED = 1
"""Names, attributes, or content, or whether the bucket has it."""
BELOW = 2
"""Everything below the inode has another path, or may be drained now."""
STORED = 4
"""The object of the inode, or its key."""

KEPT_MAX = 2_000_000
"""Rows: 60 MB where changes come one by one, 1 GB where each row has 64 of them. To read the
namespace takes no longer than to read more."""
PRUNED_AT_ONCE = 2048
"""Rows in one transaction: a few milliseconds, for which the NFS server waits."""
READ_AT_ONCE = 256
"""Rows: a row of a start that seals has 256 inodes."""

NOTE_INSERT = Statement(
    insert(journal).from_select(
        ["what", "inos"],
        select(bindparam("what", type_=Integer), bindparam("inos", type_=String)).where(
            exists(select(reader.c.name))
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
        select(func.min(reader.c.position)).scalar_subquery(),
    )
)
"""The first row, the last row, and the position of the reader that is furthest behind."""
STANDING = Statement(
    select(
        _SAVED,
        func.coalesce(_LAST, 0),
        select(journal.c.inos)
        .where(journal.c.seq == func.coalesce(b("position"), _SAVED))
        .scalar_subquery(),
    )
)
"""The saved position of a reader, the last row, and the inodes of the row at a position."""
READER_INSERT = Statement(insert(reader))
READER_DELETE = Statement(delete(reader).where(reader.c.name == b("reader")))
READER_MOVE = Statement(
    update(reader).where(reader.c.name == b("reader")).values(position=b("new_position"))
)
READERS_BEHIND = Statement(delete(reader).where(reader.c.position < b("least")))
READERS_FORGET = Statement(delete(reader))


class Lost(GatewayError):
    """The journal does not have everything that the reader has not read."""


class Touched(NamedTuple):
    """An inode that a transaction touched."""

    ino: int
    what: int


def note(session: Session, touched: Mapping[int, int]) -> None:
    """Add what a write transaction touched. Parameters: touched, flags by inode."""
    for what in set(touched.values()):
        inos = numbers_of(ino for ino, flags in touched.items() if flags == what)
        session.run(NOTE_INSERT, what=what, inos=inos)


class _Standing(NamedTuple):
    """Where a reader is, as one transaction sees it."""

    saved: int | None
    """The position in its row; None: there is no row."""
    last: int
    """The last row of the journal; 0: there was none ever."""
    inos: str | None
    """Of the row at its position, which is not pruned."""


class Reader:
    """One reader. Not safe to use from several threads.

    Parameters: name, which no other reader has.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._at = _Standing(None, 0, None)
        """As this reader left it."""
        self._position = 0
        """Of what was read last."""
        self.is_at_end = True
        """Whether that was the last row."""

    @property
    def unsaved(self) -> int:
        """Rows that were read since the position was saved."""
        return self._position - (self._at.saved or 0)

    def begin(self, session: Session, lease: int | None = None) -> None:
        """Begin at the end, inside a write transaction: what is read of the namespace after it is
        complete together with the rows to come. Parameters: lease, with which the reader ends."""
        session.run(READER_DELETE, reader=self.name)
        last = self._standing(session, None).last
        session.run(READER_INSERT, name=self.name, position=last, lease=lease)
        self.resume(session)

    def resume(self, session: Session) -> None:
        """Begin where the position was saved. Raises Lost."""
        found = self._standing(session, None)
        if found.saved is None or found.saved > found.last:
            raise Lost(f"the journal was not kept for reader {self.name!r}")
        self._at, self._position = found, found.saved

    def read(self, session: Session, most: int) -> list[Touched]:
        """What the next rows name; no further row once there are so many. Raises Lost."""
        found = self._standing(session, self._position)
        # A database that was restored, or that failed over, continues without what we saw.
        if (found.saved, found.inos) != (self._at.saved, self._at.inos):
            raise Lost(f"the journal was not kept for reader {self.name!r}")
        touched: list[Touched] = []
        self.is_at_end = found.last == self._position
        if self.is_at_end:
            return touched
        for seq, what, inos in session.all(ROWS, after=self._position, most=READ_AT_ONCE):
            touched.extend(Touched(ino, what) for ino in numbers_in(inos))
            self._position, self._at = seq, self._at._replace(inos=inos)
            if len(touched) >= most:
                break
        self.is_at_end = self._position >= found.last
        return touched

    def save(self, session: Session) -> None:
        """Save the position inside a write transaction, and prune. What the reader made of the rows
        must be durable by then, unless it reads everything again when it starts.

        Where the transaction is not committed, the next ``read`` raises Lost. Raises Lost.
        """
        if not session.run(READER_MOVE, reader=self.name, new_position=self._position):
            raise Lost(f"the journal was not kept for reader {self.name!r}")
        self._at = self._at._replace(saved=self._position)
        _prune(session)

    def _standing(self, session: Session, position: int | None) -> _Standing:
        row = session.one(STANDING, reader=self.name, position=position)
        assert row is not None, "a query without a table has one row"
        return _Standing(*row)


def _prune(session: Session) -> None:
    """Delete rows that every reader is past, a bounded number: neither the last row, nor one at
    which a reader is."""
    row = session.one(ENDS)
    assert row is not None, "a query without a table has one row"
    first, last, least = row
    if first is None:
        return
    upto = min(last if least is None else least, last, first + PRUNED_AT_ONCE) - 1
    if upto >= first:
        session.run(PRUNE, upto=upto)


def tidy(session: Session) -> None:
    """Drop readers that are too far behind, and prune, inside a write transaction. The NFS server
    does it now and then: a reader that is gone for ever would keep the others' rows for ever."""
    row = session.one(ENDS)
    if row is not None and row[2] is not None and row[1] is not None:
        least = row[1] - KEPT_MAX
        if row[2] < least and (dropped := session.run(READERS_BEHIND, least=least)):
            log.warning("dropped %d readers of the journal, over %d behind", dropped, KEPT_MAX)
    _prune(session)


def forget_readers(session: Session) -> None:
    """Make every reader read everything again: rows were changed that no transaction noted."""
    session.run(READERS_FORGET)
