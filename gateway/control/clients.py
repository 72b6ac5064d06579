"""The clients of the NFS server: who mounts from where, what each does, and who has a file open."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from gateway import clock
from gateway.control import sharednames
from gateway.control.paths import browsing, names_of, resolve
from gateway.db.compiled import Session
from gateway.db.opening import opened, reading
from gateway.door import clients as door
from gateway.door.clients import NOTHING, Counts, Lease, Opened
from gateway.errors import NotPossible
from gateway.namespace.lookup import way_up
from gateway.settings import Settings
from gateway.text import Text, printable
from gateway.types import Kind

OPENS_MAX = 10_000
"""The opens that one question looks at."""
_DEPTH_MAX = 4096


def gather(settings: Settings) -> dict[str, Any]:
    """Return the facts about all clients. Raises DoorClosed when no NFS server answers."""
    found = door.read(settings)
    now_seconds = clock.now_ns() // clock.NS
    leases = sorted(found.leases, key=lambda lease: (lease.address, lease.name))
    others = found.counts.get("")
    return {
        "clients": [_facts(one, found.counts, now_seconds) for one in leases],
        "others": asdict(others) if others is not None and others.operations else None,
        "shared_names": sharednames.gather(settings),
    }


def _facts(lease: Lease, counts: dict[str, Counts], now_seconds: int) -> dict[str, Any]:
    return {
        "address": lease.address,
        "name": printable(lease.name),
        "minor_version": lease.minor,
        "seen_seconds": max(0, now_seconds - lease.renewed_seconds),
        **asdict(counts.get(lease.address, NOTHING)),
    }


def opens(settings: Settings, path: str, text: Text = printable) -> dict[str, Any]:
    """Return who has a file open, or what is below a directory.

    Parameters: path, as people write it; text, of names. Raises NotPossible if there is nothing;
    DoorClosed, UserError.
    """
    with browsing(settings) as browser:
        entry = resolve(browser, settings, path).found()
    top = entry.attr
    if top.kind not in (Kind.REGULAR, Kind.DIRECTORY):
        raise NotPossible(f"{printable(os.fsencode(path))}: only files are open: name one")
    is_file = top.kind == Kind.REGULAR
    found = door.opened(settings, top.ino if is_file else None, OPENS_MAX)
    at = b"/" + b"/".join(
        [os.fsencode(settings.nfs.export)[1:], *names_of(settings.nfs.export, path)]
    )
    if is_file:
        paths = {top.ino: at}
    else:
        paths = dict(_below(settings, top.ino, at, {one.ino for one in found}))
    return {
        "is_whole": len(found) < OPENS_MAX,
        "opens": list(_summed(found, paths, text)),
    }


def _below(
    settings: Settings, top: int, at: bytes, inodes: set[int]
) -> Iterator[tuple[int, bytes]]:
    """Yield those inodes that are below a directory, with a path each, by first names."""
    with opened(settings.database_url) as database, reading(database) as session:
        for ino in inodes:
            names = _names(session, ino, top)
            if names is not None:
                yield ino, b"/".join([at, *names])


def _names(session: Session, ino: int, top: int) -> list[bytes] | None:
    """Return the names from a directory down to an inode, or None if it is not below it."""
    names: list[bytes] = []
    # A database that is damaged may have a circle of directories.
    for _at, parent, name in islice(way_up(session, ino), _DEPTH_MAX):
        names.insert(0, name)
        if parent == top:
            return names
    return None


def _summed(
    found: Sequence[Opened], paths: dict[int, bytes], text: Text
) -> Iterator[dict[str, Any]]:
    """Yield a row for each file and address, by path."""
    reading_, writing = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for one in found:
        if one.ino in paths:
            reading_[one.ino, one.address] += one.reads
            writing[one.ino, one.address] += one.writes
    for ino, address in sorted(reading_, key=lambda row: (paths[row[0]], row[1])):
        yield {
            "path": text(paths[ino]),
            "address": address,
            "open_reading": reading_[ino, address],
            "open_writing": writing[ino, address],
        }
