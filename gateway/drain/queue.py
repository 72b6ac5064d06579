"""Lists what waits for the bucket, and takes the orders of people and their programs.

The queue is the database: no message goes to any process. An order of a person is noted in the
journal, which every drain follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import select, tuple_

from gateway import clock, logs
from gateway.db.compiled import Statement, b
from gateway.db.drainmodels import HYDRATE
from gateway.db.journal import BELOW, CHANGED
from gateway.db.models import ROOT_INO
from gateway.db.statements import IS_DIRTY, inode, upload
from gateway.drain import statements as own
from gateway.drain.admission.retries import (
    NO_FAILURE,
    RETRY_NOW,
    Failure,
    failures,
    needs_person,
)
from gateway.drain.context import Context, View
from gateway.drain.job import JobId, Work
from gateway.drain.paths import file_of, object_at
from gateway.drain.rows import File
from gateway.errors import NotThere
from gateway.namespace.lookup import way_down
from gateway.types import Kind

PAGE = 2048
NAMED = 256
"""The files whose names are read with one query. A page may be full after a few of them."""
WAITING = Statement(
    select(*(inode.c[name] for name in File._fields), upload.c.started_ns)
    .select_from(inode.outerjoin(upload, upload.c.ino == inode.c.ino))
    .where(
        *IS_DIRTY,
        inode.c.nlink > 0,
        tuple_(inode.c.drain_after_ns, inode.c.ino) < tuple_(b("after_ns"), b("after_ino")),
    )
    .order_by(inode.c.drain_after_ns.desc(), inode.c.ino.desc())
    .limit(b("most"))
)
"""Selects dirty files, also open and settling ones, the newest first."""
NEWEST = (1 << 62, 1 << 62)
"""The place before the newest file."""


class State(StrEnum):
    """The state of a file that waits."""

    UPLOADING = "uploading"
    """Its upload was begun."""
    FAILING = "failing"
    """Its upload or move failed, and it waits for the next try."""
    WAITING = "waiting"
    """It waits for its turn."""
    SETTLING = "settling"
    """It was closed less than the time to settle ago."""
    OPEN = "open"
    """It waits until its last writer closes it."""
    BEHIND = "behind"
    """It names others, and is sent after them."""
    HELD = "held"
    """It waits for a final name, or for the person who holds it."""
    DAMAGED = "damaged"
    """It needs a person: its local bytes are known to be lost."""


NOT_WAITED_FOR = (State.HELD, State.OPEN)
"""The states of files for which nothing says when they will be ready. A file behind others is one
if nothing says when they will be."""


class Entry(NamedTuple):
    """A file whose current version is not in the bucket."""

    ino: int
    path: tuple[bytes, ...]
    """One path of the file, below the export."""
    state: State
    bumped: bool
    size_bytes: int
    """The size at the last close."""
    sealed_ns: int
    tries: int
    error: str
    next_ns: int
    """The time of the next try."""
    key: str | None
    is_stuck: bool
    """Whether it needs a person."""
    waits_for: str | None = None
    """What it is behind."""
    is_waited_for: bool = True
    """Whether the drain will send it without anything that a client or person must do first."""


class Said(NamedTuple):
    """The order of a person for a path."""

    ino: int
    path: tuple[bytes, ...] | None
    hold: bool


def entries(context: Context, below: int = ROOT_INO) -> Iterator[Entry]:
    """Yield the files that wait, the newest first.

    Parameters: below, an inode: only that file, or what is in that directory. Each page is read in
    a transaction of its own. Raises TryAgain.
    """
    after: tuple[int, int] | None = NEWEST
    while after is not None:
        with context.reading() as view:
            found, after = page(view, after, below, context.settings.drain_ahead_ns)
        yield from found


class Reasons:
    """The reasons why files are not in the bucket, as one transaction sees them."""

    def __init__(self, view: View, ahead_ns: int) -> None:
        self.ahead_ns = ahead_ns
        self._view = view
        self._failures = dict(failures(view.session))
        self._moves = {
            job.ino: failure for job, failure in self._failures.items() if job.work == Work.COPY
        }
        self.damaged = {ino: str(reason) for ino, reason in view.session.all(own.DAMAGED)}

    def of(self, ino: int, key: str | None) -> Failure:
        """Return the failure of a file's upload or move, or of the move of the object at its
        key."""
        upload = JobId(Work.UPLOAD, ino, key or "")
        found = self._failures.get(upload) or self._moves.get(ino)
        if found is None and key is not None and self._moves:
            occupant = object_at(self._view.session, key)
            found = None if occupant is None else self._moves.get(occupant.ino)
        return found or NO_FAILURE


def page(
    view: View,
    after: tuple[int, int],
    below: int,
    ahead_ns: int,
    most: int = PAGE,
    wanted: int | None = None,
) -> tuple[list[Entry], tuple[int, int] | None]:
    """Return some files that wait, and where to continue, or None if those were the last.

    Parameters: after, the place to continue at, or NEWEST; below, as of ``entries``; ahead_ns, of
    the settings; most, files that are looked at; wanted, files that are returned at most. Files
    elsewhere are left out, so the list may be empty before the last page.
    """
    reasons = Reasons(view, ahead_ns)
    rows = view.session.all(WAITING, after_ns=after[0], after_ino=after[1], most=most)
    found: list[Entry] = []
    for at, row in enumerate(rows):
        if at % NAMED == 0:
            view.paths.read_names(ino for ino, *_ in rows[at : at + NAMED])
        file = File(*row[:-1])
        entry = None
        if below == ROOT_INO or view.paths.is_below(file.ino, below):
            entry = _entry(view, file, row[-1] is not None, reasons)
        if entry is not None:
            found.append(entry)
        if len(found) == wanted and at + 1 < len(rows):
            return found, (file.drain_after_ns, file.ino)
    if len(rows) < most:
        return found, None
    last = File(*rows[-1][:-1])
    return found, (last.drain_after_ns, last.ino)


def of_file(view: View, ino: int, ahead_ns: int) -> Entry | None:
    """Return a file that waits, or None if it does not. Parameters: ahead_ns, of the settings."""
    file = file_of(view.session, ino)
    if file is None or not file.is_dirty:
        return None
    is_begun = view.session.one(own.UPLOAD, ino=ino) is not None
    return _entry(view, file, is_begun, Reasons(view, ahead_ns))


def _entry(view: View, file: File, is_begun: bool, reasons: Reasons) -> Entry | None:
    place = view.paths.place(file.ino)
    key = view.paths.key_of(file.ino)
    if place is None or (place.is_trashed and key is None):
        return None
    failure = reasons.of(file.ino, key)
    wait = None
    damage = reasons.damaged.get(file.ino)
    if damage is not None:
        state = State.DAMAGED
    elif key is None:
        state = State.HELD
    elif file.write_open:
        state = State.OPEN
    elif clock.is_ahead(file.drain_after_ns, reasons.ahead_ns):
        state = State.SETTLING
    elif (wait := view.precedence.wait_of(file)) is not None:
        state = State.BEHIND
    elif failure.tries:
        state = State.FAILING
    else:
        state = State.UPLOADING if is_begun else State.WAITING
    return Entry(
        file.ino,
        place.parts,
        state,
        place.bumped,
        file.size,
        file.drain_after_ns,
        failure.tries,
        damage or failure.error,
        failure.next_ns,
        key,
        damage is not None or needs_person(failure.tries, failure.error),
        None if wait is None else wait.reason,
        state not in NOT_WAITED_FOR and (wait is None or wait.is_under_way),
    )


def find(view: View, names: Sequence[bytes], path: str, export: str) -> int:
    """Return the inode of a path.

    Args:
        names: of the path, below the export.
        path: as a person wrote it.
        export: shown in errors.

    Raises:
        NotThere: there is nothing, or neither a file nor a directory.
    """
    way = [attr.ino for attr in way_down(view.session, names)]
    if len(way) < len(names):
        raise NotThere(f"no file or directory {path}: give a path below {export}")
    at = way[-1] if way else ROOT_INO
    file = file_of(view.session, at)
    if file is None or file.kind not in (Kind.REGULAR, Kind.DIRECTORY):
        raise NotThere(f"{path} is neither a file nor a directory: it is never drained")
    return at


def say(context: Context, ino: int, hold: bool | None) -> bool:
    """Hold a file or directory (True), put it first (False), or withdraw the order for it (None).

    Returns whether there was an order for it before. Raises TryAgain, NoSpace.
    """
    with context.writing() as view:
        before = view.session.run(own.OVERRIDE_DELETE, the_ino=ino)
        if hold is not None:
            row = {"ino": ino, "hold": int(hold), "set_ns": clock.now_ns()}
            view.session.run(own.OVERRIDE_INSERT, **row, request_id=logs.request_id.get())
        view.note((ino,), CHANGED | BELOW)
        return before > 0


def retry(context: Context, ino: int) -> bool:
    """Have what failed about a file tried again now, although its pause is not over.

    Returns whether anything had failed. The drain looks for that at each poll. Raises TryAgain.
    """
    with context.writing() as view:
        now = {"the_ino": ino, "the_work": HYDRATE, "request_id": logs.request_id.get()}
        return view.session.run(RETRY_NOW, **now) > 0


def said(context: Context) -> list[Said]:
    """Return the orders that people gave and did not withdraw. Raises TryAgain."""
    with context.reading() as view:
        found = []
        for ino, hold in view.session.all(own.OVERRIDES):
            place = view.paths.place(ino)
            found.append(Said(ino, None if place is None else place.parts, bool(hold)))
    return found
