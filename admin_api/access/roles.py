"""The parameter by which each route says which role it needs.

Each unsafe call of such a route is recorded (admin_api.calls).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends

from admin_api import calls
from admin_api.access.authenticate import authenticate
from admin_api.access.principal import Principal, Role
from admin_api.access.refusals import refusal
from admin_api.calls import Recorded
from admin_api.gateway import Governed

_ROLES: dict[Callable[..., Any], Role] = {}
"""The role that each of the functions below requires."""


def _require(role: Role) -> Callable[..., Principal]:
    def required(
        principal: Annotated[Principal, Depends(authenticate)], gateway: Governed, call: Recorded
    ) -> Principal:
        call.principal = principal
        if principal.role < role:
            raise refusal(
                gateway,
                call,
                403,
                f"this needs the role {role.word}, and {principal.name} has "
                f"{principal.role.word}: use another token",
            )
        if call.is_unsafe:
            calls.begin(gateway, call, principal)
        return principal

    _ROLES[required] = role
    return required


Viewer = Annotated[Principal, Depends(_require(Role.VIEWER))]
Operator = Annotated[Principal, Depends(_require(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(_require(Role.ADMIN))]


def role_of(dependencies: Any) -> Role | None:
    """Return the role that a route needs, or None if it needs none.

    Parameters: dependencies, ``APIRoute.dependant``.
    """
    found = [_ROLES[one.call] for one in dependencies.dependencies if one.call in _ROLES]
    return max(found, default=None)
