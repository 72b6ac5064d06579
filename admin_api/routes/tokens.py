"""Tokens: make, list, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from admin_api.access import tokens as made
from admin_api.access.principal import Role
from admin_api.access.roles import Admin
from admin_api.calls import Recorded
from admin_api.gateway import Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.problems import Problem, describe
from admin_api.shapes import Body
from admin_api.store import tokens
from admin_api.store.tokens import Token
from gateway import clock
from gateway.serialize import values_of
from gateway.text import shown

router = APIRouter(prefix="/tokens", tags=["tokens"])

TokenId = Annotated[str, Path(max_length=100, description="`id`.", examples=["0123456789ab"])]


class TokenFacts(BaseModel):
    """A token, without its secret."""

    id: str = Field(examples=["0123456789ab"])
    name: str = Field(examples=["ci"])
    role: Literal["viewer", "operator", "admin"]
    state: Literal["valid", "expired", "revoked"]
    created: datetime
    created_by: str
    expires: datetime | None
    last_used: datetime | None
    """The last use, to the minute."""
    revoked: datetime | None


class NewToken(Body):
    """A token that is to be made."""

    name: str = Field(min_length=1, max_length=100, examples=["ci"])
    role: Literal["viewer", "operator", "admin"]
    expires_seconds: int | None = Field(
        made.LIFE_SECONDS, ge=1, le=made.LIFE_SECONDS_MAX, examples=[2_592_000]
    )
    """null: it does not expire."""


class MadeToken(BaseModel):
    """A token that was just made."""

    token: TokenFacts
    secret: str = Field(examples=["spw_0123456789ab_..."])
    """What its owner sends. It is shown this once."""


@router.get("")
def every(
    gateway: Governed, _who: Admin, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[TokenFacts]:
    """List the tokens, also those that ended, the oldest first."""
    after = key_of(cursor, int, str)
    with gateway.store.reading() as session:
        found = tokens.every(session)
    left = [one for one in found if after is None or [one.created_ns, one.id] > after]
    shown_ones = left[:limit]
    is_last = len(left) <= limit
    last = None if is_last else cursor_of([shown_ones[-1].created_ns, shown_ones[-1].id])
    return Page(items=[_facts(one) for one in shown_ones], next=last)


@router.post("", status_code=201)
def create(wanted: NewToken, gateway: Governed, who: Admin, call: Recorded) -> MadeToken:
    """Make a token. A repetition with the same Idempotency-Key does not show its secret again."""
    call.keeps_answer = False
    seconds = wanted.expires_seconds
    expires_ns = None if seconds is None else clock.now_ns() + seconds * clock.NS
    role = Role[wanted.role.upper()]
    with gateway.store.writing() as session:
        token, secret = made.create(session, shown(wanted.name), role, expires_ns, who.name)
    facts = _facts(token)
    call.after = facts
    return MadeToken(token=facts, secret=secret)


@router.get("/{token_id}", responses=describe(404))
def one(token_id: TokenId, gateway: Governed, _who: Admin) -> TokenFacts:
    """Return one token."""
    with gateway.store.reading() as session:
        return _facts(_found(tokens.find(session, token_id)))


@router.delete("/{token_id}", responses=describe(404))
def revoke(token_id: TokenId, gateway: Governed, _who: Admin, call: Recorded) -> TokenFacts:
    """End a token and its sessions at once."""
    with gateway.store.writing() as session:
        before = _found(tokens.find(session, token_id))
        after = _found(tokens.revoke(session, token_id, clock.now_ns()))
    call.before, call.after = _facts(before), _facts(after)
    return _facts(after)


def _found(token: Token | None) -> Token:
    if token is None:
        raise Problem(404, "there is no such token: see the list of tokens")
    return token


def _facts(token: Token) -> TokenFacts:
    return TokenFacts.model_validate(values_of(tokens.model(token)))
