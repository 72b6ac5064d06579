"""Reads of the namespace: names, attributes and listings; also pins, which are read with them.

A pin keeps an inode on the local disk and from all policies. It follows a rename, and ends with the
last name. A pin of a directory is of everything below it, whatever is written there later.

``Browser`` reads names and attributes beside the NFS server, as a client would see them now. While
a file is open for writing, its data file has the true size and times. One statement reads the inode
and whether it is open: with two statements, one result could be older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import bindparam, delete, exists, insert, select

from gateway.common.errors import (
    InvalidArgument,
    NameTooLong,
    NotADirectory,
    NotFound,
    ReadOnly,
    Stale,
)
from gateway.common.types import NAME_MAX_BYTES, Attr, Dirent, InodeKind, Residency
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.models import RESERVED_NAME, ROOT_INO, TRASH_INO
from gateway.db.statements import ATTR, IS_LISTED, dirent, inode, pin, present_blocks
from gateway.namespace.data_files import DataFiles

T = TypeVar("T")

_DEPTH_MAX = 4096


def check_name(name: bytes) -> None:
    """Raise NameTooLong or InvalidArgument for a name that no directory entry can have."""
    if len(name) > NAME_MAX_BYTES:
        raise NameTooLong
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        raise InvalidArgument


def check_new_name(parent: int, name: bytes) -> None:
    """Raise NameTooLong, InvalidArgument, or ReadOnly for a name that nothing may get."""
    check_name(name)
    if parent == ROOT_INO and name == RESERVED_NAME:
        raise ReadOnly


def get(session: Session, ino: int) -> Attr:
    """Return the attributes of an inode. Raises Stale when the inode is gone."""
    row = session.one(sql.GET, ino=ino)
    if row is None:
        raise Stale
    return Attr(*row)


def get_directory(session: Session, ino: int) -> Attr:
    """Return the attributes of a directory. Raises Stale, NotADirectory."""
    attr = get(session, ino)
    if attr.kind != InodeKind.DIRECTORY:
        raise NotADirectory
    return attr


def find(session: Session, parent: int, name: bytes) -> Attr | None:
    """Return the attributes of the inode that has a name, or None."""
    row = session.one(sql.LOOKUP, parent=parent, name=name)
    return None if row is None else Attr(*row)


def lookup(session: Session, parent: int, name: bytes, *, is_gateway: bool = False) -> Attr:
    """Return the inode that has a name. Clients find neither the trash nor what is directly in it.

    Raises NotFound, NotADirectory, Stale, NameTooLong.

    Args:
        is_gateway: as of ``Cred``.
    """
    attr = find(session, parent, name)
    if attr is not None and TRASH_INO in (parent, attr.ino) and not is_gateway:
        raise NotFound
    if attr is None:
        if len(name) > NAME_MAX_BYTES:
            raise NameTooLong
        get_directory(session, parent)
        raise NotFound
    return attr


def lookup_parent(session: Session, ino: int) -> Attr:
    """Return the parent of a directory. Raises NotADirectory, Stale."""
    row = session.one(sql.PARENT, ino=ino)
    if row is None:
        get(session, ino)
        raise NotADirectory
    return get(session, row[0])


def readdir(session: Session, parent: int, after_cookie: int, most: int) -> list[Dirent]:
    """Return up to ``most`` entries after a cookie (0: from the start), in order of cookies.

    The root's listing lacks the gateway's own directory, as it lacks ``.snapshot`` elsewhere.
    Raises NotFound for the trash, Stale, NotADirectory.
    """
    if parent == TRASH_INO:
        raise NotFound
    rows = session.all(sql.READDIR, parent=parent, cookie=after_cookie, most=most)
    if not rows:
        # An empty listing would tell the client that a directory that is gone ends here.
        get_directory(session, parent)
    return [Dirent(row[0], row[1], Attr(*row[2:])) for row in rows]


def way_up(session: Session, ino: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield inode, directory and first name, for an inode and then for each directory above it.

    The way ends at the root, or earlier at a directory without a name.
    """
    while ino != ROOT_INO and (row := session.one(sql.NAMES, ino=ino)) is not None:
        yield ino, row[0], row[1]
        ino = row[0]


