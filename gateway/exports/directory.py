"""Finds the directories of exports: by path when an export is made, and by inode afterwards."""

from __future__ import annotations

from gateway.db.compiled import Session
from gateway.db.models import RESERVED_NAME, ROOT_INO
from gateway.errors import ExportRefused
from gateway.namespace.lookup import way_down, way_up
from gateway.text import printable
from gateway.types import Kind


def directory_of(session: Session, path: bytes) -> int:
    """Return the inode of a directory that can be exported. Raises ExportRefused.

    Parameters: path, below the namespace's root. b"" is the root.
    """
    names = [part for part in path.split(b"/") if part not in (b"", b".")]
    way = list(way_down(session, names))
    for attr in way:
        if attr.kind != Kind.DIRECTORY:
            raise ExportRefused(f"{printable(path)} is no directory, or leads through none")
        if attr.reserved:
            raise ExportRefused(
                f"{printable(path)} is the gateway's own, and is not exported alone"
            )
    if len(way) < len(names):
        raise ExportRefused(f"there is no directory {printable(path)}: make it first")
    return way[-1].ino if way else ROOT_INO


def path_of(session: Session, directory: int) -> bytes | None:
    """Return the path of a directory below the namespace's root, or None if it is not there, or in
    the trash only."""
    if directory == ROOT_INO:
        return b""
    way = list(way_up(session, directory))
    # What is in the trash is below the gateway's own directory, in which nothing else is exported.
    if not way or way[-1][1] != ROOT_INO or way[-1][2] == RESERVED_NAME:
        return None
    return b"/".join(name for _ino, _parent, name in reversed(way))
