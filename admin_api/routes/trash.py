"""Routes of the trash: what policies and people deleted, its way back, its removal for good."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from admin_api.access.authentication import Admin, Operator, Viewer
from admin_api.audit import Recorded
from admin_api.jobs import work as jobs
from admin_api.jobs.runner import Working
from admin_api.problems import describe
from admin_api.requests import (
    LIMIT,
    Body,
    Cursor,
    Governed,
    GovernedGateway,
    IfMatch,
    Limit,
    Page,
    PathText,
    cursor_of,
    etag_of,
    key_of,
    require_match,
)
from admin_api.routes.jobs import accepted
from gateway.lifecycle.trash.rows import TrashRow
from gateway.lifecycle.trash.trash import Trash
from gateway.service import trash as control
from gateway.service.jobs import Job
from gateway.service.trash import LocalTrashBin, Trashed, Undeleted

router = APIRouter(prefix="/trash", tags=["trash"])

_ID = "^t[0-9]{1,19}$"
TrashId = Annotated[str, Path(pattern=_ID, description="Its id in the trash.", examples=["t1234"])]


class Returning(Body):
    """Where a checkpoint is taken back to."""

    to: PathText | None = Field(None, description="Another path than the one that it had.")


class Emptying(Body):
    """What is to be removed for good."""

    ids: list[Annotated[str, Field(pattern=_ID)]] | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Only these. None: everything that is in the trash now, and not held.",
        examples=[["t1234", "t1250"]],
    )


@router.get("", responses=describe(400, 503))
def list_trash(
    gateway: Governed, _viewer: Viewer, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[Trashed]:
    """List what is in the trash, the oldest first."""
    key = key_of(cursor, int, str)
    trash = _trash(gateway)
    rest = [entry for entry in trash.entries() if key is None or _place(entry) > key]
    shown = rest[:limit]
    entries = control.model(gateway.settings, trash, shown)
    return Page(
        items=entries,
        next=cursor_of(_place(shown[-1])) if len(rest) > limit else None,
    )


@router.get("/{id}", responses=describe(404, 503))
def read_trashed(gateway: Governed, _viewer: Viewer, id: TrashId, response: Response) -> Trashed:
    """Read what is known of a checkpoint in the trash."""
    _entry, entry = _one(gateway, id)
    response.headers["ETag"] = etag_of(entry.version)
    return entry


@router.post("/{id}/undelete", responses=describe(403, 404, 409, 503))
def undelete_checkpoint(
    gateway: Governed, call: Recorded, operator: Operator, id: TrashId, body: Returning
) -> Undeleted:
    """Take a checkpoint back. Clients see it at once."""
    call.before = _one(gateway, id)[1]
    made = control.undelete(gateway.settings, _trash(gateway), id, body.to, by=operator.name)
    call.after = made
    return made


@router.post("/{id}/release", responses=describe(404, 409, 503))
def release_trashed(gateway: Governed, call: Recorded, admin: Admin, id: TrashId) -> Trashed:
    """Let a checkpoint that clients removed leave the bucket, although no newer one is there."""
    call.before = _one(gateway, id)[1]
    trash = LocalTrashBin(gateway.settings, gateway.database, admin.name)
    call.after = made = trash.release(id)
    return made


@router.delete("/{id}", status_code=202, responses=describe(404, 412, 503))
def remove_trashed(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    runner: Working,
    response: Response,
    id: TrashId,
    if_match: IfMatch = None,
) -> Job:
    """Begin a job that removes a checkpoint for good, also from the bucket."""
    entry, trash_entry = _one(gateway, id)
    if if_match is not None:
        require_match(if_match, trash_entry.version, trash_entry)
    call.before = trash_entry
    return accepted(response, call, jobs.empty(runner, admin, call, [id], entry.since_ns))


@router.post("/empty", status_code=202, responses=describe(503))
def empty_trash(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    runner: Working,
    body: Emptying,
    response: Response,
) -> Job:
    """Begin a job that removes checkpoints for good, also from the bucket. What comes into the
    trash later stays."""
    until_ns = _trash(gateway).now_ns()
    return accepted(response, call, jobs.empty(runner, admin, call, body.ids, until_ns))


def _trash(gateway: GovernedGateway) -> Trash:
    return Trash(gateway.settings, gateway.database)


def _one(gateway: GovernedGateway, id: str) -> tuple[TrashRow, Trashed]:
    """Return what has an id in the trash: its row, and what people see. Raises NotThere."""
    trash = _trash(gateway)
    entry = control.found(trash, id)
    [trash_entry] = control.model(gateway.settings, trash, [entry])
    return entry, trash_entry


def _place(entry: TrashRow) -> list[Any]:
    return [entry.since_ns, entry.id]
