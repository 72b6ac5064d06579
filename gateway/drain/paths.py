"""Object keys of inodes, and inodes of object keys, inside one transaction.

An inode's key is the key of its first name, in order of cookies, that is not held. So a file with
only temporary names has no key, and two inodes never have the same key.

A name is held if a hold pattern matches anywhere on its path, or a person or retention holds the
file or a directory above it. A pattern does not hold the directory of a run: one that has
checkpoints in directories of their own, and no step in its own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import select

from gateway.common.patterns import IncompleteNames
from gateway.common.types import Extent, InodeKind
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, rows_of
from gateway.db.models import RESERVED_INO, ROOT_INO, TRASH_INO
from gateway.db.statements import checkpoint
from gateway.drain import statements as own
from gateway.drain.rows import File, Intent, ObjectRow
from gateway.namespace import trackers
from gateway.namespace.lookup import DirectoryMemo, way_up
from gateway.objectstore import key_mapper
from gateway.objectstore.key_mapper import KeyMapper

Parts = tuple[bytes, ...]
_STEPS = (
    select(checkpoint.c.ino)
    .where(checkpoint.c.extent == int(Extent.TREE), checkpoint.c.step.is_not(None))
    .limit(1)
)
STEP_IN = Statement(_STEPS.where(checkpoint.c.parent == b("parent")))
STEP_BELOW = Statement(
    _STEPS.where(checkpoint.c.run >= b("first_name"), checkpoint.c.run < b("end_name"))
)
"""Selects a checkpoint of a run below a directory."""


class InodePath(NamedTuple):
    """The path of an inode, and whether it is held or bumped."""

    parts: tuple[bytes, ...]
    held: bool
    """Whether a pattern, a person or retention holds it."""
    bumped: bool = False
    request_id: str | None = None
    """The request of the admin API by which a person bumped it, or a directory above."""
    is_ordered: bool = False
    """Whether a person or retention holds it."""

    @property
    def is_trashed(self) -> bool:
        """Whether it is in the trash."""
        return self.parts[: len(key_mapper.TRASH)] == key_mapper.TRASH


class Paths:
    """Paths as one transaction sees them. It remembers directories, so it must not outlive the
    transaction.

    Args:
        session, holds, prefix: those of the keys.
    """

    def __init__(self, session: Session, holds: IncompleteNames, prefix: str) -> None:
        self._session = session
        self._holds = holds
        self._keys = KeyMapper(session, prefix)
        self._chains: dict[int, set[int]] = {}
        self._shortened: dict[int, dict[str, int]] = {}
        self._names: dict[int, list[tuple[int, bytes]]] = {}
        self._entries: dict[tuple[int, bytes], int | None] = {}
        self.temporary: dict[int, bool] = {}
        """The inodes on paths that a pattern matches, and whether it holds them."""

    def read_names(self, inos: Iterable[int]) -> None:
        """Read the names of many files with one query. Their keys then need no queries of their
        own."""
        unread: dict[int, list[tuple[int, bytes]]] = {
            ino: [] for ino in inos if ino not in self._names
        }
        if not unread:
            return
        self._names |= unread
        given = rows_of([(ino,) for ino in unread])
        for ino, parent, name in self._session.all(own.NAMES_OF, inos=given):
            self._names[ino].append((parent, name))

    def forget_names(self) -> None:
        """Forget the names that ``read_names`` read: those of a million files need much memory."""
        self._names.clear()

    def place(self, ino: int) -> InodePath | None:
        """Return the place of an inode by its first name, or None if it or a directory above has no
        name."""
        return self._places.of(ino, self._way_up(ino), self._below)

    @cached_property
    def _places(self) -> DirectoryMemo[InodePath]:
        held = self._orders.get(ROOT_INO)
        request = self._requests.get(ROOT_INO)
        roots = {
            ROOT_INO: InodePath((), held is True, held is False, request, held is True),
            RESERVED_INO: InodePath((key_mapper.RESERVED,), held=False),
            # What is in the trash is not sent, and its objects stay where they are.
            TRASH_INO: InodePath(key_mapper.TRASH, held=True),
        }
        return DirectoryMemo(roots)

    def _below(self, above: InodePath, ino: int, name: bytes) -> InodePath:
        order = self._orders.get(ino)
        is_ordered = above.is_ordered or order is True
        held = above.held or is_ordered or self._is_temporary(ino, above.parts, name)
        bumped = above.bumped or order is False
        request = self._requests.get(ino, above.request_id)
        return InodePath((*above.parts, name), held, bumped, request, is_ordered)

    def _is_temporary(self, ino: int, above: Parts, name: bytes) -> bool:
        """Return whether a hold pattern holds an inode: half a save, and not a run.

        Args:
            above: the path of its directory.
        """
        if not self._holds.holds(above, name):
            return False
        if ino not in self.temporary:
            path = b"/".join((*above, name))
            self.temporary[ino] = trackers.is_half_save(name) or not (
                self._session.one(STEP_IN, parent=ino)
                or self._session.one(STEP_BELOW, first_name=path + b"/", end_name=path + b"0")
            )
        return self.temporary[ino]

    def _way_up(self, ino: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the same as ``way_up``, without a query for an inode whose names were read."""
        for parent, name in self._names.get(ino, ())[:1]:
            yield ino, parent, name
            ino = parent
        yield from way_up(self._session, ino)

    def is_below(self, ino: int, top: int) -> bool:
        """Return whether an inode is another one, or has a name somewhere below it."""
        if ino == top:
            return True
        return any(top in self._chain(parent) for parent, _name in self._names_of(ino))

    def _chain(self, ino: int) -> set[int]:
        """Return a directory and all above it, or an empty set if the directory is gone."""
        if ino not in self._chains:
            chain = {ino, *(parent for _at, parent, _name in way_up(self._session, ino))}
            self._chains[ino] = chain if ROOT_INO in chain else set()
        return self._chains[ino]

    def is_bumped(self, ino: int) -> bool:
        """Return whether a person put this file itself before the others."""
        return self._orders.get(ino) is False

    def request_of(self, ino: int) -> str | None:
        """Return the request of the admin API by which a person put a file before the others."""
        if ino in self._requests or not self._requests:
            return self._requests.get(ino)
        places = (self.place(parent) for parent, _name in self._names_of(ino))
        return next((place.request_id for place in places if place is not None), None)

    def is_held(self, ino: int, place: InodePath, name: bytes) -> bool:
        """Return whether one of the names of a file is held. Another name may still give it a
        key."""
        if place.held or self._orders.get(ino) is True:
            return True
        return self._holds.holds(place.parts, name)

    def key_of(self, ino: int) -> str | None:
        """Return the key of a file, or None if it has no name, or only names that are held."""
        home = self.home_of(ino)
        return None if home is None else self._keys.key_of(home[1])

    def key_in_trash(self, ino: int) -> str | None:
        """Return the key at which the object of a file in the trash gives way to another file, or
        None if the first name of the file is not there."""
        place = self.place(ino)
        if place is None or not place.is_trashed:
            return None
        return self._keys.key_of(place.parts)

    def rest_of(self, ino: int) -> str:
        """Return the part of a file's path that its key does not contain. Mostly it is empty."""
        home = self.home_of(ino)
        return "" if home is None else self._keys.rest_of(home[1])

    def home_of(self, ino: int) -> tuple[int, Parts] | None:
        """Return the directory and the path of the name that gives a file its key, or None."""
        if self._orders.get(ino):
            return None
        for parent, name in self._names_of(ino):
            place = self.place(parent)
            if place is not None and not place.held and not self._holds.holds(place.parts, name):
                return parent, (*place.parts, name)
        return None

    def is_held_by_order(self, ino: int) -> bool:
        """Return whether a person or retention holds a file, or a directory above it."""
        places = (self.place(parent) for parent, _name in self._names_of(ino))
        return self._orders.get(ino) is True or any(place and place.is_ordered for place in places)

    def _names_of(self, ino: int) -> list[tuple[int, bytes]]:
        if (names := self._names.get(ino)) is not None:
            return names
        return [(parent, name) for parent, name in self._session.all(sql.NAMES, ino=ino)]

    def owner(self, key: str) -> int | None:
        """Return the regular file that has a key, or None."""
        parts = self._keys.parts_of(key)
        if parts is None:
            return None
        at = ROOT_INO
        if parts[0] == key_mapper.RESERVED:
            at, parts = RESERVED_INO, parts[1:]
        for name in parts:
            if (below := self._entry(at, name)) is None:
                return None
            at = below
        if key_mapper.is_shortened(key):
            return self._shortened_below(at).get(key)
        file = file_of(self._session, at)
        if file is None or file.kind != InodeKind.REGULAR or self.key_of(at) != key:
            return None
        return at

    def _entry(self, parent: int, name: bytes) -> int | None:
        if (parent, name) not in self._entries:
            row = self._session.one(sql.ENTRY, parent=parent, name=name)
            self._entries[parent, name] = None if row is None else row[0]
        return self._entries[parent, name]

    def _shortened_below(self, top: int) -> dict[str, int]:
        """Return the files whose keys are shortened, by key. They are few: the directory's path is
        long already."""
        if top not in self._shortened:
            shortened = {}
            for (ino,) in self._session.all(own.FILES_BELOW, top=top):
                key = self.key_of(ino)
                if key is not None and key_mapper.is_shortened(key):
                    shortened[key] = ino
            self._shortened[top] = shortened
        return self._shortened[top]

    @cached_property
    def _orders(self) -> dict[int, bool]:
        """The orders of people and of retention, by inode: True to hold it, False to put it
        first."""
        return {ino: bool(hold) for ino, hold, _request in self._order_rows}

    @cached_property
    def _requests(self) -> dict[int, str]:
        """The requests of the admin API by which people bumped something, by inode."""
        return {ino: request for ino, hold, request in self._order_rows if request and not hold}

    @cached_property
    def _order_rows(self) -> Sequence[Sequence[Any]]:
        return self._session.all(own.HOLDS)


