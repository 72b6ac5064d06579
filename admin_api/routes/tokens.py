"""Routes of tokens (make, list, revoke) and of sessions (log in, log out, who one is)."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from admin_api.access import sessions, tokens
from admin_api.access.authentication import Admin, Viewer
from admin_api.access.principal import Principal
from admin_api.access.tokens import LIFE_SECONDS, LIFE_SECONDS_MAX, LocalTokens
from admin_api.audit import Recorded
from admin_api.problems import describe
from admin_api.requests import LIMIT, Body, Cursor, Governed, Limit, Page, cursor_of, key_of
from gateway.service.tokens import MadeToken, TokenInfo

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
def list_tokens(
    gateway: Governed, _who: Admin, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[TokenInfo]:
    """List the tokens, also those that ended, the oldest first."""
    after = key_of(cursor, int, str)
    with gateway.store.reading() as session:
        rows = tokens.every(session)
    left = [row for row in rows if after is None or [row.created_ns, row.id] > after]
    shown_ones = left[:limit]
    is_last = len(left) <= limit
    last = None if is_last else cursor_of([shown_ones[-1].created_ns, shown_ones[-1].id])
    return Page(items=[tokens.model(shown_one) for shown_one in shown_ones], next=last)


@router.post("", status_code=201)
def create_token(wanted: NewToken, gateway: Governed, who: Admin, call: Recorded) -> MadeToken:
    """Make a token. A repetition with the same Idempotency-Key does not show its secret again."""
    call.keeps_answer = False
    local = LocalTokens(gateway.store, who.name)
    made = local.create(wanted.name, wanted.role, wanted.expires_seconds)
    call.after = made.token
    return made


@router.get("/{token_id}", responses=describe(404))
def read_token(token_id: TokenId, gateway: Governed, who: Admin) -> TokenInfo:
    """Return one token."""
    return LocalTokens(gateway.store, who.name).get(token_id)


@router.delete("/{token_id}", responses=describe(404))
def revoke_token(token_id: TokenId, gateway: Governed, who: Admin, call: Recorded) -> TokenInfo:
    """End a token and its sessions at once."""
    local = LocalTokens(gateway.store, who.name)
    call.before = local.get(token_id)
    call.after = ended = local.revoke(token_id)
    return ended


session_router = APIRouter(tags=["session"])


class LoginBody(Body):
    """What a person logs in with."""

    token: str = Field(min_length=1, max_length=200, examples=["spw_0123456789ab_..."])


class Whoami(BaseModel):
    """The caller, whose token or session was verified."""

    name: str
    role: str = Field(examples=["operator"])
    token_id: str
    csrf_token: str | None = None
    """The header X-CSRF-Token of calls that change something. None: there is no cookie."""


@session_router.post("/login", responses=describe(401, 429))
def log_in(credentials: LoginBody, gateway: Governed, call: Recorded, response: Response) -> Whoami:
    """Open a session of the pages. The answer sets its cookie."""
    opened = sessions.log_in(gateway, call, credentials.token)
    sessions.set_cookie(gateway, response, opened)
    return _whoami(opened.principal, sessions.csrf_from(opened.secret))


@session_router.post("/logout", status_code=204)
def log_out(gateway: Governed, request: Request, response: Response, _who: Viewer) -> None:
    """End the session whose cookie the request has. A token stays valid."""
    sessions.log_out(gateway, request, response)


@session_router.get("/session")
def read_session(request: Request, who: Viewer) -> Whoami:
    """Return who sends the request."""
    return _whoami(who, sessions.csrf_of(request) or None)


def _whoami(who: Principal, csrf: str | None) -> Whoami:
    return Whoami(name=who.name, role=who.role.word, token_id=who.token_id, csrf_token=csrf)
