"""Makes the job of an upload."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from gateway import clock
from gateway.drain.context import Context, View
from gateway.drain.job import Batch, Job, JobId, Lane, Work
from gateway.drain.plan.sweeps import make_way
from gateway.drain.send import intent, upload


class Way(NamedTuple):
    """How a file is sent."""

    key: str
    lane: Lane
    is_crossed: bool
    """Whether an object is recorded at a key that its key goes through."""


def is_eligible(context: Context, standing: intent.Standing) -> bool:
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
    return JobId(Work.UPLOAD, ino, key)


def job_of(
    context: Context,
    view: View,
    standing: intent.Standing,
    way: Way,
    batch: Batch,
    request_id: str | None,
) -> Job:
    """Return the upload of a file, or what must happen before it."""
    file, key = standing.file, way.key
    if way.lane is Lane.FIRST_LARGE:
        context = replace(context, is_first=True)
    found = Job(
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
        return found
    return make_way(context, view, file.ino, key) or found
