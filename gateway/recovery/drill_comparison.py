"""Comparison of the names of a restored copy with those of the living namespace, page by page.

Both have the inodes that the journal names since the drill began. Those may differ, and are left
out: of all others the copy must have every row as it is. A page reads the living rows and the
journal at one moment, so that no change is missed between the two.
"""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import select

from gateway.common.text import text_of
from gateway.db.compiled import Session, Statement, b, numbers_of
from gateway.db.engine import Database
from gateway.db.journal import READER_DELETE, Reader
from gateway.db.models import ROOT_INO
from gateway.db.statements import inode
from gateway.namespace.lookup import path_of
from gateway.recovery import tables
from gateway.recovery.drill_record import DrillDifference
from gateway.recovery.tables import CopiedTable

READER = "drill"
PAGE_INOS = 2048
"""The inodes that are compared at one moment."""
SHOWN = 20
"""The differences that are shown."""
SAMPLE = 100
"""The objects that the bucket is asked for."""
READ_INOS = 65_536
"""The inodes of the journal that one read takes up."""
SAVE_ROWS = 10_000
"""The journal is kept for so many rows that the drill has read."""
_INO_MAX = (1 << 63) - 1

NOT_COMPARED = {
    "tombstone": "the drain adds them for objects whose inodes it does not always name",
    "rekey": "the drain adds them while it follows a renamed directory",
}
"""Tables with rows of inodes whose changes the journal may not name, and why. The drain makes or
removes these rows by itself: that they are a little older costs no file."""

_INOS_AFTER = Statement(
    select(inode.c.ino).where(inode.c.ino > b("after")).order_by(inode.c.ino).limit(b("most"))
)
_COMPARED = tuple(table for table in tables.BY_INODE if table.name not in NOT_COMPARED)
_OBJECT = tables.COPIED["object"]

_Row = tuple[Any, ...]


class TouchedInodes:
    """The inodes that the journal names since the drill began. They are kept in a file, because
    there may be millions.

    Args:
        database: of the gateway.
        path: of the file, which is made.
    """

    def __init__(self, database: Database, path: Path) -> None:
        self._database = database
        self._reader = Reader(READER)
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("CREATE TABLE touched (ino INTEGER PRIMARY KEY)")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def begin(self) -> int:
        """Begin at the end of the journal. Returns its last row. Raises NamespaceError."""
        with self._database.writing() as session:
            self._reader.begin(session)
        return self._reader.position

    def catch_up(self) -> None:
        """Read the journal to its end, and let go of what was read. Raises Lost, NamespaceError."""
        with self._database.reading() as session:
            self.read(session)
        if self._reader.unsaved >= SAVE_ROWS:
            with self._database.writing() as session:
                self._reader.save(session)

    def read(self, session: Session) -> None:
        """Read the journal to its end. Raises Lost."""
        while True:
            inos = {(touched.ino,) for touched in self._reader.read(session, READ_INOS)}
            if inos:
                self._file.execute("BEGIN")
                self._file.executemany("INSERT OR IGNORE INTO touched VALUES (?)", sorted(inos))
                self._file.execute("COMMIT")
            if self._reader.is_at_end:
                return

    def among(self, inos: Sequence[int]) -> set[int]:
        """Return which of some inodes were touched."""
        rows = self._file.execute(
            "SELECT ino FROM touched WHERE ino IN (SELECT value FROM json_each(?))",
            (numbers_of(inos),),
        )
        return {ino for (ino,) in rows}


def forget(database: Database) -> None:
    """Remove the reader of the journal. Raises NamespaceError."""
    with database.writing() as session:
        session.run(READER_DELETE, reader=READER)


class SampledObject(NamedTuple):
    """An object that the bucket is asked for."""

    ino: int
    key: str
    size: int
    etag: str


