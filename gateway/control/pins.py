"""Pins: what people keep on the local disk and from all policies."""

from __future__ import annotations

from dataclasses import dataclass

from gateway import clock
from gateway.db.compiled import Session
from gateway.db.models import ROOT_INO
from gateway.errors import NotPossible, NotThere
from gateway.namespace import pins
from gateway.promotion.store import paths_of
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import Text, printable
from gateway.types import Attr, Kind


@dataclass(frozen=True, slots=True)
class Pin(Model):
    """A pin of a file, or of a directory with all in it."""

    path: str
    """Its path now, or "?" if it has none any more."""
    ino: int
    note: str
    """Why, for other people."""
    pinned_by: str
    pinned: str
    """When: ISO 8601."""


def pin(session: Session, attr: Attr, path: str, note: str, by: str) -> pins.Pin:
    """Pin a file or directory, inside a write transaction. Returns its row. Raises NotPossible.

    Parameters: path, to be shown; note, why, for other people; by, the person.
    """
    if attr.ino == ROOT_INO:
        raise NotPossible("the whole export cannot be pinned: nothing could leave the disk")
    if attr.kind not in (Kind.REGULAR, Kind.DIRECTORY):
        raise NotPossible(f"{path}: only files and directories are pinned")
    row = pins.Pin(attr.ino, note, by, clock.now_ns())
    if not pins.add(session, row):
        raise NotPossible(f"{path}: it was removed meanwhile")
    return row


def unpin(session: Session, ino: int, path: str) -> None:
    """End a pin, inside a write transaction. Parameters: path, to be shown. Raises NotThere."""
    if not pins.drop(session, ino):
        raise NotThere(f"{path}: it is not pinned by itself: look with spillway pins")


def of(settings: Settings, session: Session, ino: int, text: Text = printable) -> Pin | None:
    """Return the pin of an inode, or None. Parameters: text, of names."""
    own = next((one for one in pins.every(session) if one.ino == ino), None)
    return None if own is None else model(settings, session, own, text)


def model(settings: Settings, session: Session, one: pins.Pin, text: Text = printable) -> Pin:
    """Return a pin as people see it. Parameters: text, of names."""
    paths = paths_of(session, one.ino)
    return Pin(
        path=f"{settings.nfs.export}/{text(paths[0])}" if paths else "?",
        ino=one.ino,
        note=one.note,
        pinned_by=one.pinned_by,
        pinned=clock.local_iso(one.pinned_ns),
    )
