"""Queue of the drain: what waits for the bucket, why, and the orders of people and programs.

The queue is the database: no message goes to any process. An order of a person is noted in the
journal, which every drain follows.

``RenameWait`` says which renames the bucket has not followed yet. The drain may never drop the row
of a renamed directory: what is held below it, or cannot be moved, stays where it is. So each object
below the directory is judged by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import select, tuple_

from gateway.common import clock, logs
from gateway.common.errors import NotThere
from gateway.common.types import InodeKind
from gateway.db.compiled import Statement, b
from gateway.db.drain_models import HYDRATE
from gateway.db.journal import BELOW, CHANGED
from gateway.db.models import ROOT_INO
from gateway.db.statements import IS_DIRTY, inode, upload
from gateway.drain import statements as own
from gateway.drain.admission.retries import (
    NO_FAILURE,
    RETRY_NOW,
    JobFailure,
    failures,
    needs_person,
)
from gateway.drain.context import Context, DrainView
from gateway.drain.job import JobId, WorkKind
from gateway.drain.paths import file_of, is_unfinished, object_at
from gateway.drain.rows import File
from gateway.drain.subtree import SubtreeReader
from gateway.namespace.lookup import way_down

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


class QueueState(StrEnum):
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


NOT_WAITED_FOR = (QueueState.HELD, QueueState.OPEN)
"""The states of files for which nothing says when they will be ready. A file behind others is one
if nothing says when they will be."""


class QueueEntry(NamedTuple):
    """A file whose current version is not in the bucket."""

    ino: int
    path: tuple[bytes, ...]
    """One path of the file, below the export."""
    state: QueueState
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


class PathOrder(NamedTuple):
    """The order of a person for a path."""

    ino: int
    path: tuple[bytes, ...] | None
    hold: bool


def entries(context: Context, below: int = ROOT_INO) -> Iterator[QueueEntry]:
    """Yield the files that wait, the newest first.

    Each page is read in a transaction of its own. Raises TryAgain.

    Args:
        below: an inode: only that file, or what is in that directory.
    """
    after: tuple[int, int] | None = NEWEST
    while after is not None:
        with context.reading() as view:
            queue_entries, after = page(view, after, below, context.settings.drain_ahead_ns)
        yield from queue_entries


class QueueReasons:
    """The reasons why files are not in the bucket, as one transaction sees them."""

    def __init__(self, view: DrainView, ahead_ns: int) -> None:
        self.ahead_ns = ahead_ns
        self._view = view
        self._failures = dict(failures(view.session))
        self._moves = {
            job.ino: failure for job, failure in self._failures.items() if job.work == WorkKind.COPY
        }
        self.damaged = {ino: str(reason) for ino, reason in view.session.all(own.DAMAGED)}

    def of(self, ino: int, key: str | None) -> JobFailure:
        """Return the failure of a file's upload or move, or of the move of the object at its
        key."""
        upload = JobId(WorkKind.UPLOAD, ino, key or "")
        failure = self._failures.get(upload) or self._moves.get(ino)
        if failure is None and key is not None and self._moves:
            occupant = object_at(self._view.session, key)
            failure = None if occupant is None else self._moves.get(occupant.ino)
        return failure or NO_FAILURE


def page(
    view: DrainView,
    after: tuple[int, int],
    below: int,
    ahead_ns: int,
    most: int = PAGE,
    wanted: int | None = None,
) -> tuple[list[QueueEntry], tuple[int, int] | None]:
    """Return some files that wait, and where to continue, or None if those were the last.

    Files elsewhere are left out, so the list may be empty before the last page.

    Args:
        after: the place to continue at, or NEWEST.
        below: as of ``entries``.
        ahead_ns: ahead ns of the settings.
        most: files that are looked at.
        wanted: files that are returned at most.
    """
    reasons = QueueReasons(view, ahead_ns)
    rows = view.session.all(WAITING, after_ns=after[0], after_ino=after[1], most=most)
    queue_entries: list[QueueEntry] = []
    for at, row in enumerate(rows):
        if at % NAMED == 0:
            view.paths.read_names(ino for ino, *_ in rows[at : at + NAMED])
        file = File(*row[:-1])
        entry = None
        if below == ROOT_INO or view.paths.is_below(file.ino, below):
            entry = _entry(view, file, row[-1] is not None, reasons)
        if entry is not None:
            queue_entries.append(entry)
        if len(queue_entries) == wanted and at + 1 < len(rows):
            return queue_entries, (file.drain_after_ns, file.ino)
    if len(rows) < most:
        return queue_entries, None
    last = File(*rows[-1][:-1])
    return queue_entries, (last.drain_after_ns, last.ino)


def of_file(view: DrainView, ino: int, ahead_ns: int) -> QueueEntry | None:
    """Return a file that waits, or None if it does not.

    Args:
        ahead_ns: ahead ns of the settings.
    """
    file = file_of(view.session, ino)
    if file is None or not file.is_dirty:
        return None
    is_begun = view.session.one(own.UPLOAD, ino=ino) is not None
    return _entry(view, file, is_begun, QueueReasons(view, ahead_ns))


def _entry(view: DrainView, file: File, is_begun: bool, reasons: QueueReasons) -> QueueEntry | None:
    place = view.paths.place(file.ino)
    key = view.paths.key_of(file.ino)
    if place is None or (place.is_trashed and key is None):
        return None
    failure = reasons.of(file.ino, key)
    wait = None
    damage = reasons.damaged.get(file.ino)
    if damage is not None:
        state = QueueState.DAMAGED
    elif key is None:
        state = QueueState.HELD
    elif file.write_open:
        state = QueueState.OPEN
    elif clock.is_ahead(file.drain_after_ns, reasons.ahead_ns):
        state = QueueState.SETTLING
    elif (wait := view.precedence.wait_of(file)) is not None:
        state = QueueState.BEHIND
    elif failure.tries:
        state = QueueState.FAILING
    else:
        state = QueueState.UPLOADING if is_begun else QueueState.WAITING
    return QueueEntry(
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


def find(view: DrainView, names: Sequence[bytes], path: str, export: str) -> int:
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
    if file is None or file.kind not in (InodeKind.REGULAR, InodeKind.DIRECTORY):
        raise NotThere(f"{path} is neither a file nor a directory: it is never drained")
    return at


def say(context: Context, ino: int, hold: bool | None) -> bool:
    """Hold a file or directory (True), put it first (False), or withdraw the order for it (None).

    Returns whether there was an order for it before. Raises TryAgain, NoSpace.
    """
    with context.writing() as view:
        before = view.session.run(own.QUEUE_ORDER_DELETE, the_ino=ino)
        if hold is not None:
            row = {"ino": ino, "hold": int(hold), "set_ns": clock.now_ns()}
            view.session.run(own.QUEUE_ORDER_INSERT, **row, request_id=logs.request_id.get())
        view.note((ino,), CHANGED | BELOW)
        return before > 0


def retry(context: Context, ino: int) -> bool:
    """Have what failed about a file tried again now, although its pause is not over.

    Returns whether anything had failed. The drain looks for that at each poll. Raises TryAgain.
    """
    with context.writing() as view:
        now = {"the_ino": ino, "the_work": HYDRATE, "request_id": logs.request_id.get()}
        return view.session.run(RETRY_NOW, **now) > 0


def orders(context: Context) -> list[PathOrder]:
    """Return the orders that people gave and did not withdraw. Raises TryAgain."""
    with context.reading() as view:
        path_orders = []
        for ino, hold in view.session.all(own.QUEUE_ORDERS):
            place = view.paths.place(ino)
            path_orders.append(PathOrder(ino, None if place is None else place.parts, bool(hold)))
    return path_orders


class Renamed(NamedTuple):
    """A file or directory whose rename has not reached the bucket yet."""

    ino: int
    path: tuple[bytes, ...]
    error: str
    is_stuck: bool
    """Whether it needs a person."""


@dataclass
class _Reading:
    """A reading of what is below one renamed directory."""

    name: Sequence[Any]
    """The name under which the directory was found. Each rename gives it another cookie."""
    below: SubtreeReader
    away: deque[int] = field(default_factory=deque)
    """The files of the last page that are still to be judged."""
    stuck: list[Renamed] = field(default_factory=list)


class RenameWait:
    """The renames that one wait waits for.

    What is below a directory is read up to the first object that the drain can move. The next look
    continues there: otherwise a wait for a large directory would read it at each look.
    """

    def __init__(self) -> None:
        self._readings: dict[int, _Reading] = {}

    def look(self, view: DrainView, top: int = ROOT_INO) -> Iterator[Renamed]:
        """Yield the renames at, above or below an inode that have not reached the bucket.

        What is held is left out. Files that wait for their upload are left out too:
        ``queue.entries`` has them. A directory stands for what can be moved below it.
        """
        reasons, paths = QueueReasons(view, 0), view.paths
        after = 0
        while rows := view.session.all(own.REKEYS, after=after, most=PAGE):
            for ino, kind, *_ in rows:
                if top == ROOT_INO or paths.is_below(ino, top) or paths.is_below(top, ino):
                    if kind == InodeKind.DIRECTORY:
                        yield from self._directory(view, ino, reasons)
                    elif (rename := _file(view, ino, reasons)) is not None:
                        yield rename
            after = rows[-1][0]

    def _directory(self, view: DrainView, ino: int, reasons: QueueReasons) -> Iterator[Renamed]:
        place = view.paths.place(ino)
        name = view.session.one(own.NAME, ino=ino)
        if place is None or place.held or name is None:
            return
        reading = self._readings.get(ino)
        if reading is None or reading.name != name:
            reading = self._readings[ino] = _Reading(name, SubtreeReader(ino))
        if _can_move(view, reading, reasons):
            yield Renamed(ino, place.parts, "", is_stuck=False)
        else:
            del self._readings[ino]
        yield from reading.stuck


def is_durable(context: Context, tops: Sequence[int]) -> bool:
    """Return whether the bucket has all that can be waited for, as it is here, at the keys of the
    current paths. The answer is true of one moment. Raises TryAgain."""
    with context.reading() as view:
        for top in tops:
            if any(RenameWait().look(view, top)):
                return False
            after: tuple[int, int] | None = NEWEST
            while after is not None:
                queue_entries, after = page(view, after, top, context.settings.drain_ahead_ns)
                if any(entry.is_waited_for for entry in queue_entries):
                    return False
    return True


def _can_move(view: DrainView, reading: _Reading, reasons: QueueReasons) -> bool:
    """Read on, up to an object that can be moved. Returns False if there is none."""
    while True:
        while reading.away:
            rename = _file(view, reading.away[0], reasons)
            if rename is not None and not rename.is_stuck:
                return True
            reading.away.popleft()
            if rename is not None:
                reading.stuck.append(rename)
        if reading.below.is_read:
            return False
        objects = reading.below.page(view)
        view.paths.read_names(stored.ino for stored in objects)
        for stored in objects:
            if view.paths.key_of(stored.ino) not in (None, stored.key):
                reading.away.append(stored.ino)
        view.paths.forget_names()


def _file(view: DrainView, ino: int, reasons: QueueReasons) -> Renamed | None:
    """Return a file whose object the drain is to move, or None."""
    file = file_of(view.session, ino)
    place = view.paths.place(ino)
    if file is None or place is None or file.is_dirty:
        return None
    if not is_unfinished(view.session, view.paths, ino):
        return None
    wait = view.precedence.wait_of(file)
    if wait is not None and not wait.is_under_way:
        return None
    failure = reasons.of(ino, view.paths.key_of(ino))
    is_stuck = needs_person(failure.tries, failure.error)
    return Renamed(ino, place.parts, failure.error, is_stuck)
