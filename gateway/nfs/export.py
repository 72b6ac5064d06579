"""Exports that hosts may mount: their fields, what is refused, and the directory of each.

What is refused is decided without the database. A directory is found by path when an export is
made, and by inode afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.common.errors import ExportRefused
from gateway.common.network import Squash, parse
from gateway.common.text import printable
from gateway.common.types import InodeKind
from gateway.db.compiled import Session
from gateway.db.models import RESERVED_NAME, ROOT_INO
from gateway.namespace.lookup import way_down, way_up

EXPORTS_MAX = 100
"""The NFS server tells 256 in one answer of the control socket."""
CLIENTS_MAX = 256
NUMBER_MAX = 65_535
"""Export_Id has 16 bits."""

_NAME = re.compile(r"(/[A-Za-z0-9_+@=.-]{1,64}){1,8}")


class ExportedDirectory(NamedTuple):
    """A directory that hosts may mount, beside the whole namespace at ``nfs.export``."""

    name: str
    """The path that clients mount, like ``/datasets``."""
    version: int
    """Grows by one with each change."""
    number: int
    """Ganesha's Export_Id, a part of every handle that a client has: it is never used for another
    name or directory."""
    directory: int
    """The inode of its root."""
    clients: tuple[str, ...]
    """Hosts and their rights, as ``nfs.clients`` has them. The first entry that fits counts."""
    squash: str
    """The squash of clients without a third word, as ``nfs.squash``."""
    created_ns: int
    """When this version was stored, ns since 1970."""
    author: str

    def is_like(self, other: ExportedDirectory) -> bool:
        """Return whether two versions are the same to a server and its clients."""
        return self[2:6] == other[2:6]


def overlap(name: str, other: str) -> bool:
    """Return whether one of two names is the other one, or below it."""
    return f"{name}/".startswith(f"{other}/") or f"{other}/".startswith(f"{name}/")


def require_name(name: str, others: Iterable[str]) -> None:
    """Raise ExportRefused unless an export can have a name.

    Args:
        others: the names of the other exports, ``nfs.export`` among them.
    """
    parts = name.split("/")[1:]
    if not _NAME.fullmatch(name) or {".", ".."} & set(parts):
        raise ExportRefused(
            f"an export cannot be named {name!r}: it must look like /datasets or /team/data, of "
            "letters, digits and _ + @ = . -"
        )
    if parts[0] == RESERVED_NAME.decode():
        raise ExportRefused(f"an export cannot be named {name}: /{parts[0]} is the gateway's own")
    for other in others:
        if overlap(name, other):
            raise ExportRefused(
                f"an export cannot be named {name} beside {other}: one of them would hide the "
                "other; choose a name that is not below or above it"
            )


def require_clients(clients: Sequence[str], squash: str) -> None:
    """Raise ExportRefused unless an export can have these clients and this squash."""
    if not clients:
        raise ExportRefused(
            'an export needs hosts that may mount it, like "10.0.0.0/8 rw"; to end it, remove it'
        )
    if len(clients) > CLIENTS_MAX:
        raise ExportRefused(
            f"an export has at most {CLIENTS_MAX} entries of hosts, not {len(clients)}: name "
            "networks instead"
        )
    for entry in clients:
        try:
            parse(entry)
        except ValueError as exc:
            raise ExportRefused(str(exc)) from None
    if squash not in list(Squash):
        raise ExportRefused(f"squash must be {', '.join(Squash)}, not {squash!r}")


def directory_of(session: Session, path: bytes) -> int:
    """Return the inode of a directory that can be exported. Raises ExportRefused.

    Args:
        path: path below the namespace's root. b"" is the root.
    """
    names = [part for part in path.split(b"/") if part not in (b"", b".")]
    way = list(way_down(session, names))
    for attr in way:
        if attr.kind != InodeKind.DIRECTORY:
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
