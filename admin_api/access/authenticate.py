"""Finds out who sends a request: by a bearer token, or by the cookie of a session."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from admin_api import calls
from admin_api.access import sessions
from admin_api.access.principal import Principal
from admin_api.access.refusals import CHALLENGE, refused_token
from admin_api.access.tokens import MustWait, Refused
from admin_api.calls import SAFE, Recorded
from admin_api.gateway import Governed
from admin_api.problems import Problem

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")

_BEARER = HTTPBearer(auto_error=False, scheme_name="token", description="spillway token create")
_COOKIE = APIKeyCookie(
    name=sessions.COOKIE,
    auto_error=False,
    scheme_name="session",
    description=f"POST /login. Calls that change something also need {sessions.CSRF_HEADER}.",
)


async def _csrf_sent(request: Request) -> str | None:
    """Return the CSRF token that came with a request, in the header or in a form."""
    if request.method in SAFE or sessions.COOKIE not in request.cookies:
        return None
    if (sent := request.headers.get(sessions.CSRF_HEADER)) is not None:
        return sent
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() in _FORMS:
        field = (await request.form()).get(sessions.CSRF_FIELD)
        return field if isinstance(field, str) else None
    return None


def authenticate(
    request: Request,
    gateway: Governed,
    call: Recorded,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
    cookie: Annotated[str | None, Security(_COOKIE)],
    csrf: Annotated[str | None, Depends(_csrf_sent)],
) -> Principal:
    """Return who sends a request. Raises Problem without a token or a session that is valid."""
    if bearer is not None:
        try:
            return gateway.verifier.verify(bearer.credentials, call.address)
        except (Refused, MustWait) as exc:
            raise refused_token(gateway, call, exc) from None
    if cookie is not None:
        return sessions.principal_of(gateway, request, call, csrf)
    raise Problem(401, "a token is needed: spillway token create", CHALLENGE)


async def sender(request: Request) -> Principal:
    """Return who sends a request whose body cannot be read. Raises Problem."""
    bearer, cookie = await _BEARER(request), await _COOKIE(request)
    csrf = request.headers.get(sessions.CSRF_HEADER)
    gateway, call = request.app.state.gateway, calls.current(request)
    return await run_in_threadpool(authenticate, request, gateway, call, bearer, cookie, csrf)