def file_of(session: Session, ino: int) -> File | None:
    """Return an inode, or None if it is gone or has no name any more."""
    row = session.one(own.FILE, ino=ino)
    if row is None:
        return None
    file = File(*row)
    return file if file.nlink > 0 else None


def object_at(session: Session, key: str) -> ObjectRow | None:
    """Return the object that is recorded at a key."""
    return objects_at(session, [key]).get(key)


def objects_at(session: Session, keys: Iterable[str]) -> dict[str, ObjectRow]:
    """Return the objects that are recorded at keys, by key."""
    rows = session.all(own.OBJECTS_AT, keys=rows_of([(key,) for key in keys]))
    return {stored.key: stored for stored in (ObjectRow(*row) for row in rows)}


def objects_above(session: Session, prefix: str, wanted: Iterable[str]) -> dict[str, ObjectRow]:
    """Return, by key, an object that is recorded at one of the keys that a key goes through."""
    through = {key: key_mapper.above(prefix, key) for key in wanted}
    objects = objects_at(session, {key_above for above in through.values() for key_above in above})
    return {
        key: objects[key_above]
        for key, above in through.items()
        for key_above in above
        if key_above in objects
    }


def object_of(session: Session, ino: int) -> ObjectRow | None:
    """Return the object that is recorded for an inode."""
    row = session.one(own.OBJECT, ino=ino)
    return None if row is None else ObjectRow(*row)


def intent_of(session: Session, ino: int) -> Intent | None:
    """Return the upload that was begun for an inode and never published."""
    row = session.one(own.UPLOAD, ino=ino)
    return None if row is None else Intent(*row)


def is_unfinished(session: Session, paths: Paths, ino: int) -> bool:
    """Return whether a file is there, and the bucket does not have it as it is here at its key."""
    file = file_of(session, ino)
    if file is None or file.is_dirty:
        return file is not None
    stored = object_of(session, ino)
    return stored is not None and paths.key_of(ino) not in (None, stored.key)
