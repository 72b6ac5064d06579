"""Plan of the moves that follow from renames: ``rekey`` rows of files, and of directories.

What is below a renamed directory is read page by page, a bounded number of names at a time. The
position is kept in memory. A reading that finds nothing left to move drops the row of the
directory. A second reading that finds little left (a file that is held, open or cannot be moved)
gives each of these files a row of its own and drops the directory's, so that the tree is not read
again for them. Where much is left, the readings continue for at most a tenth of the time, and more
rarely while they find no less than before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.common import clock
from gateway.common.retry import DOUBLINGS_MAX, FIRST_PAUSE_SECONDS
from gateway.common.types import InodeKind
from gateway.db import statements as sql
from gateway.db.compiled import rows_of
from gateway.db.journal import STORED
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import DrainJob, JobPage
from gateway.drain.paths import file_of
from gateway.drain.plan.survey import pacing_seconds, spent_seconds
from gateway.drain.plan.sweeps import move_job, moves
from gateway.drain.rows import ObjectRow
from gateway.drain.subtree import SubtreeReader
from gateway.drain.tidy import move

ROWS_PAGE = 64
LEFT_MAX = 1024
"""The most files that get rows of their own. With more left, the row of the directory stays."""


class _Name(NamedTuple):
    """The name under which a directory was found. Each rename gives it another cookie."""

    parent: int
    name: bytes
    cookie: int


@dataclass
class _Walk:
    """The readings of what is below one renamed directory."""

    ino: int
    name: _Name
    below: SubtreeReader
    number: int = 1
    found: int = 0
    """The number of objects that are not at the keys of their files."""
    found_before: int | None = None
    left: list[int] = field(default_factory=list)
    """The files of at most LEFT_MAX + 1 of them."""
    idle: int = 0
    """The readings in a row that found no less than the one before."""
    spent_seconds: float = 0.0
    next_at: float = 0.0
    """Monotonic seconds before which the next reading does not begin."""


class _Renamed(NamedTuple):
    """A row of ``rekey``."""

    ino: int
    kind: int | None
    """The kind of the inode, or None if the inode is gone."""
    stored: ObjectRow | None

    def is_at_home(self, view: DrainView) -> bool:
        """Return whether the object of a file has the file's key, or there is no object."""
        return self.stored is None or not _is_away(view, self.stored)


