"""Reads names and attributes beside the NFS server, as a client would see them now.

While a file is open for writing, its data file has the true size and times. One statement reads the
inode and whether it is open: with two statements, one result could be older.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select

from gateway.data.layout import DataFiles
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.db.statements import ATTR, IS_LISTED, dirent, inode, presence
from gateway.errors import Stale
from gateway.namespace import lookup
from gateway.namespace.pins import Pins
from gateway.settings import Settings
from gateway.types import Attr, Residency

PAGE = 1024
"""The entries that are read at a time."""

_ENTRIES = select(dirent.c.cookie, dirent.c.name, inode.c.write_open, *ATTR).select_from(
    dirent.join(inode, dirent.c.ino == inode.c.ino)
)
ENTRIES = Statement(
    _ENTRIES.where(dirent.c.parent == b("parent"), dirent.c.cookie > b("cookie"), IS_LISTED)
    .order_by(dirent.c.cookie)
    .limit(b("most"))
)
ENTRIES_BY_NAME = Statement(
    _ENTRIES.where(dirent.c.parent == b("parent"), dirent.c.name > b("name"), IS_LISTED)
    .order_by(dirent.c.name)
    .limit(b("most"))
)
ENTRY = Statement(_ENTRIES.where(dirent.c.parent == b("parent"), dirent.c.name == b("name")))

PRESENT = Statement(
    select(presence.c.ino).where(presence.c.ino == b("ino"), presence.c.epoch == b("epoch"))
)


class Entry(NamedTuple):
    """A name with the attributes of its inode."""

    name: bytes
    attr: Attr
    is_open: bool
    """Whether a client has it open for writing, or had it open a moment ago."""


class Browser:
    """Reads the namespace of a gateway, whether or not its server runs. A context manager.

    Parameters: settings; the schema must be current. Its methods raise TryAgain.
    """

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.database_url)
        self._files = DataFiles(settings.files_dir)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def root(self) -> Entry:
        """Return the export's root, which has no name."""
        with self._database.reader() as connection:
            return Entry(b"", lookup.get(self._session(connection), ROOT_INO), False)

    def entry(self, parent: int, name: bytes) -> Entry | None:
        """Return the entry with a name in a directory, or None."""
        with self._database.reader() as connection:
            row = self._session(connection).one(ENTRY, parent=parent, name=name)
        return None if row is None else self._now(row)

    def entries(self, parent: int) -> Iterator[Entry]:
        """Yield all entries of a directory, in the order in which they were made. They are read
        page by page."""
        cookie = 0
        while rows := self._page(parent, cookie):
            yield from map(self._now, rows)
            cookie = rows[-1][0]

    def page(self, parent: int, after: bytes, most: int) -> list[Entry]:
        """Return the next entries of a directory by name.

        Parameters: after, the name of the last one before, or b""; most, entries.
        """
        with self._database.reader() as connection:
            session = self._session(connection)
            rows = session.all(ENTRIES_BY_NAME, parent=parent, name=after, most=most)
        return list(map(self._now, rows))

    def target(self, ino: int) -> bytes | None:
        """Return the target of a symbolic link, or None if the link was removed meanwhile."""
        with self._database.reader() as connection:
            try:
                return lookup.readlink(self._session(connection), ino)
            except Stale:
                return None

    def place_of_bytes(self, attr: Attr) -> str:
        """Return where the bytes of a file are: resident, absent or partial."""
        if attr.residency == Residency.RESIDENT:
            return "resident"
        with self._database.reader() as connection:
            row = self._session(connection).one(PRESENT, ino=attr.ino, epoch=attr.epoch)
        return "absent" if row is None else "partial"

    def is_pinned(self, ino: int) -> bool:
        """Return whether a person pinned an inode, or a directory above it."""
        with self._database.reader() as connection:
            return Pins(self._session(connection)).cover(ino)

    def _page(self, parent: int, cookie: int) -> list[Sequence[Any]]:
        with self._database.reader() as connection:
            return self._session(connection).all(ENTRIES, parent=parent, cookie=cookie, most=PAGE)

    def _session(self, connection: object) -> Session:
        return Session(connection, self._database.dialect)

    def _now(self, row: Sequence[Any]) -> Entry:
        _cookie, name, is_open, *rest = row
        attr = Attr(*rest)
        return Entry(name, self._written(attr) if is_open else attr, bool(is_open))

    def _written(self, attr: Attr) -> Attr:
        """Return the attributes of an inode that is open for writing, with those that its data file
        has."""
        try:
            found = self._files.path(attr.ino, attr.epoch).stat()
        except FileNotFoundError:
            return attr  # nothing was written yet
        return attr._replace(
            size=found.st_size,
            used=found.st_blocks * 512,
            mtime_ns=found.st_mtime_ns,
            ctime_ns=max(attr.ctime_ns, found.st_ctime_ns),
        )
