"""Jobs of the drain: what each needs, how it ends, and how jobs are planned."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from gateway.drain.context import Context


class JobOutcome(Enum):
    """How a job ended that did not fail."""

    DONE = "done"
    """The work is done, and the bucket and the database agree."""
    OUTDATED = "outdated"
    """The namespace changed meanwhile. The next pass decides again."""


class Lane(Enum):
    """The group of threads that runs a job. What takes long has threads of its own: it must not
    hold up what takes a moment, nor what a person or client waits for."""

    FIRST = "first"
    """Uploads of what a person put first, or clients wait for in a CLOSE."""
    FIRST_LARGE = "first large"
    UPLOAD = "upload"
    LARGE = "large"
    """Uploads of more than ``LARGE_BYTES``."""
    CHORE = "chore"
    """Deletions, looks at keys and clean-up."""
    COPY = "copy"
    """Copies inside of the bucket."""
    DISK = "disk"
    """Jobs that only read the local disk."""


UPLOADS = (Lane.FIRST, Lane.FIRST_LARGE, Lane.UPLOAD, Lane.LARGE)
LARGE_BYTES = 64 * 1024 * 1024


def upload_lane(size: int, *, is_first: bool) -> Lane:
    """Return the lane of the upload of a file.

    Args:
        size: size in bytes.
        is_first: whether a person or client waits for it.
    """
    if size > LARGE_BYTES:
        return Lane.FIRST_LARGE if is_first else Lane.LARGE
    return Lane.FIRST if is_first else Lane.UPLOAD


class WorkKind(Enum):
    """The kind of work that a job does."""

    UPLOAD = "uploads"
    SNAPSHOT = "snapshots"
    COPY = "copies"
    DELETE = "deletes"
    CLEAN_UP = "clean-ups"
    TRANSITION = "transitions"
    CHECKSUM = "checksums"

    @property
    def asks_bucket(self) -> bool:
        """Whether this work sends requests to the bucket."""
        return self is not WorkKind.CHECKSUM


_PHRASES = {
    WorkKind.UPLOAD: "upload of",
    WorkKind.SNAPSHOT: "snapshot of",
    WorkKind.COPY: "move to",
    WorkKind.DELETE: "deletion of",
    WorkKind.CLEAN_UP: "clean-up of",
    WorkKind.TRANSITION: "storage class of",
    WorkKind.CHECKSUM: "checksum of",
}


class JobId(NamedTuple):
    """The identity of a job. All tries of a job have the same id, and no other job has it."""

    work: WorkKind
    ino: int
    """The inode, or 0 if the job is about a key, whichever file has it."""
    key: str
    """The key that the job changes, or of a checksum the key that the file has. Empty if none."""

    @property
    def file(self) -> int:
        """The inode of the file that the job brings nearer to the bucket, or 0 if there is none."""
        return (
            0
            if self.work in (WorkKind.DELETE, WorkKind.CLEAN_UP, WorkKind.TRANSITION)
            else self.ino
        )

    def __str__(self) -> str:
        """Return the job as people see it."""
        return f"{_PHRASES[self.work]} {self.key or f'inode {self.ino}'}"


@dataclass(frozen=True, eq=False)
class Batch:
    """How jobs of one kind run together. Each still succeeds or fails by itself.

    Args:
        run: called with the items of the jobs.
        jobs_max, bytes_max: the limits of one run.
    """

    run: Callable[[Sequence[Any]], list[JobOutcome | Exception]]
    jobs_max: int
    bytes_max: int

    def has_room(self, jobs: int, size: int) -> bool:
        """Return whether one more job may join so many, and all of them then have so many bytes."""
        return jobs < self.jobs_max and size <= self.bytes_max


@dataclass(frozen=True)
class DrainJob:
    """One piece of work of the drain.

    The jobs of a batch have the same.

    Args:
        claims: the inode and the keys that nothing else may touch meanwhile.
        batch: batch with which the job runs, or None if it runs alone.
        item, size: (bytes), what the job is in that batch.
        request_id: the request of the admin API by which a person put the file first or had it
            tried again.
    """

    id: JobId
    lane: Lane
    claims: frozenset[int | str]
    run: Callable[[], JobOutcome]
    batch: Batch | None = None
    item: Any = None
    size: int = 0
    request_id: str | None = None

    @property
    def kind(self) -> WorkKind:
        return self.id.work


class JobPage(NamedTuple):
    """Some jobs, and where to continue. ``after`` is None on the last page."""

    jobs: list[DrainJob]
    after: int | str | None


@dataclass
class Sweep:
    """One kind of work, and how far through its rows the planning is."""

    plan: Callable[[Context, int | str | None], JobPage]
    kind: WorkKind
    lane: Lane
    planned: deque[DrainJob] = field(default_factory=deque)
    claimed: deque[DrainJob] = field(default_factory=deque)
    """The jobs that are planned and claimed in the database."""
    after: int | str | None = None
    """Where the next page starts, or None at the first row."""
    next_at: float = 0.0
    """Monotonic seconds before which the rows are not read again from the first."""


def run_alone(batch: Batch, item: Any) -> JobOutcome:
    """Run a batch of one."""
    (result,) = batch.run([item])
    if isinstance(result, Exception):
        raise result
    return result


def run_jobs(jobs: Sequence[DrainJob]) -> Sequence[JobOutcome | Exception]:
    """Run jobs, together if there are several. Returns the result of each."""
    batch = jobs[0].batch
    try:
        if batch is None or len(jobs) == 1:
            return [jobs[0].run()]
        return batch.run([job.item for job in jobs])
    except Exception as exc:
        return [exc] * len(jobs)
