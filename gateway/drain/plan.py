"""Decides what is to be done beside uploads (survey.py) and moves (renames.py): reads the database
page by page.

A plan is a hint: every job checks again, under its claims, before it acts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from gateway.drain import doubt, garbage, move
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.paths import object_at
from gateway.drain.upload import Outcome
from gateway.objectstore.s3 import DELETE_MAX

DELETIONS_PAGE = DELETE_MAX


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

    run: Callable[[Sequence[Any]], list[Outcome | Exception]]
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

    @property
    def about(self) -> int:
        """The inode of the file that it brings nearer to the bucket; 0: of none."""
        if self.kind in (Kind.DELETE, Kind.CLEAN_UP):
            return 0
        return next((claim for claim in self.claims if isinstance(claim, int)), 0)


class Page(NamedTuple):
    """Some jobs, and where to go on. ``after`` None: that was the last page."""

    jobs: list[Job]
    after: int | str | None


@dataclass
class Sweep:
    """One kind of work, and how far through its rows the planning is."""

    plan: Callable[[Context, int | str | None], Page]
    kind: Kind
    lane: Lane
    planned: deque[Job] = field(default_factory=deque)
    held: deque[Job] = field(default_factory=deque)
    """Planned, and claimed in the database."""
    after: int | str | None = None
    """Where the next page starts; None: at the first row."""
    next_at: float = 0.0
    """Monotonic seconds before which the rows are not read from the first again."""


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
    """Keys at which something may have arrived that no row tells of."""
    with context.reading() as view:
        keys = doubt.due(view)
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
        due = garbage.due(view, keys)
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


def run_alone(batch: Batch, item: Any) -> Outcome:
    """Run a batch of one."""
    (result,) = batch.run([item])
    if isinstance(result, Exception):
        raise result
    return result


def make_way(context: Context, view: View, ino: int, key: str) -> Job | None:
    """What takes another file's object off the key of an inode; None: nothing is in the way."""
    occupant = object_at(view.session, key)
    if occupant is None or occupant.ino == ino:
        return None
    return move_job(moves(context), move.make_way(context, view, occupant))


def moves(context: Context) -> Batch:
    """Moves that may run together."""
    return Batch(partial(move.move_many, context), move.MOVES_AT_ONCE, move.BATCH_BYTES)


def move_job(batch: Batch, planned: move.Move) -> Job:
    """The job of a move. Parameters: batch, with which it runs if it is small."""
    return Job(
        f"move of {planned.source} to {planned.target}",
        Kind.COPY,
        Lane.CHORE,
        planned.claims,
        partial(run_alone, batch, planned),
        batch=batch if planned.size <= move.SMALL_BYTES else None,
        item=planned,
        size=planned.size,
    )


def run_jobs(jobs: Sequence[Job]) -> Sequence[Outcome | Exception]:
    """Run jobs, together if there are several; what became of each."""
    batch = jobs[0].batch
    try:
        if batch is None or len(jobs) == 1:
            return [jobs[0].run()]
        return batch.run([job.item for job in jobs])
    except Exception as exc:
        return [exc] * len(jobs)
