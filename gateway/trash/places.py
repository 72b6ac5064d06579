"""Finds the directories to which checkpoints are taken back."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.db.compiled import Session
from gateway.db.models import RESERVED_NAME, ROOT_INO
from gateway.errors import TrashRefused
from gateway.namespace import lookup
from gateway.settings import Settings
from gateway.text import printable
from gateway.types import Kind


def free_name(settings: Settings, session: Session, parts: Sequence[bytes]) -> int:
    """Return the directory in which a new name is free. Raises TrashRefused."""
    at = directory_of(settings, session, parts)
    if lookup.find(session, at, parts[-1]) is not None:
        shown = printable(b"/".join(parts))
        raise TrashRefused(f"{shown} is there already: give another path: --to PATH")
    return at


def directory_of(settings: Settings, session: Session, parts: Sequence[bytes]) -> int:
    """Return the directory that has, or gets, the last name of a path. Raises TrashRefused."""
    if not any(parts) or parts[0] == RESERVED_NAME:
        raise TrashRefused("its path is not known, or reserved: give another one: --to PATH")
    found = lookup.way_down(session, parts[:-1])
    way = [attr.ino for attr in found if attr.kind == Kind.DIRECTORY]
    if len(way) < len(parts) - 1:
        above = f"{settings.nfs.export}/{printable(b'/'.join(parts[: len(way) + 1]))}"
        raise TrashRefused(f"there is no directory {above}: make it: spillway mkdir -p")
    return way[-1] if way else ROOT_INO
