"""The checkpoints of the catalogue. ``checkpointorders`` has what people may do with one."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from admin_api.access.roles import Viewer
from admin_api.etags import etag_of
from admin_api.gateway import Gateway, Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.problems import Problem, describe
from admin_api.shapes import INTEGER_MAX, Ino, RunQuery, Storable
from gateway.control import checkpoints
from gateway.control.checkpoints import Checkpoint, Key, OneCheckpoint, Sort, Wanted
from gateway.db.compiled import Session
from gateway.escapes import bytes_of

router = APIRouter(prefix="/checkpoints", tags=["checkpoints"])


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
        )
    return Page(
        items=[row.model for row in rows[:limit]],
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
    found = checkpoints.one(session, gateway.settings, ino)
    if found is None:
        raise Problem(404, f"{ino} is no checkpoint: read the list again")
    return checkpoints.whole(session, found)


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
