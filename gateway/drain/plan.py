"""Decides what is to be done beside uploads (survey.py): reads the database page by page.

A plan is a hint: every job checks again, under its claims, before it acts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from gateway.db import statements as sql
from gateway.drain import doubt, garbage, move
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.paths import Place, object_at, object_of
from gateway.drain.upload import Outcome
from gateway.errors import GatewayError
from gateway.objectstore.s3 import DELETE_MAX
from gateway.types import Kind as FileKind

DELETIONS_PAGE = DELETE_MAX
REKEYS_PAGE = 64


class Lane(Enum):
    """Which threads run a job: a long upload must not hold up a deletion."""

    UPLOAD = "upload"
    CHORE = "chore"
    DISK = "disk"
    """Reads of the local disk only."""


class Kind(Enum):
    """What a job does."""

    UPLOAD = "uploads"
    SNAPSHOT = "snapshots"
    COPY = "copies"
    DELETE = "deletes"
    CLEAN_UP = "clean-ups"
    CHECKSUM = "checksums"

    @property
    def asks_bucket(self) -> bool:
        """Whether it needs the bucket at all."""
        return self is not Kind.CHECKSUM


@dataclass(frozen=True, eq=False)
class Batch:
    """How jobs of one kind run together; each still succeeds or fails by itself.

    Parameters: run, with their items; jobs_max, bytes_max, of one run.
    """

    run: Callable[[Sequence[Any]], list[Outcome | GatewayError]]
    jobs_max: int
    bytes_max: int

    def has_room(self, jobs: int, size: int) -> bool:
        """Whether one more job may join so many, if all are of so many bytes then."""
        return jobs < self.jobs_max and size <= self.bytes_max


@dataclass(frozen=True)
class Job:
    """One piece of work that touches the bucket.

    Parameters: title, for logs and retries; claims, the inode and the keys that nothing else may
    touch meanwhile; ino, of the file to upload; batch, with which item and size counts in it: None,
    it runs alone.
    """

    title: str
    kind: Kind
    lane: Lane
    claims: frozenset[int | str]
    run: Callable[[], Outcome]
    ino: int = 0
    batch: Batch | None = None
    item: Any = None
    size: int = 0


class Page(NamedTuple):
    """Some jobs, and where to go on. ``after`` None: that was the last page."""

    jobs: list[Job]
    after: int | str | None


class _Walk(NamedTuple):
    """What a rekey row still asks for."""

    jobs: list[Job]
    is_done: bool


def settlements(context: Context, _after: int | str | None) -> Page:
    """Uploads that were interrupted."""
    with context.reading() as view:
        rows = [own.Intent(*row) for row in view.session.all(own.UPLOADS)]
        left = [intent for intent in rows if not garbage.is_settled(view, intent)]
    return Page(
        [
            Job(
                f"clean-up of {intent.key}",
                Kind.CLEAN_UP,
                Lane.CHORE,
                frozenset((intent.ino, intent.key)),
                partial(garbage.settle, context, intent),
            )
            for intent in left
        ],
        None,
    )


def doubts(context: Context, _after: int | str | None) -> Page:
    """Keys at which a drain was at work that had lost its lease."""
    with context.reading() as view:
        keys = [key for key, _ino in view.session.all(own.DOUBTS)]
    jobs = [
        Job(
            f"check of {key}",
            Kind.CLEAN_UP,
            Lane.CHORE,
            frozenset((key,)),
            partial(doubt.look, context, key),
        )
        for key in keys
    ]
    return Page(jobs, None)


def deletions(context: Context, after: int | str | None) -> Page:
    """Objects whose files are gone."""
    batch = Batch(partial(garbage.delete_many, context), DELETE_MAX, DELETE_MAX)
    with context.reading() as view:
        rows = view.session.all(own.DELETIONS, after=after or "", most=DELETIONS_PAGE)
        keys = [row[0] for row in rows]
        due = [key for key in keys if not garbage.is_pending(view, key)]
    jobs = [
        Job(
            f"deletion of {key}",
            Kind.DELETE,
            Lane.CHORE,
            frozenset((key,)),
            partial(run_alone, batch, key),
            batch=batch,
            item=key,
            size=1,
        )
        for key in due
    ]
    return Page(jobs, keys[-1] if len(keys) == DELETIONS_PAGE else None)


def rekeys(context: Context, after: int | str | None) -> Page:
    """Objects whose files were renamed. Rekey rows with nothing left to do are dropped here."""
    jobs: list[Job] = []
    done: list[tuple[int, Place | None]] = []
    in_motion: set[int] = set()
    with context.reading() as view:
        rows = view.session.all(own.REKEYS, after=after or 0, most=REKEYS_PAGE)
        for (ino,) in rows:
            place = _place(view, ino)
            if place is not None and place.held:
                continue
            walk = _walk(context, view, ino, in_motion)
            jobs += walk.jobs
            if walk.is_done:
                done.append((ino, place))
    for ino, place in done:
        _drop_rekey(context, ino, place)
    return Page(jobs, rows[-1][0] if len(rows) == REKEYS_PAGE else None)


def run_alone(batch: Batch, item: Any) -> Outcome:
    """Run a batch of one."""
    (result,) = batch.run([item])
    if isinstance(result, GatewayError):
        raise result
    return result


def _walk(context: Context, view: View, ino: int, in_motion: set[int]) -> _Walk:
    """Moves for what is below an inode, but none for an inode that is already about to move: of
    two files that swapped names only one has to make way."""
    jobs = []
    left = 0
    for row in view.session.all(own.OBJECTS_BELOW, top=ino):
        stored = own.Stored(*row)
        if view.paths.key_of(stored.ino) == stored.key:
            continue
        left += 1
        planned = None if stored.ino in in_motion else move.next_move(context, view, stored)
        if planned is not None and planned.ino not in in_motion:
            in_motion.add(planned.ino)
            jobs.append(move_job(context, planned))
    return _Walk(jobs, left == 0)


def _place(view: View, ino: int) -> Place | None:
    """Where a directory is; None for a file, or a directory that is gone."""
    row = view.session.one(own.FILE, ino=ino)
    if row is None or own.File(*row).kind != FileKind.DIRECTORY:
        return None
    return view.paths.place(ino)


def _drop_rekey(context: Context, ino: int, seen: Place | None) -> None:
    """A rename between the plan and now left no second row: look again before dropping it."""
    with context.writing() as view:
        stored = object_of(view.session, ino)
        at_home = stored is None or view.paths.key_of(ino) == stored.key
        if at_home and _place(view, ino) == seen:
            view.session.run(sql.REKEY_DELETE, the_ino=ino)


def make_way(context: Context, view: View, ino: int, key: str) -> Job | None:
    """What takes another file's object off the key of an inode; None: nothing is in the way."""
    occupant = object_at(view.session, key)
    if occupant is None or occupant.ino == ino:
        return None
    return move_job(context, move.make_way(context, view, occupant))


def move_job(context: Context, planned: move.Move) -> Job:
    """The job of a move."""
    return Job(
        f"move of {planned.source} to {planned.target}",
        Kind.COPY,
        Lane.CHORE,
        frozenset(planned),
        partial(move.move, context, planned),
    )
