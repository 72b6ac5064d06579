"""Looks at a checkpoint that goes into the trash: before it is reserved, and after it."""

from __future__ import annotations

from gateway.db.compiled import Session
from gateway.errors import TrashRefused
from gateway.namespace import imprint
from gateway.namespace.imprint import Imprint
from gateway.namespace.lookup import way_up
from gateway.text import printable

CHANGED = "it changed a moment ago"


def look(session: Session, ino: int, own: tuple[int, bytes]) -> Imprint:
    """Return the imprint of a checkpoint into which no client would write in the trash.

    Parameters: own, its directory and name. Raises TrashRefused.
    """
    seen = imprint.of(session, ino)
    if seen.open_files:
        raise TrashRefused(f"{seen.open_files} of its files are open for writing")
    if seen.linked_files and (found := imprint.shared(session, ino, own)):
        inside, outside = (_path(session, *name) for name in found)
        raise TrashRefused(
            f"its file {inside} is also {outside}, by which clients could change it in the trash: "
            "remove one of the two names"
        )
    return seen


def require_same(session: Session, ino: int, own: tuple[int, bytes], before: Imprint) -> None:
    """Require that a checkpoint is reserved, and is as it was before. Raises TrashRefused.

    Parameters: own, its directory and name; before, its imprint.
    """
    now = look(session, ino, own)
    if now.number != before.number or not now.is_reserved:
        raise TrashRefused(CHANGED)


def _path(session: Session, parent: int, name: bytes) -> str:
    above = [one for _at, _parent, one in way_up(session, parent)]
    return printable(b"/".join((*reversed(above), name)))
