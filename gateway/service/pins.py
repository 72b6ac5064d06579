"""Service for pins: what people keep on the local disk and from all policies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from gateway.common import clock
from gateway.common.errors import NotPossible, NotThere, Stale
from gateway.common.models import Model, Nanoseconds
from gateway.common.text import encoded, text_of
from gateway.common.types import Attr, InodeKind, Residency
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.db.schema import reading
from gateway.lifecycle.promotion.store import paths_of
from gateway.namespace import lookup
from gateway.namespace.lookup import Browser
from gateway.service.paths import resolve


@dataclass(frozen=True, slots=True)
class Pin(Model):
    """A pin of a file, or of a directory with all in it."""

    path: str
    """Its path now, or "?" if it has none any more."""
    ino: int
    note: str
    """Why, for other people."""
    pinned_by: str
    pinned_ns: Nanoseconds
    on_disk: bool
    """False: it is a file whose bytes are in the bucket, or only some are here."""


@dataclass(frozen=True, slots=True)
class Unpinned(Model):
    """A pin that was ended."""

    path: str
    ino: int
    unpinned: bool = True


class Pins(Protocol):
    """The pins of files and directories.

    Paths are those of the command line. Each method that takes one raises NotThere, NotPossible.
    """

    def every(self) -> Iterator[Pin]:
        """Yield the pins, the oldest first."""

    def add(self, path: str, note: str) -> Pin:
        """Pin a file or directory. It replaces an earlier pin. Args: note, why, for other
        people."""

    def remove(self, path: str) -> Unpinned:
        """End a pin."""


class LocalPins:
    """The pins of this machine's gateway (``Pins``).

    Args:
        author: of new pins, for the record.
    """

    def __init__(
        self, settings: Settings, database: Database, browser: Browser, author: str
    ) -> None:
        self._settings = settings
        self._database = database
        self._browser = browser
        self._author = author

    def every(self) -> Iterator[Pin]:
        with reading(self._database) as session:
            pins = [model(self._settings, session, row) for row in in_order(session)]
        return iter(pins)

    def add(self, path: str, note: str) -> Pin:
        place = resolve(self._browser, self._settings, path)
        attr = place.found().attr
        with self._database.writing() as session:
            row = pin(session, attr, place.path, note, self._author)
            return model(self._settings, session, row)

    def remove(self, path: str) -> Unpinned:
        place = resolve(self._browser, self._settings, path)
        ino = place.found().attr.ino
        with self._database.writing() as session:
            unpin(session, ino, place.path)
        return Unpinned(encoded(path), ino)


def in_order(session: Session) -> list[lookup.PinRow]:
    """Return the rows of all pins, the oldest first."""
    return sorted(lookup.every(session), key=lambda row: (row.pinned_ns, row.ino))


def pin(session: Session, attr: Attr, path: str, note: str, by: str) -> lookup.PinRow:
    """Pin a file or directory, inside a write transaction. Returns its row. Raises NotPossible.

    Args:
        path: to be shown.
        note: why, for other people.
        by: the person.
    """
    if attr.ino == ROOT_INO:
        raise NotPossible("the whole export cannot be pinned: nothing could leave the disk")
    if attr.kind not in (InodeKind.REGULAR, InodeKind.DIRECTORY):
        raise NotPossible(f"{path}: only files and directories are pinned")
    row = lookup.PinRow(attr.ino, note, by, clock.now_ns())
    if not lookup.add(session, row):
        raise NotPossible(f"{path}: it was removed meanwhile")
    return row


def unpin(session: Session, ino: int, path: str) -> None:
    """End a pin, inside a write transaction. Raises NotThere.

    Args:
        path: to be shown.
    """
    if not lookup.drop(session, ino):
        raise NotThere(f"{path}: it is not pinned by itself: look with spillway checkpoint pins")


def of(settings: Settings, session: Session, ino: int) -> Pin | None:
    """Return the pin of an inode, or None."""
    own = next((row for row in lookup.every(session) if row.ino == ino), None)
    return None if own is None else model(settings, session, own)


def model(settings: Settings, session: Session, one: lookup.PinRow) -> Pin:
    """Return a pin as people see it."""
    paths = paths_of(session, one.ino)
    return Pin(
        path=f"{settings.nfs.export}/{text_of(paths[0])}" if paths else "?",
        ino=one.ino,
        note=one.note,
        pinned_by=one.pinned_by,
        pinned_ns=one.pinned_ns,
        on_disk=_on_disk(session, one.ino),
    )


def _on_disk(session: Session, ino: int) -> bool:
    try:
        attr = lookup.get(session, ino)
    except Stale:
        return True
    return attr.kind != InodeKind.REGULAR or attr.residency == Residency.RESIDENT
