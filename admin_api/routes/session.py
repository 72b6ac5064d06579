"""Log in with a token, log out, and see who one is."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from admin_api.access import sessions
from admin_api.access.principal import Principal
from admin_api.access.roles import Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Governed
from admin_api.problems import describe
from admin_api.shapes import Body

router = APIRouter(tags=["session"])


class Credentials(Body):
    """What a person logs in with."""

    token: str = Field(min_length=1, max_length=200, examples=["spw_0123456789ab_..."])


class Whoami(BaseModel):
    """The caller, whose token or session was verified."""

    name: str
    role: str = Field(examples=["operator"])
    token_id: str
    csrf_token: str | None = None
    """The header X-CSRF-Token of calls that change something. None: there is no cookie."""


@router.post("/login", responses=describe(401, 429))
def login(
    credentials: Credentials, gateway: Governed, call: Recorded, response: Response
) -> Whoami:
    """Open a session of the pages. The answer sets its cookie."""
    opened = sessions.log_in(gateway, call, credentials.token)
    sessions.set_cookie(gateway, response, opened)
    return _whoami(opened.principal, sessions.csrf_from(opened.secret))


@router.post("/logout", status_code=204)
def logout(gateway: Governed, request: Request, response: Response, _who: Viewer) -> None:
    """End the session whose cookie the request has. A token stays valid."""
    sessions.log_out(gateway, request, response)


@router.get("/session")
def whoami(request: Request, who: Viewer) -> Whoami:
    """Return who sends the request."""
    return _whoami(who, sessions.csrf_of(request) or None)


def _whoami(who: Principal, csrf: str | None) -> Whoami:
    return Whoami(name=who.name, role=who.role.word, token_id=who.token_id, csrf_token=csrf)