def way_down(session: Session, names: Iterable[bytes]) -> Iterator[Attr]:
    """Yield the attributes of what a path leads through, and of what it leads to.

    The way ends early at the first name that is not there.

    Args:
        names: of the path, below the root.
    """
    at = ROOT_INO
    for name in names:
        attr = find(session, at, name)
        if attr is None:
            return
        yield attr
        at = attr.ino


def is_below(session: Session, ino: int, top: int) -> bool:
    """Return whether an inode is another one or below it, by first names."""
    return ino == top or any(parent == top for _at, parent, _name in way_up(session, ino))


class DirectoryMemo(Generic[T]):
    """What each inode gets from the directory above it by its first name, remembered.

    Args:
        roots: the values of the directories at which each way ends.
        most: values that are remembered. None is no limit.
    """

    def __init__(self, roots: Mapping[int, T], most: int | None = None) -> None:
        self._roots = roots
        self._most = most
        self._known: dict[int, T | None] = dict(roots)

    def of(
        self,
        ino: int,
        way: Iterable[tuple[int, int, bytes]],
        derive: Callable[[T, int, bytes], T | None],
    ) -> T | None:
        """Return the value of an inode.

        Args:
            way: ``way_up`` of the inode. It is read as far as it is not known.
            derive: the value of an inode, from that of its directory, its number and its name.

        Returns:
            None if the inode or a directory above it has no value, or no name.
        """
        if ino in self._known:
            return self._known[ino]
        if self._most is not None and len(self._known) >= self._most:
            self._known = dict(self._roots)
        derived: T | None = None
        below: list[tuple[int, bytes]] = []
        for at, parent, name in way:
            below.append((at, name))
            if parent in self._known:
                derived = self._known[parent]
                break
        for at, name in reversed(below):
            derived = None if derived is None else derive(derived, at, name)
            self._known[at] = derived
        return derived


def is_trashed(session: Session, ino: int) -> bool:
    """Return whether an inode is in the trash, by first names."""
    return any(parent == TRASH_INO for _at, parent, _name in way_up(session, ino))


def top_of(session: Session, ino: int) -> tuple[int, bytes]:
    """Return the entry of the root that an inode is below, by first names.

    An inode that is directly in the root gives the root and b"".
    """
    for at, parent, name in way_up(session, ino):
        if parent == ROOT_INO and at != ino:
            return at, name
    return ROOT_INO, b""


def readlink(session: Session, ino: int) -> bytes:
    """Return the target of a symlink. Raises Stale, InvalidArgument."""
    row = session.one(sql.TARGET, ino=ino)
    if row is None:
        raise Stale
    if row[1] != InodeKind.SYMLINK:
        raise InvalidArgument
    target: bytes = row[0]
    return target


def path_of(session: Session, ino: int) -> bytes:
    """Return the path of an inode below the export, by the first name of it and of each directory
    above it."""
    # A database that is damaged may have a circle of directories.
    names = [name for _at, _parent, name in islice(way_up(session, ino), _DEPTH_MAX)]
    return b"/".join(reversed(names))


_COLUMNS = ("ino", "note", "pinned_by", "pinned_ns")
ANY = Statement(select(pin.c.ino).limit(1))
PIN = Statement(select(pin.c.ino).where(pin.c.ino == b("ino")))
PINS = Statement(select(*(pin.c[name] for name in _COLUMNS)).order_by(pin.c.pinned_ns))
INSERT = Statement(
    insert(pin).from_select(
        _COLUMNS,
        select(*(bindparam(name, type_=pin.c[name].type) for name in _COLUMNS)).where(
            exists().where(inode.c.ino == b("the_ino"), inode.c.nlink > 0)
        ),
    )
)
"""Adds a pin, unless the inode was removed meanwhile."""
DELETE = Statement(delete(pin).where(pin.c.ino == b("the_ino")))


class PinRow(NamedTuple):
    """A row of ``pin``."""

    ino: int
    note: str
    pinned_by: str
    """Name of the user."""
    pinned_ns: int


