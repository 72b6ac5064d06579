"""Routes of checkpoints, and of runs with what each would lose if this gateway were lost now.

What is done with the path of a checkpoint, as with any other path, is in the routes of pins,
promotions and files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from admin_api.access.authentication import Admin, Viewer
from admin_api.audit import Recorded
from admin_api.problems import Problem, ProblemCode, describe
from admin_api.requests import (
    INTEGER_MAX,
    LIMIT,
    Cursor,
    Governed,
    GovernedGateway,
    IfMatch,
    Ino,
    Limit,
    Page,
    RunQuery,
    Storable,
    changed,
    cursor_of,
    etag_of,
    key_of,
    versions_of,
)
from gateway.catalogue.risk import measure
from gateway.common.errors import Changed
from gateway.common.text import bytes_of, text_of
from gateway.db.compiled import Session
from gateway.service import checkpoints, deletion
from gateway.service.checkpoints import Checkpoint, Key, ListFilter, OneCheckpoint, Run, Sort
from gateway.service.deletion import Deleted

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
    wanted = ListFilter(
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
        checkpoint = read_one(gateway, session, ino)
    response.headers["ETag"] = etag_of(checkpoint.evidence)
    return checkpoint


def read_one(gateway: GovernedGateway, session: Session, ino: int) -> OneCheckpoint:
    """Return a checkpoint. Raises Problem."""
    checkpoint = checkpoints.one(session, gateway.settings, ino)
    if checkpoint is None:
        raise Problem(ProblemCode.MISSING_RESOURCE, f"{ino} is no checkpoint: read the list again")
    return checkpoints.whole(session, checkpoint)


def _cursor(sort: str, key: Key) -> str:
    return cursor_of([sort, *(part.hex() if isinstance(part, bytes) else part for part in key)])


def _after(cursor: str | None, sort: str) -> Key | None:
    """Return the key of a cursor. Raises Problem if it is not one of this list."""
    kinds = checkpoints.kinds_of(Sort(sort.removeprefix("-")))
    key = key_of(cursor, str, *(str if kind is bytes else int for kind in kinds))
    if key is None:
        return None
    if key[0] != sort:
        raise Problem(
            ProblemCode.INVALID_CURSOR, "cursor: it is one of another order: begin without a cursor"
        )
    return tuple(_value(kind, part) for kind, part in zip(kinds, key[1:], strict=True))


def _value(kind: type, value: Any) -> Any:
    with suppress(ValueError):
        if kind is bytes:
            return bytes.fromhex(value)
        if abs(value) <= INTEGER_MAX:
            return value
    raise Problem(
        ProblemCode.INVALID_CURSOR, "cursor: it is not one of this list: begin without a cursor"
    )


@router.delete("/{ino}", responses=describe(403, 404, 409, 412, 503))
def delete_checkpoint(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    ino: Ino,
    force: Annotated[
        bool, Query(description="Although a deletion guard keeps it: see the detail of the 409.")
    ] = False,
    reason: Annotated[
        str, Query(max_length=1000, description="Why, for other people."), Storable
    ] = deletion.BY_HAND,
    if_match: IfMatch = None,
) -> Deleted:
    """Put a whole checkpoint into the trash, from where it can be taken back for a while.

    The deletion guards hold: it must be complete, not promoted, and a newer one of its run must
    be durable. `force` overrides these. What is pinned or being promoted stays in any case, and so
    does a checkpoint with a file that is open for writing.
    """
    checkpoint = _found(gateway, ino)
    call.before = checkpoint
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
    call.after = made = Deleted(trash_id, checkpoint.path)
    return made


def _found(gateway: GovernedGateway, ino: int) -> OneCheckpoint:
    with gateway.database.reading() as session:
        return read_one(gateway, session, ino)


runs_router = APIRouter(prefix="/runs", tags=["checkpoints"])


@runs_router.get("", responses=describe(400, 503))
def list_runs(
    gateway: Governed,
    _viewer: Viewer,
    run: RunQuery = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[Run]:
    """List the runs by name, each with its recovery point."""
    key = key_of(cursor, str)
    after = None if key is None else bytes_of(key[0])
    with gateway.database.reading() as session:
        risks, waiting = measure(session), checkpoints.waiting_bytes(session)
    if run is not None:
        risks = [risk for risk in risks if risk.run == bytes_of(run)]
    rest = [risk for risk in risks if after is None or risk.run > after]
    shown = rest[:limit]
    return Page(
        items=checkpoints.models(gateway.settings, shown, waiting),
        next=cursor_of([text_of(shown[-1].run)]) if len(rest) > limit else None,
    )
