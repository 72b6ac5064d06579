"""Tokens: make, list, revoke."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import Field

from admin_api.access.roles import Admin
from admin_api.access.tokens import LIFE_SECONDS, LIFE_SECONDS_MAX, LocalTokens
from admin_api.calls import Recorded
from admin_api.gateway import Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.problems import describe
from admin_api.shapes import Body
from admin_api.store import tokens
from gateway.control.tokens import MadeToken, TokenInfo

router = APIRouter(prefix="/tokens", tags=["tokens"])

TokenId = Annotated[str, Path(max_length=100, description="`id`.", examples=["0123456789ab"])]


class NewToken(Body):
    """A token that is to be made."""

    name: str = Field(min_length=1, max_length=100, examples=["ci"])
    role: Literal["viewer", "operator", "admin"]
    expires_seconds: int | None = Field(
        LIFE_SECONDS, ge=1, le=LIFE_SECONDS_MAX, examples=[2_592_000]
    )
    """null: it does not expire."""


@router.get("")
def every(
    gateway: Governed, _who: Admin, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[TokenInfo]:
    """List the tokens, also those that ended, the oldest first."""
    after = key_of(cursor, int, str)
    with gateway.store.reading() as session:
        found = tokens.every(session)
    left = [one for one in found if after is None or [one.created_ns, one.id] > after]
    shown_ones = left[:limit]
    is_last = len(left) <= limit
    last = None if is_last else cursor_of([shown_ones[-1].created_ns, shown_ones[-1].id])
    return Page(items=[tokens.model(one) for one in shown_ones], next=last)


@router.post("", status_code=201)
def create(wanted: NewToken, gateway: Governed, who: Admin, call: Recorded) -> MadeToken:
    """Make a token. A repetition with the same Idempotency-Key does not show its secret again."""
    call.keeps_answer = False
    local = LocalTokens(gateway.store, who.name)
    made = local.create(wanted.name, wanted.role, wanted.expires_seconds)
    call.after = made.token
    return made


@router.get("/{token_id}", responses=describe(404))
def one(token_id: TokenId, gateway: Governed, who: Admin) -> TokenInfo:
    """Return one token."""
    return LocalTokens(gateway.store, who.name).get(token_id)


@router.delete("/{token_id}", responses=describe(404))
def revoke(token_id: TokenId, gateway: Governed, who: Admin, call: Recorded) -> TokenInfo:
    """End a token and its sessions at once."""
    local = LocalTokens(gateway.store, who.name)
    call.before = local.get(token_id)
    call.after = ended = local.revoke(token_id)
    return ended
