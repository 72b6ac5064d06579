"""What waits for the bucket, for people and their programs: lists it, and takes their orders.

The queue is the database. A drain reads it anew all the time, so nothing has to be told to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from gateway import clock
from gateway.db import statements as sql
from gateway.db.models import ROOT_INO
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.paths import file_of
from gateway.errors import UserError
from gateway.types import Kind

PAGE = 2048
_LAST = (1 << 62, 1 << 62)


class State(StrEnum):
    """What a file waits for."""

    UPLOADING = "uploading"
    """An upload was begun."""
    FAILING = "failing"
    """Its next try."""
    WAITING = "waiting"
    """Its turn."""
    SETTLING = "settling"
    """The time after its last close."""
    OPEN = "open"
    """Its last writer's close."""
    HELD = "held"
    """A final name, or the person who holds it."""


class Entry(NamedTuple):
    """A file that is not in the bucket as it is here."""

    ino: int
    path: tuple[bytes, ...]
    """Below the export; a name of it."""
    state: State
    bumped: bool
    size_bytes: int
    """As of its last close."""
    sealed_ns: int
    tries: int
    error: str
    next_ns: int
    """Of its next try."""
    key: str | None


class Said(NamedTuple):
    """What a person said of a path."""

    ino: int
    path: tuple[bytes, ...] | None
    hold: bool


def entries(context: Context, below: int = ROOT_INO) -> Iterator[Entry]:
    """The files that wait, the newest first.

    Parameters: below, an inode: only that file, or what is in that directory. Reads page by page,
    each in a transaction of its own. Raises TryAgain.
    """
    after = _LAST
    while True:
        with context.reading() as view:
            failures = {row[0]: row for row in view.session.all(own.RETRIES)}
            rows = view.session.all(own.QUEUE, after_ns=after[0], after_ino=after[1], most=PAGE)
            found = []
            for row in rows:
                entry = _entry(view, own.File(*row[:-1]), row[-1] is not None, failures)
                if entry is not None and (below == ROOT_INO or _is_below(view, entry.ino, below)):
                    found.append(entry)
        yield from found
        if len(rows) < PAGE:
            return
        last = own.File(*rows[-1][:-1])
        after = (last.drain_after_ns, last.ino)


def _entry(
    view: View, file: own.File, is_begun: bool, failures: dict[Any, Sequence[Any]]
) -> Entry | None:
    names = view.session.all(sql.NAMES, ino=file.ino)
    place = view.paths.place(names[0][0]) if names else None
    if place is None:
        return None
    key = view.paths.key_of(file.ino)
    _, tries, error, next_ns = failures.get(f"upload of {key}", ("", 0, "", 0))
    now_ns = clock.now_ns()
    if key is None:
        state = State.HELD
    elif file.write_open:
        state = State.OPEN
    elif file.drain_after_ns > now_ns:
        state = State.SETTLING
    elif tries:
        state = State.FAILING
    else:
        state = State.UPLOADING if is_begun else State.WAITING
    return Entry(
        file.ino,
        (*place.parts, names[0][1]),
        state,
        place.bumped or view.paths.is_bumped(file.ino),
        file.size,
        file.drain_after_ns,
        tries,
        error,
        next_ns,
        key,
    )


def _is_below(view: View, ino: int, top: int) -> bool:
    """Whether an inode is another one, or has a name somewhere below it."""
    if ino == top:
        return True
    return any(
        top in view.paths.chain(parent) for parent, _ in view.session.all(sql.NAMES, ino=ino)
    )


def find(view: View, export: str, path: str) -> int:
    """The inode of a path as a person writes it: as clients see it, or from the export down.

    Raises UserError.
    """
    below = path if path.startswith("/") else f"{export}/{path}"
    if f"{below}/".startswith(f"{export}/"):
        below = below[len(export) :]
    at = ROOT_INO
    for name in os.fsencode(below).split(b"/"):
        if name not in (b"", b"."):
            row = view.session.one(sql.ENTRY, parent=at, name=name)
            if row is None:
                raise UserError(f"no file or directory {path}: give a path below {export}")
            at = row[0]
    file = file_of(view.session, at)
    if file is None or file.kind not in (Kind.REGULAR, Kind.DIRECTORY):
        raise UserError(f"{path} is neither a file nor a directory: it is never drained")
    return at


def say(context: Context, ino: int, hold: bool | None) -> bool:
    """Hold a file or directory, put it first, or (None) take back what was said of it.

    Returns whether anything had been said of it before. Raises TryAgain, NoSpace.
    """
    with context.writing() as view:
        before = view.session.run(own.OVERRIDE_DELETE, the_ino=ino)
        if hold is not None:
            view.session.run(own.OVERRIDE_INSERT, ino=ino, hold=int(hold), set_ns=clock.now_ns())
        return before > 0


def said(context: Context) -> list[Said]:
    """Everything that people said and did not take back. Raises TryAgain."""
    with context.reading() as view:
        found = []
        for ino, hold in view.session.all(own.OVERRIDES):
            names = view.session.all(sql.NAMES, ino=ino)
            place = view.paths.place(names[0][0]) if names else None
            path = () if ino == ROOT_INO else None
            if place is not None:
                path = (*place.parts, names[0][1])
            found.append(Said(ino, path, bool(hold)))
    return found
