"""Routes of promotions: copies of checkpoints that only a person removes."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from admin_api.access.authentication import Admin, Operator, Viewer
from admin_api.audit import Recorded
from admin_api.problems import describe
from admin_api.requests import (
    LIMIT,
    Body,
    Cursor,
    Governed,
    GovernedGateway,
    IfMatch,
    Limit,
    Note,
    Page,
    PathText,
    Storable,
    cursor_of,
    etag_of,
    key_of,
    require_match,
)
from gateway.db.compiled import Session
from gateway.lifecycle.promotion import store
from gateway.lifecycle.promotion.store import PromotionRow as Row
from gateway.lifecycle.promotion.store import options_of
from gateway.service import promotions as control
from gateway.service.paths import browsing, follow
from gateway.service.promotions import Promotion

router = APIRouter(prefix="/promotions", tags=["promotions"])

_NAME_MAX = 250
"""Bytes, and so no more characters: ``gateway.lifecycle.promotion.store`` has the last word."""
Name = Annotated[
    str, Path(min_length=1, max_length=_NAME_MAX, examples=["release-candidate"]), Storable
]
NewName = Annotated[
    str, Field(min_length=1, max_length=_NAME_MAX, examples=["release-candidate"]), Storable
]


class Promoting(Body):
    """A copy to be made of a checkpoint, or of any directory or file."""

    path: PathText
    name: NewName
    note: Note = ""
    legal_hold: bool = Field(False, description="No program deletes its objects (Object Lock).")
    tags: list[str] = Field(
        [], max_length=10, description="Tags of its objects.", examples=[["team=llm"]]
    )
    to: str | None = Field(
        None,
        max_length=1024,
        description="Its keys begin so, outside of the gateway's prefix.",
        examples=["models/released"],
    )


@router.get("", responses=describe(400, 503))
def list_promotions(
    gateway: Governed, _viewer: Viewer, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[Promotion]:
    """List the promotions, the oldest first."""
    key = key_of(cursor, int, str)
    with gateway.database.reading() as session:
        rest = [row for row in store.every(session) if key is None or _place(row) > key]
        shown = rest[:limit]
        items = [control.as_is(gateway.settings, session, row) for row in shown]
    return Page(items=items, next=cursor_of(_place(shown[-1])) if len(rest) > limit else None)


@router.post("", status_code=201, responses=describe(403, 404, 409, 503))
def create_promotion(
    gateway: Governed, call: Recorded, operator: Operator, body: Promoting, response: Response
) -> Promotion:
    """Promote a checkpoint, or any directory or file. Symbolic links are followed: those of the
    latest checkpoints lead to one.

    All of it must be in the bucket by now. The bucket copies, so nothing is uploaded again.
    """
    with browsing(gateway.settings) as browser:
        ino = follow(browser, gateway.settings, body.path).found().attr.ino
    options = options_of(gateway.settings.bucket.prefix, body.legal_hold, body.tags, body.to)
    made = control.promote(
        gateway.settings, gateway.database, ino, body.name, body.note, operator.name, options
    )
    response.headers["Location"] = f"/api/v1/promotions/{quote(made.name, safe='')}"
    with gateway.database.reading() as session:
        call.after = answer = _answer(gateway, session, made, response)
    return answer


@router.get("/{name}", responses=describe(404, 503))
def read_promotion(gateway: Governed, _viewer: Viewer, name: Name, response: Response) -> Promotion:
    """Read a promotion: how far it is, and what it was made of."""
    with gateway.database.reading() as session:
        return _answer(gateway, session, control.named(session, name), response)


@router.delete("/{name}", responses=describe(404, 412, 503))
def remove_promotion(
    gateway: Governed,
    call: Recorded,
    _admin: Admin,
    name: Name,
    response: Response,
    if_match: IfMatch = None,
    release_hold: Annotated[bool, Query(description="End its legal hold first.")] = False,
) -> Promotion:
    """Remove a copy, also from the bucket. What it was made of stays as it is.

    The answer has the state demoting. The gateway removes the copy within minutes: then it is not
    found any more.
    """
    with gateway.database.writing() as session:
        before = control.named(session, name)
        call.before = control.as_is(gateway.settings, session, before)
        if if_match is not None:
            require_match(if_match, control.version(before), call.before)
        after = store.demote(session, before, release_hold)
        call.after = answer = _answer(gateway, session, after, response)
        return answer


def _answer(gateway: GovernedGateway, session: Session, row: Row, response: Response) -> Promotion:
    promotion = control.as_is(gateway.settings, session, row)
    response.headers["ETag"] = etag_of(promotion.version)
    return promotion


def _place(row: Row) -> list[Any]:
    return [row.asked_ns, row.name]