class Renames:
    """The renames that one drain knows of.

    Args:
        poll_seconds: the least time between two readings of the same directory.
        retry_max_seconds: the longest pause between readings that find no less, beside the time
            they take.
    """

    def __init__(self, poll_seconds: float, retry_max_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._retry_max_seconds = retry_max_seconds
        self._walks: dict[int, _Walk] = {}
        self._seen: set[int] = set()
        """The directories whose rows were there in this round."""
        self._walk: _Walk | None = None
        """The walk that is being read."""
        self._at = 0
        """The row after which the next page of rows begins."""
        self._round_at = 0.0
        self._spent_seconds = 0.0

    def restart(self) -> None:
        """Read everything again, now."""
        self._at, self._walk, self._round_at = 0, None, 0.0
        for walk in self._walks.values():
            walk.next_at = 0.0
            _rewind(walk)

    def plan(self, context: Context, _after: int | str | None) -> JobPage:
        """Plan the next moves. Rows with nothing left to do are dropped here."""
        began = clock.monotonic_seconds()
        if self._walk is not None:
            jobs = self._read(context, self._walk)
            return JobPage(jobs, 0)
        if self._at == 0 and began < self._round_at:
            return JobPage([], None)
        jobs, is_last = self._rows(context)
        self._spent_seconds += spent_seconds(began)
        if not is_last:
            return JobPage(jobs, 0)
        pause = pacing_seconds(self._spent_seconds, self._poll_seconds)
        self._round_at = clock.monotonic_seconds() + pause
        self._walks = {ino: walk for ino, walk in self._walks.items() if ino in self._seen}
        self._at, self._spent_seconds, self._seen = 0, 0.0, set()
        return JobPage(jobs, None)

    def _rows(self, context: Context) -> tuple[list[DrainJob], bool]:
        """Look at the next rows, up to a directory that must be read."""
        done: set[int] = set()
        after = self._at
        with context.reading() as view:
            away: list[ObjectRow] = []
            rows = _renamed(view, after)
            for row in rows:
                self._at = row.ino
                if row.kind == InodeKind.DIRECTORY:
                    self._seen.add(row.ino)
                    if self._begin(view, row.ino):
                        break
                elif row.is_at_home(view):
                    done.add(row.ino)
                elif row.stored is not None:
                    away.append(row.stored)
            jobs = _jobs(context, view, away)
        if done:
            with context.writing() as view:
                # A client may have renamed the file again, or removed it.
                ended = [
                    (row.ino,)
                    for row in _renamed(view, after)
                    if row.ino in done and row.kind != InodeKind.DIRECTORY and row.is_at_home(view)
                ]
                view.session.run(own.REKEYS_DELETE, inos=rows_of(ended))
                view.note((ino for (ino,) in ended), STORED)
        return jobs, len(rows) < ROWS_PAGE and self._walk is None

    def _begin(self, view: DrainView, ino: int) -> bool:
        """Return whether a reading of what is below a directory begins now."""
        name = _name_of(view, ino)
        place = view.paths.place(ino)
        if name is None or place is None or (place.held and not place.is_trashed):
            return False
        walk = self._walks.get(ino)
        if walk is None or walk.name != name:
            walk = self._walks[ino] = _Walk(ino, name, SubtreeReader(ino))
        if clock.monotonic_seconds() < walk.next_at:
            return False
        self._walk = walk
        return True

    def _read(self, context: Context, walk: _Walk) -> list[DrainJob]:
        """Read the next names below a directory."""
        began = clock.monotonic_seconds()
        try:
            with context.reading() as view:
                if _name_of(view, walk.ino) != walk.name:
                    # The directory was renamed meanwhile: what was read so far is of no use.
                    self._walk = None
                    self._walks.pop(walk.ino, None)
                    return []
                jobs = _next_jobs(context, view, walk)
        except BaseException:
            # Names that the walk has passed would be taken for names with nothing left to move.
            _rewind(walk)
            raise
        walk.spent_seconds += spent_seconds(began)
        if walk.below.is_read:
            self._walk = None
            self._end(context, walk)
        return jobs

    def _end(self, context: Context, walk: _Walk) -> None:
        """End a reading: drop the row of the directory, or plan the next reading."""
        is_little = walk.number > 1 and walk.found <= LEFT_MAX
        if (walk.found == 0 or is_little) and _drop(context, walk):
            del self._walks[walk.ino]
            return
        is_less = walk.found_before is None or walk.found < walk.found_before
        walk.idle = 0 if is_less else min(walk.idle + 1, DOUBLINGS_MAX)
        pause_seconds = min(self._retry_max_seconds, FIRST_PAUSE_SECONDS * 2.0**walk.idle)
        pause = pacing_seconds(walk.spent_seconds, self._poll_seconds)
        walk.next_at = clock.monotonic_seconds() + max(pause, pause_seconds if walk.idle else 0.0)
        walk.number, walk.found_before = walk.number + 1, walk.found
        _rewind(walk)


def _rewind(walk: _Walk) -> None:
    walk.below = SubtreeReader(walk.ino)
    walk.found, walk.left, walk.spent_seconds = 0, [], 0.0


def _next_jobs(context: Context, view: DrainView, walk: _Walk) -> list[DrainJob]:
    """Return the moves of the next page of names."""
    objects = walk.below.page(view)
    view.paths.read_names(stored.ino for stored in objects)
    away = [stored for stored in objects if _is_away(view, stored)]
    walk.found += len(away)
    walk.left.extend(stored.ino for stored in away[: LEFT_MAX + 1 - len(walk.left)])
    return _jobs(context, view, away)


def _is_away(view: DrainView, stored: ObjectRow) -> bool:
    """Return whether an object is to be moved, at once or when its file gets a name that is not
    held. In the trash it stays: its file has the key again when it is taken back."""
    key = view.paths.key_of(stored.ino)
    if key is None and view.paths.key_in_trash(stored.ino) is not None:
        return False
    return key != stored.key


def _drop(context: Context, walk: _Walk) -> bool:
    """Drop the row of a directory. What is left below gets rows. Returns False if it was renamed
    again."""
    with context.writing() as view:
        if _name_of(view, walk.ino) != walk.name:
            return False
        for ino in walk.left:
            if file_of(view.session, ino) is not None:
                view.note_rekey(ino)
        view.session.run(sql.REKEY_DELETE, the_ino=walk.ino)
        view.note((walk.ino, *walk.left), STORED)
    return True


def _jobs(context: Context, view: DrainView, objects: Sequence[ObjectRow]) -> list[DrainJob]:
    """Return the moves of one page."""
    batch = moves(context)
    return [move_job(batch, next_move) for next_move in move.next_moves(context, view, objects)]


def _renamed(view: DrainView, after: int) -> list[_Renamed]:
    """Return the next page of what was renamed.

    Args:
        after: the inode of the last one.
    """
    rows = view.session.all(own.REKEYS, after=after, most=ROWS_PAGE)
    view.paths.read_names(ino for ino, kind, *_ in rows if kind != InodeKind.DIRECTORY)
    return [
        _Renamed(ino, kind, None if stored[0] is None else ObjectRow(*stored))
        for ino, kind, *stored in rows
    ]


def _name_of(view: DrainView, ino: int) -> _Name | None:
    row = view.session.one(own.NAME, ino=ino)
    return None if row is None else _Name(*row)
