"""The types of the drain's work: jobs, what they need, how they end, and how they are planned."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from gateway.drain.context import Context


class Outcome(Enum):
    """How a job ended when nothing failed."""

    DONE = "done"
    """The bucket and the database agree on it."""
    OUTDATED = "outdated"
    """The namespace changed; the next pass decides again."""


class Lane(Enum):
    """Which threads run a job: a long upload must not hold up a deletion."""

    UPLOAD = "upload"
    CHORE = "chore"
    DISK = "disk"
    """Reads of the local disk only."""


class Work(Enum):
    """What a job does."""

    UPLOAD = "uploads"
    SNAPSHOT = "snapshots"
    COPY = "copies"
    DELETE = "deletes"
    CLEAN_UP = "clean-ups"
    CHECKSUM = "checksums"
    BLOCK_DIGEST = "block_digests"

    @property
    def asks_bucket(self) -> bool:
        """Whether it needs the bucket at all."""
        return self not in (Work.CHECKSUM, Work.BLOCK_DIGEST)


_PHRASES = {
    Work.UPLOAD: "upload of",
    Work.SNAPSHOT: "snapshot of",
    Work.COPY: "move to",
    Work.DELETE: "deletion of",
    Work.CLEAN_UP: "clean-up of",
    Work.CHECKSUM: "checksum of",
    Work.BLOCK_DIGEST: "block digests of",
}


class JobId(NamedTuple):
    """What a job is about. All tries of a job have the same id, and no other job has it."""

    work: Work
    ino: int
    """0: the job is about a key, whichever file has it."""
    key: str
    """Where the job changes the bucket; of a checksum the key that the file has. Empty: none."""

    @property
    def file(self) -> int:
        """The inode of the file that the job brings nearer to the bucket; 0: of none."""
        return 0 if self.work in (Work.DELETE, Work.CLEAN_UP) else self.ino

    def __str__(self) -> str:
        """The job as people see it."""
        return f"{_PHRASES[self.work]} {self.key or f'inode {self.ino}'}"


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

    Parameters: claims, the inode and the keys that nothing else may touch meanwhile; batch, with
    which item and size counts in it: None, it runs alone.
    """

    id: JobId
    lane: Lane
    claims: frozenset[int | str]
    run: Callable[[], Outcome]
    batch: Batch | None = None
    item: Any = None
    size: int = 0

    @property
    def kind(self) -> Work:
        return self.id.work


class Page(NamedTuple):
    """Some jobs, and where to continue. ``after`` None: that was the last page."""

    jobs: list[Job]
    after: int | str | None


@dataclass
class Sweep:
    """One kind of work, and how far through its rows the planning is."""

    plan: Callable[[Context, int | str | None], Page]
    kind: Work
    lane: Lane
    planned: deque[Job] = field(default_factory=deque)
    claimed: deque[Job] = field(default_factory=deque)
    """Planned, and claimed in the database."""
    after: int | str | None = None
    """Where the next page starts; None: at the first row."""
    next_at: float = 0.0
    """Monotonic seconds before which the rows are not read from the first again."""


def run_alone(batch: Batch, item: Any) -> Outcome:
    """Run a batch of one."""
    (result,) = batch.run([item])
    if isinstance(result, Exception):
        raise result
    return result


def run_jobs(jobs: Sequence[Job]) -> Sequence[Outcome | Exception]:
    """Run jobs, together if there are several; what became of each."""
    batch = jobs[0].batch
    try:
        if batch is None or len(jobs) == 1:
            return [jobs[0].run()]
        return batch.run([job.item for job in jobs])
    except Exception as exc:
        return [exc] * len(jobs)
