"""From inodes to object keys and back, inside one transaction.

An inode's key is the key of its first name, in order of cookies, that no hold pattern matches
anywhere on its path. So a file with only temporary names has no key, and two inodes never have
the same key.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import NamedTuple

from gateway.db import statements as sql
from gateway.db.models import ROOT_INO
from gateway.drain import statements as own
from gateway.objectstore import keys
from gateway.types import Kind


class Holds:
    """The hold patterns.

    Parameters: patterns, shell patterns for one name, upper and lower case told apart.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        alternatives = [fnmatch.translate(pattern) for pattern in patterns]
        self._match = re.compile("|".join(alternatives)).match if alternatives else None

    def holds(self, name: bytes) -> bool:
        """Whether a name says that what is below it is not finished."""
        if self._match is None:
            return False
        return self._match(name.decode("utf-8", "surrogateescape")) is not None


class Place(NamedTuple):
    """Where a directory is."""

    parts: tuple[bytes, ...]
    held: bool


class Paths:
    """Paths as one transaction sees them. Remembers directories: never outlives the transaction.

    Parameters: session, holds, prefix of the keys.
    """

    def __init__(self, session: sql.Session, holds: Holds, prefix: str) -> None:
        self._session = session
        self._holds = holds
        self._prefix = prefix
        self._places: dict[int, Place | None] = {ROOT_INO: Place((), False)}

    def place(self, ino: int) -> Place | None:
        """Where a directory is; None: it is gone."""
        chain: list[tuple[int, bytes]] = []
        at = ino
        while at not in self._places:
            row = self._session.one(sql.NAMES, ino=at)
            if row is None:
                self._places[at] = None
                break
            chain.append((at, row[1]))
            at = row[0]
        found = self._places[at]
        for directory, name in reversed(chain):
            if found is not None:
                found = Place((*found.parts, name), found.held or self._holds.holds(name))
            self._places[directory] = found
        return found

    def key_of(self, ino: int) -> str | None:
        """The key of a file; None: it has no name, or only names that are held."""
        for parent, name in self._session.all(sql.NAMES, ino=ino):
            place = self.place(parent)
            if place is not None and not place.held and not self._holds.holds(name):
                return keys.key_of(self._prefix, (*place.parts, name))
        return None

    def owner(self, key: str) -> int | None:
        """The regular file whose key this is; None: there is none."""
        try:
            parts = keys.parts_of(self._prefix, key)
        except ValueError:
            return None
        at = ROOT_INO
        for name in parts:
            row = self._session.one(sql.ENTRY, parent=at, name=name)
            if row is None:
                return None
            at = row[0]
        file = file_of(self._session, at)
        if file is None or file.kind != Kind.REGULAR or self.key_of(at) != key:
            return None
        return at


def file_of(session: sql.Session, ino: int) -> own.File | None:
    """An inode; None: it is gone, or has no name any more."""
    row = session.one(own.FILE, ino=ino)
    if row is None:
        return None
    file = own.File(*row)
    return file if file.nlink > 0 else None


def object_at(session: sql.Session, key: str) -> own.Stored | None:
    """The object that is recorded at a key."""
    row = session.one(own.OBJECT_AT, key=key)
    return None if row is None else own.Stored(*row)


def object_of(session: sql.Session, ino: int) -> own.Stored | None:
    """The object that is recorded for an inode."""
    row = session.one(own.OBJECT, ino=ino)
    return None if row is None else own.Stored(*row)


def intent_of(session: sql.Session, ino: int) -> own.Intent | None:
    """The upload that was begun for an inode and never published."""
    row = session.one(own.UPLOAD, ino=ino)
    return None if row is None else own.Intent(*row)