class PinLookup:
    """Lookup of pins. It remembers directories, so it serves one look at the tables."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_any = session.one(ANY) is not None
        self._directories = {ROOT_INO: False}

    def cover(self, ino: int) -> bool:
        """Return whether an inode, or a directory above one of its names, is pinned."""
        if not self._is_any:
            return False
        if self._session.one(PIN, ino=ino) is not None:
            return True
        names = self._session.all(sql.NAMES, ino=ino)
        return any(self._covers_in(parent) for parent, _name in names)

    def _covers_in(self, directory: int) -> bool:
        passed: list[int] = []
        is_covered = False
        at = directory
        while at not in self._directories and not is_covered:
            passed.append(at)
            is_covered = self._session.one(PIN, ino=at) is not None
            step = next(way_up(self._session, at), None)
            if step is None:
                break  # it was removed meanwhile
            at = step[1]
        is_covered = is_covered or self._directories.get(at, False)
        self._directories.update(dict.fromkeys(passed, is_covered))
        return is_covered


def add(session: Session, new: PinRow) -> bool:
    """Pin an inode, or replace its pin, in a write transaction. Returns False if it is gone."""
    session.run(DELETE, the_ino=new.ino)
    return session.run(INSERT, the_ino=new.ino, **new._asdict()) > 0


def drop(session: Session, ino: int) -> bool:
    """End a pin, in a write transaction. Returns False if there is none."""
    return session.run(DELETE, the_ino=ino) > 0


def every(session: Session) -> list[PinRow]:
    """Return all pins, the oldest first."""
    return [PinRow(*row) for row in session.all(PINS)]


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
    select(present_blocks.c.ino).where(
        present_blocks.c.ino == b("ino"), present_blocks.c.epoch == b("epoch")
    )
)


class NamedInode(NamedTuple):
    """A name with the attributes of its inode."""

    name: bytes
    attr: Attr
    is_open: bool
    """Whether a client has it open for writing, or had it open a moment ago."""


class Browser:
    """Reads the namespace of a gateway, whether or not its server runs. A context manager.

    Its methods raise TryAgain.

    Args:
        settings: those of the gateway; the schema must be current.
    """

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.database_url)
        self._files = DataFiles(settings.files_dir)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def root(self) -> NamedInode:
        """Return the export's root, which has no name."""
        with self._database.reader() as connection:
            return NamedInode(b"", get(self._session(connection), ROOT_INO), False)

    def entry(self, parent: int, name: bytes) -> NamedInode | None:
        """Return the entry with a name in a directory, or None."""
        with self._database.reader() as connection:
            row = self._session(connection).one(ENTRY, parent=parent, name=name)
        return None if row is None else self._now(row)

    def entries(self, parent: int) -> Iterator[NamedInode]:
        """Yield all entries of a directory, in the order in which they were made. They are read
        page by page."""
        cookie = 0
        while rows := self._page(parent, cookie):
            yield from map(self._now, rows)
            cookie = rows[-1][0]

    def page(self, parent: int, after: bytes, most: int) -> list[NamedInode]:
        """Return the next entries of a directory by name.

        Args:
            after: the name of the last one before, or b"".
            most: entries.
        """
        with self._database.reader() as connection:
            session = self._session(connection)
            rows = session.all(ENTRIES_BY_NAME, parent=parent, name=after, most=most)
        return list(map(self._now, rows))

    def target(self, ino: int) -> bytes | None:
        """Return the target of a symbolic link, or None if the link was removed meanwhile."""
        with self._database.reader() as connection:
            try:
                return readlink(self._session(connection), ino)
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
            return PinLookup(self._session(connection)).cover(ino)

    def _page(self, parent: int, cookie: int) -> list[Sequence[Any]]:
        with self._database.reader() as connection:
            return self._session(connection).all(ENTRIES, parent=parent, cookie=cookie, most=PAGE)

    def _session(self, connection: object) -> Session:
        return Session(connection, self._database.dialect)

    def _now(self, row: Sequence[Any]) -> NamedInode:
        _cookie, name, is_open, *rest = row
        attr = Attr(*rest)
        return NamedInode(name, self._written(attr) if is_open else attr, bool(is_open))

    def _written(self, attr: Attr) -> Attr:
        """Return the attributes of an inode that is open for writing, with those that its data file
        has."""
        try:
            stat = self._files.path(attr.ino, attr.epoch).stat()
        except FileNotFoundError:
            return attr  # nothing was written yet
        return attr._replace(
            size=stat.st_size,
            used=stat.st_blocks * 512,
            mtime_ns=stat.st_mtime_ns,
            ctime_ns=max(attr.ctime_ns, stat.st_ctime_ns),
        )
