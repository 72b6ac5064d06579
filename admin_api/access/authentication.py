"""Authentication of requests, by a bearer token or the cookie of a session, and roles of routes.

A parameter of each route says which role it needs; each unsafe call of such a route is recorded
(admin_api.audit). Answers that last, like streams of events, ask again whether a caller who was let
in may stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from admin_api import audit
from admin_api.access import sessions, tokens
from admin_api.access.principal import Principal, Role
from admin_api.access.sessions import CHALLENGE, refusal, refused_token
from admin_api.access.tokens import InvalidToken, MustWait
from admin_api.audit import SAFE, Recorded, RequestRecord, current
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import Governed, GovernedGateway
from gateway.common.errors import NamespaceError

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
        except (InvalidToken, MustWait) as exc:
            raise refused_token(gateway, call, exc) from None
    if cookie is not None:
        return sessions.principal_of(gateway, request, call, csrf)
    raise Problem(ProblemCode.MISSING_TOKEN, "a token is needed: spillway token create", CHALLENGE)


async def sender(request: Request) -> Principal:
    """Return who sends a request whose body cannot be read. Raises Problem."""
    bearer, cookie = await _BEARER(request), await _COOKIE(request)
    csrf = request.headers.get(sessions.CSRF_HEADER)
    gateway, call = request.app.state.gateway, audit.current(request)
    return await run_in_threadpool(authenticate, request, gateway, call, bearer, cookie, csrf)


CHECK_SECONDS = 5.0
"""A token or session that has ended ends its streams after so long."""


def lasts(gateway: GovernedGateway, request: Request, principal: Principal) -> bool:
    """Return whether the token or the session of a request is still valid.

    While that cannot be read, it counts as valid: the next look decides.
    """
    try:
        if "authorization" not in request.headers and sessions.COOKIE in request.cookies:
            return sessions.is_open(gateway, request.cookies[sessions.COOKIE])
        with gateway.store.reading() as session:
            token = tokens.find(session, principal.token_id)
        if token is None:
            return False
        gateway.verifier.principal(token)
    except InvalidToken:
        return False
    except NamespaceError:
        return True
    return True


_ROLES: dict[Callable[..., Any], Role] = {}
"""The role that each of the functions below requires."""


def _allow(role: Role, principal: Principal, gateway: GovernedGateway, call: RequestRecord) -> None:
    """Raise Problem unless a caller has a role."""
    call.principal = principal
    if principal.role < role:
        raise refusal(
            gateway,
            call,
            ProblemCode.INSUFFICIENT_ROLE,
            f"this needs the role {role.word}, and {principal.name} has "
            f"{principal.role.word}: use another token",
        )


def _require(role: Role) -> Callable[..., Principal]:
    def required(
        principal: Annotated[Principal, Depends(authenticate)], gateway: Governed, call: Recorded
    ) -> Principal:
        _allow(role, principal, gateway, call)
        # What a viewer may send changes nothing (a plan, a check), and would fill the disk.
        if call.is_unsafe and role > Role.VIEWER:
            audit.begin(gateway, call, principal)
        return principal

    _ROLES[required] = role
    return required


Viewer = Annotated[Principal, Depends(_require(Role.VIEWER))]
Operator = Annotated[Principal, Depends(_require(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(_require(Role.ADMIN))]


async def require_sender(request: Request) -> None:
    """Raise Problem unless the sender of a request may call its route.

    FastAPI reads a body before it looks who sent it. A body that it cannot read must not answer
    before the role does: else anybody could try out bodies.
    """
    call = current(request)
    dependencies = getattr(request.scope.get("route"), "dependant", None)
    role = None if dependencies is None else role_of(dependencies)
    if role is not None and call.principal is None:
        principal = await sender(request)
        await run_in_threadpool(_allow, role, principal, request.app.state.gateway, call)


def role_of(dependencies: Any) -> Role | None:
    """Return the role that a route needs, or None if it needs none.

    Args:
        dependencies: ``APIRoute.dependant``.
    """
    roles = [
        _ROLES[dependency.call]
        for dependency in dependencies.dependencies
        if dependency.call in _ROLES
    ]
    return max(roles, default=None)
