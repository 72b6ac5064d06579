"""Orders about a checkpoint: pin it, delete it, bring its bytes, and wait until it is durable."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.calls import Call, Recorded
from admin_api.etags import IfMatch, changed, versions_of
from admin_api.gateway import Gateway, Governed
from admin_api.jobs import files as jobs
from admin_api.jobs.runner import Working
from admin_api.problems import describe
from admin_api.routes.checkpoints import read_one
from admin_api.routes.jobs import accepted
from admin_api.shapes import Body, Ino, Note, Storable
from gateway import clock
from gateway.control import deletion, durability, pins, queue
from gateway.control.checkpoints import OneCheckpoint
from gateway.control.deletion import Deleted
from gateway.control.jobs import Job
from gateway.errors import Changed
from gateway.namespace import lookup

router = APIRouter(prefix="/checkpoints/{ino}", tags=["checkpoints"])

WAIT_SECONDS_MAX = 60.0


class Pinning(Body):
    """A pin to be made."""

    note: Note = ""


class Durability(BaseModel):
    """Whether the bucket alone could restore a checkpoint."""

    durable: bool
    missing: str | None = Field(
        description="What the bucket does not have, and why.",
        examples=["3 files, 1.2 GiB; /checkpoints/jobs/a/step-1/model.pt: uploading"],
    )


@router.put("/pin", responses=describe(403, 404, 409, 503))
def pin_checkpoint(
    gateway: Governed, call: Recorded, operator: Operator, ino: Ino, body: Pinning
) -> OneCheckpoint:
    """Keep a checkpoint on the local disk and from all policies. A pin that it has is replaced."""
    with gateway.database.writing() as session:
        found = read_one(gateway, session, ino)
        call.before = pins.of(gateway.settings, session, ino)
        row = pins.pin(session, lookup.get(session, ino), found.path, body.note, operator.name)
        call.after = pins.model(gateway.settings, session, row)
        return read_one(gateway, session, ino)


@router.delete("/pin", responses=describe(403, 404, 503))
def unpin_checkpoint(
    gateway: Governed, call: Recorded, _operator: Operator, ino: Ino
) -> OneCheckpoint:
    """End the pin of a checkpoint. A pin of a directory above it stays."""
    with gateway.database.writing() as session:
        found = read_one(gateway, session, ino)
        call.before = pins.of(gateway.settings, session, ino)
        pins.unpin(session, ino, found.path)
        return read_one(gateway, session, ino)


@router.delete("", responses=describe(403, 404, 409, 412, 503))
def delete_checkpoint(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    ino: Ino,
    force: Annotated[
        bool, Query(description="Although a law of retention keeps it: see the detail of the 409.")
    ] = False,
    reason: Annotated[
        str, Query(max_length=1000, description="Why, for other people."), Storable
    ] = deletion.BY_HAND,
    if_match: IfMatch = None,
) -> Deleted:
    """Put a whole checkpoint into the trash, from where it can be taken back for a while.

    The laws of retention hold: it must be complete, not promoted, and a newer one of its run must
    be durable. `force` overrides these. What is pinned or being promoted stays in any case, and so
    does a checkpoint with a file that is open for writing.
    """
    found = _found(gateway, ino)
    call.before = found
    try:
        trash_id = deletion.delete(
            gateway.settings,
            gateway.database,
            ino,
            author=admin.name,
            reason=reason,
            insists=force,
            seen=versions_of(if_match),
        )
    except Changed:
        now = _found(gateway, ino)
        raise changed(now.evidence, now) from None
    call.after = made = Deleted(trash_id, found.path)
    return made


@router.post("/evict", status_code=202, responses=describe(404, 503))
def evict_checkpoint(
    gateway: Governed,
    call: Recorded,
    operator: Operator,
    runner: Working,
    ino: Ino,
    response: Response,
) -> Job:
    """Begin a job that frees the local disk of its files that the bucket has. A rename meanwhile
    changes nothing."""
    arguments = _arguments(gateway, call, ino)
    return accepted(response, call, runner.submit(jobs.EVICT, arguments, operator, call.request_id))


@router.post("/warm", status_code=202, responses=describe(404, 503))
def warm_checkpoint(
    gateway: Governed,
    call: Recorded,
    operator: Operator,
    runner: Working,
    ino: Ino,
    response: Response,
) -> Job:
    """Begin a job that brings its evicted files back to the local disk. A rename meanwhile changes
    nothing."""
    arguments = _arguments(gateway, call, ino)
    return accepted(response, call, runner.submit(jobs.WARM, arguments, operator, call.request_id))


@router.get("/wait", responses=describe(404, 409, 503))
async def wait_for_checkpoint(
    gateway: Governed,
    _viewer: Viewer,
    ino: Ino,
    timeout: Annotated[
        float,
        Query(
            ge=0,
            le=WAIT_SECONDS_MAX,
            allow_inf_nan=False,
            description="Seconds after which the answer comes in any case: ask again then.",
        ),
    ] = 30.0,
) -> Durability:
    """Wait until the bucket alone could restore a checkpoint. Its files that are open, held or
    renamed are waited for too."""
    until = clock.monotonic_seconds() + timeout
    found = await run_in_threadpool(_found, gateway, ino)
    with ExitStack() as stack:
        # Threads are few, and many trainers may wait: each look has a thread only while it looks.
        opened = queue.opened(gateway.settings)
        context = await run_in_threadpool(stack.enter_context, opened)
        waiting = durability.Waiting(context, ino, found.path)
        while (seconds := await run_in_threadpool(waiting.look)) is not None:
            left_seconds = until - clock.monotonic_seconds()
            if left_seconds <= 0:
                missing = await run_in_threadpool(durability.why, context, ino)
                return Durability(durable=False, missing=missing)
            await asyncio.sleep(min(seconds, left_seconds))
    return Durability(durable=True, missing=None)


def _found(gateway: Gateway, ino: int) -> OneCheckpoint:
    with gateway.database.reading() as session:
        return read_one(gateway, session, ino)


def _arguments(gateway: Gateway, call: Call, ino: int) -> dict[str, Any]:
    """Return the arguments of a job about a checkpoint. Raises Problem if there is none."""
    found = _found(gateway, ino)
    call.before = found
    return {"paths": [found.path], "ino": ino}
