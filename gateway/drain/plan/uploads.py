"""Upload jobs, and the complete checkpoints whose files are uploaded first.

The catalogue says which checkpoints are complete and not in the bucket yet. While the process that
keeps it is away, its rows are old. Then the order is not the best one, and nothing else is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from gateway.common import clock
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import Batch, DrainJob, JobId, Lane, WorkKind
from gateway.drain.plan.sweeps import make_way
from gateway.drain.send import intent, upload


class UploadWay(NamedTuple):
    """How a file is sent."""

    key: str
    lane: Lane
    is_crossed: bool
    """Whether an object is recorded at a key that its key goes through."""


def is_eligible(context: Context, standing: intent.UploadRows) -> bool:
    """Return whether a file may be uploaded now, as far as it does not wait for others."""
    file = standing.file
    return (
        file.is_dirty
        and not file.write_open
        and standing.is_whole
        and not clock.is_ahead(file.drain_after_ns, context.settings.drain_ahead_ns)
    )


def batch_of(context: Context) -> Batch:
    """Return the batch in which small files are sent together."""
    return Batch(partial(upload.upload_many, context), upload.BATCH_FILES, upload.BATCH_BYTES)


def id_of(ino: int, key: str) -> JobId:
    """Return the identity of the upload of a file to a key."""
    return JobId(WorkKind.UPLOAD, ino, key)


def job_of(
    context: Context,
    view: DrainView,
    standing: intent.UploadRows,
    way: UploadWay,
    batch: Batch,
    request_id: str | None,
) -> DrainJob:
    """Return the upload of a file, or what must happen before it."""
    file, key = standing.file, way.key
    if way.lane is Lane.FIRST_LARGE:
        context = replace(context, is_first=True)
    job = DrainJob(
        id_of(file.ino, key),
        way.lane,
        frozenset((file.ino, key)),
        partial(upload.upload, context, file, key),
        batch if file.size <= upload.SMALL_BYTES else None,
        (file, key),
        file.size,
        request_id,
    )
    if standing.occupant in (None, file.ino) and not way.is_crossed:
        return job
    return make_way(context, view, file.ino, key) or job


MOST = 256
"""The most checkpoints that go first. More of them are drained like all files."""


class Complete:
    """The complete checkpoints that wait. It remembers the directories of each.

    What goes first below a top-level directory is uploaded to its end, although newer ones are
    complete meanwhile. Otherwise nothing would become durable while saves come faster than the
    bucket takes them.
    """

    def __init__(self) -> None:
        self._begun: dict[bytes, int] = {}
        """The checkpoint that goes first, by top-level directory."""
        self._directories: dict[tuple[int, str], tuple[int, ...]] = {}
        """The directories by inode and evidence: another set of members may have others."""

    def places(self, view: DrainView) -> Sequence[tuple[bytes, int]]:
        """Return what they consist of: the top-level directory and inode of each directory, or of
        the file that a checkpoint consists of. What goes first is last."""
        rows = view.session.all(own.COMPLETE, most=MOST)
        waiting = {ino: _top(bytes(path)) for ino, path, _evidence in rows}
        begun = {top: ino for top, ino in self._begun.items() if waiting.get(ino) == top}
        for ino, top in waiting.items():
            begun.setdefault(top, ino)
        self._begun = begun
        before, self._directories = self._directories, {}
        places = []
        first = set(begun.values())
        later = [row for row in reversed(rows) if row[0] not in first]
        for ino, path, evidence in (*later, *(row for row in rows if row[0] in first)):
            directories = before.get((ino, evidence))
            if directories is None:
                below = view.session.all(own.DIRECTORIES_BELOW, top=ino)
                directories = tuple(directory for (directory,) in below)
            self._directories[ino, evidence] = directories
            top = b"" if not directories and b"/" not in bytes(path) else waiting[ino]
            places += [(top, directory) for directory in directories or (ino,)]
        return places


def _top(path: bytes) -> bytes:
    return path.partition(b"/")[0]
