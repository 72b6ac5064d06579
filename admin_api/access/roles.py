"""The parameter by which each route says which role it needs.

Each unsafe call of such a route is recorded (admin_api.calls).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from admin_api import calls
from admin_api.access.authenticate import authenticate, sender
from admin_api.access.principal import Principal, Role
from admin_api.access.refusals import refusal
from admin_api.calls import Call, Recorded, current
from admin_api.gateway import Gateway, Governed

_ROLES: dict[Callable[..., Any], Role] = {}
"""The role that each of the functions below requires."""


def _allow(role: Role, principal: Principal, gateway: Gateway, call: Call) -> None:
    """Raise Problem unless a caller has a role."""
    call.principal = principal
    if principal.role < role:
        raise refusal(
            gateway,
            call,
            403,
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
            calls.begin(gateway, call, principal)
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
        found = await sender(request)
        await run_in_threadpool(_allow, role, found, request.app.state.gateway, call)


def role_of(dependencies: Any) -> Role | None:
    """Return the role that a route needs, or None if it needs none.

    Parameters: dependencies, ``APIRoute.dependant``.
    """
    found = [_ROLES[one.call] for one in dependencies.dependencies if one.call in _ROLES]
    return max(found, default=None)
