"""Reads the namespace: names, attributes and listings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.models import RESERVED_NAME, ROOT_INO, TRASH_INO
from gateway.errors import (
    InvalidArgument,
    NameTooLong,
    NotADirectory,
    NotFound,
    ReadOnly,
    Stale,
)
from gateway.types import NAME_MAX_BYTES, Attr, Dirent, Kind

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
    if attr.kind != Kind.DIRECTORY:
        raise NotADirectory
    return attr


def find(session: Session, parent: int, name: bytes) -> Attr | None:
    """Return the attributes of the inode that has a name, or None."""
    row = session.one(sql.LOOKUP, parent=parent, name=name)
    return None if row is None else Attr(*row)


def lookup(session: Session, parent: int, name: bytes, *, is_gateway: bool = False) -> Attr:
    """Return the inode that has a name. Clients find neither the trash nor what is directly in it.

    Parameters: is_gateway, as of ``Cred``. Raises NotFound, NotADirectory, Stale, NameTooLong.
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
        found: T | None = None
        below: list[tuple[int, bytes]] = []
        for at, parent, name in way:
            below.append((at, name))
            if parent in self._known:
                found = self._known[parent]
                break
        for at, name in reversed(below):
            found = None if found is None else derive(found, at, name)
            self._known[at] = found
        return found


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
    if row[1] != Kind.SYMLINK:
        raise InvalidArgument
    target: bytes = row[0]
    return target


def path_of(session: Session, ino: int) -> bytes:
    """Return the path of an inode below the export, by the first name of it and of each directory
    above it."""
    # A database that is damaged may have a circle of directories.
    names = [name for _at, _parent, name in islice(way_up(session, ino), _DEPTH_MAX)]
    return b"/".join(reversed(names))
