"""The checkpoints of the catalogue. ``checkpointorders`` has what people may do with one."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from admin_api.access.roles import Viewer
from admin_api.etags import etag_of
from admin_api.gateway import Gateway, Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.problems import Problem, describe
from admin_api.shapes import INTEGER_MAX, Ino, RunQuery, Storable
from gateway.control import checkpoints
from gateway.control.checkpoints import Key, Sort, Wanted
from gateway.db.compiled import Session
from gateway.escapes import bytes_of, text_of
from gateway.namespace.pins import Pins

router = APIRouter(prefix="/checkpoints", tags=["checkpoints"])


class Checkpoint(BaseModel):
    """A checkpoint, as the catalogue has it."""

    ino: int = Field(description="Its number, which a rename does not change.")
    path: str = Field(examples=["/checkpoints/jobs/llama-7b/step-1200"])
    run: str = Field(examples=["jobs/llama-7b"])
    step: int | None
    rule: str = Field(description="Recognised it.", examples=["dcp"])
    state: str = Field(
        description="writing, complete, draining, durable or archived; broken if it was complete "
        "and has lost members since: no other one is deleted for it.",
        examples=["durable"],
    )
    grade: Literal["listed", "alike", "marked"] | None = Field(
        description="What shows that it is complete. listed: its index names its members, and all "
        "are there. alike: it has the members of the complete ones before it. marked: its save has "
        "ended, and nothing lists its members. Only for those that are listed or alike another one "
        "is deleted. None: it is not complete."
    )
    reason: str | None = Field(description="Why it is not complete, or how it is broken.")
    files: int
    size_bytes: int
    dirty_files: int = Field(description="Files that the bucket does not have as they are here.")
    dirty_bytes: int
    complete_ns: int | None
    durable_ns: int | None
    age_seconds: float | None = Field(description="Since it was complete.")
    manifest: str | None = Field(description="Key of its manifest in the bucket.")
    evidence: str = Field(description="A hash of its members. It is the ETag.")
    storage_class: str | None = Field(
        description="The one that all objects were moved to. A durable checkpoint is archived then."
    )


class OneCheckpoint(Checkpoint):
    """A checkpoint, with what people said of it."""

    pinned: bool = Field(description="Whether it, or a directory above it, is pinned.")
    promotions: list[str] = Field(description="The names of its promotions.", examples=[["best"]])


_STATES = Literal["writing", "complete", "draining", "durable", "broken", "archived"]
_SORTS = Literal["run", "-run", "complete", "-complete", "size", "-size"]


@router.get("", responses=describe(400, 503))
def list_checkpoints(
    gateway: Governed,
    _viewer: Viewer,
    run: RunQuery = None,
    state: Annotated[
        _STATES | None, Query(description="archived ones are durable. Expired ones are in /trash.")
    ] = None,
    rule: Annotated[
        str | None, Query(max_length=256, description="Name of a rule."), Storable
    ] = None,
    text: Annotated[
        str | None, Query(min_length=1, max_length=4096, description="Part of the path.")
    ] = None,
    sort: Annotated[
        _SORTS,
        Query(
            description="run: by run and step. complete: by completion, and those that are not "
            "complete are the newest. -: in the other direction."
        ),
    ] = "run",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[Checkpoint]:
    """List checkpoints. A page costs the same wherever it is in the list."""
    wanted = Wanted(
        run=None if run is None else bytes_of(run),
        state=state,
        rule=rule,
        text=None if text is None else bytes_of(text),
    )
    with gateway.database.reading() as session:
        rows = checkpoints.page(
            session,
            gateway.settings,
            limit + 1,
            wanted=wanted,
            sort=Sort(sort.removeprefix("-")),
            is_descending=sort.startswith("-"),
            after=_after(cursor, sort),
            text=text_of,
        )
    return Page(
        items=[Checkpoint(**row.facts) for row in rows[:limit]],
        next=_cursor(sort, rows[limit - 1].key) if len(rows) > limit else None,
    )


@router.get("/{ino}", responses=describe(404, 503))
def read_checkpoint(
    gateway: Governed, _viewer: Viewer, ino: Ino, response: Response
) -> OneCheckpoint:
    """Read one checkpoint."""
    with gateway.database.reading() as session:
        found = read_one(gateway, session, ino)
    response.headers["ETag"] = etag_of(found.evidence)
    return found


def read_one(gateway: Gateway, session: Session, ino: int) -> OneCheckpoint:
    """Return a checkpoint. Raises Problem."""
    rows = checkpoints.page(session, gateway.settings, 1, wanted=Wanted(ino=ino), text=text_of)
    if not rows:
        raise Problem(404, f"{ino} is no checkpoint: read the list again")
    return OneCheckpoint(
        **rows[0].facts,
        pinned=Pins(session).cover(ino),
        promotions=checkpoints.promotions(session, ino),
    )


def _cursor(sort: str, key: Key) -> str:
    return cursor_of([sort, *(one.hex() if isinstance(one, bytes) else one for one in key)])


def _after(cursor: str | None, sort: str) -> Key | None:
    """Return the key of a cursor. Raises Problem if it is not one of this list."""
    kinds = checkpoints.kinds_of(Sort(sort.removeprefix("-")))
    key = key_of(cursor, str, *(str if kind is bytes else int for kind in kinds))
    if key is None:
        return None
    if key[0] != sort:
        raise Problem(400, "cursor: it is one of another order: begin without a cursor")
    return tuple(_value(kind, one) for kind, one in zip(kinds, key[1:], strict=True))


def _value(kind: type, value: Any) -> Any:
    with suppress(ValueError):
        if kind is bytes:
            return bytes.fromhex(value)
        if abs(value) <= INTEGER_MAX:
            return value
    raise Problem(400, "cursor: it is not one of this list: begin without a cursor")