class NamesComparison:
    """The comparison of one drill.

    Args:
        database: of the gateway.
        copy: the restored one.
        touched: what changes meanwhile.
    """

    def __init__(self, database: Database, copy: Database, touched: TouchedInodes) -> None:
        self._database = database
        self._copy = copy
        self._touched = touched
        self.files = 0
        self.changed = 0
        self.differing = 0
        self.first: list[DrillDifference] = []
        self.objects = 0
        """The objects of the copy."""
        self.sample: list[SampledObject] = []
        self._random = random.Random()
        columns = _OBJECT.form.columns
        self._sampled = [columns.index(name) for name in SampledObject._fields]

    def pages(self) -> Iterator[None]:
        """Compare what belongs to inodes. Each step is a page. Raises Lost, NamespaceError."""
        done = 0
        while done < _INO_MAX:
            done = self._page(done)
            self._touched.catch_up()
            yield

    def _page(self, after: int) -> int:
        """Compare the next page. Returns its last inode."""
        differing: dict[int, list[tuple[CopiedTable, _Row, bool]]] = defaultdict(list)
        with self._database.reading() as living, self._copy.reading() as copied:
            last = _end_of_page((living, copied), after)
            for table in _COMPARED:
                ours = _rows(table.of_range(living, after, last))
                theirs = _rows(table.of_range(copied, after, last))
                at = table.form.columns.index(str(table.form.ino))
                for row in ours ^ theirs:
                    differing[row[at]].append((table, row, row in ours))
                if table is tables.INODE:
                    self.files += len(ours)
                elif table is _OBJECT:
                    self._draw(theirs)
            self._touched.read(living)
            changed = self._touched.among(list(differing))
            self.changed += len(changed)
            self.files -= len(changed)
            for ino in sorted(differing.keys() - changed):
                self.add(_path((living, copied), ino), _what(differing[ino]))
        return last

    def _draw(self, rows: set[_Row]) -> None:
        """Draw objects, of which each has the same chance."""
        for row in rows:
            self.objects += 1
            drawn = SampledObject(*(row[at] for at in self._sampled))
            if len(self.sample) < SAMPLE:
                self.sample.append(drawn)
            elif (at := self._random.randrange(self.objects)) < SAMPLE:
                self.sample[at] = drawn

    def add(self, path: str, what: str) -> None:
        """Count a file that differs."""
        self.differing += 1
        if len(self.first) < SHOWN:
            self.first.append(DrillDifference(path, what))

    def add_object(self, sampled: SampledObject, what: str) -> None:
        """Count an object that is not as it was recorded, unless its file has changed. Raises Lost,
        NamespaceError."""
        self._touched.catch_up()
        if self._touched.among([sampled.ino]):
            self.changed += 1
            return
        with self._database.reading() as living, self._copy.reading() as copied:
            self.add(_path((living, copied), sampled.ino), what)

    def lists(self, before: Mapping[str, Mapping[_Row, int]]) -> list[str]:
        """Compare the lists, which the journal does not name. Raises NamespaceError.

        Args:
            before: what ``hashes`` returned when the drill began. What differs and has changed
                since is counted as changed.

        Returns:
            What differs, for people.
        """
        found = []
        with self._database.reading() as living, self._copy.reading() as copied:
            for table in tables.COMPARED:
                ours = {table.key(row): tuple(row) for row in table.all(living)}
                theirs = {table.key(row): tuple(row) for row in table.all(copied)}
                keys = {
                    key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)
                }
                changed = {
                    key for key in keys if before[table.name].get(key) != _hash(ours.get(key))
                }
                self.changed += len(changed)
                if count := len(keys - changed):
                    found.append(f"{count} rows of {table.name} differ")
        return found

    def has_equal_lists(self) -> bool:
        """Return whether the lists are equal. Raises NamespaceError."""
        with self._database.reading() as living, self._copy.reading() as copied:
            return all(
                _rows(table.all(living)) == _rows(table.all(copied)) for table in tables.COMPARED
            )


def hashes(database: Database) -> dict[str, dict[_Row, int]]:
    """Return a hash of each row of the lists, by table and key. Raises NamespaceError."""
    with database.reading() as session:
        return {
            table.name: {table.key(row): hash(tuple(row)) for row in table.all(session)}
            for table in tables.COMPARED
        }


def _hash(row: _Row | None) -> int | None:
    return None if row is None else hash(row)


def _rows(rows: Sequence[Sequence[Any]]) -> set[_Row]:
    return set(map(tuple, rows))


def _end_of_page(sessions: Sequence[Session], after: int) -> int:
    """Return the last inode of a page, so that neither side has too many."""
    ends = []
    for session in sessions:
        inos = session.all(_INOS_AFTER, after=after, most=PAGE_INOS)
        if len(inos) == PAGE_INOS:
            ends.append(int(inos[-1][0]))
    return min(ends, default=_INO_MAX)


def _path(sessions: Sequence[Session], ino: int) -> str:
    """Return a path of an inode, as the first of some databases has it."""
    if ino == ROOT_INO:
        return "/"
    for session in sessions:
        if path := path_of(session, ino):
            return text_of(path)
    return f"inode {ino}"


def _what(rows: Sequence[tuple[CopiedTable, _Row, bool]]) -> str:
    """Return what differs of an inode.

    Args:
        rows: tables, rows that only one side has, and whether that is the living one.
    """
    sides: dict[tuple[str, _Row], dict[bool, _Row]] = defaultdict(dict)
    columns: dict[str, Sequence[str]] = {}
    for table, row, is_ours in rows:
        columns[table.name] = table.form.columns
        sides[table.name, table.key(row)][is_ours] = row
    if any(name == "inode" and False not in pair for (name, _key), pair in sides.items()):
        return "the copy lacks it"
    if any(name == "inode" and True not in pair for (name, _key), pair in sides.items()):
        return "only the copy has it"
    texts = []
    for (name, _key), pair in sides.items():
        if len(pair) == 2:
            values = zip(columns[name], pair[True], pair[False], strict=True)
            unequal = ", ".join(column for column, ours, theirs in values if ours != theirs)
            texts.append(f"{name}: {unequal}")
        else:
            has = "the copy lacks a row" if True in pair else "only the copy has a row"
            texts.append(f"{name}: {has}")
    return "; ".join(sorted(texts))
