"""The parameter by which each route says which role it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends

from admin_api.access.authenticate import authenticate
from admin_api.access.principal import Principal, Role
from admin_api.problems import Problem


def _require(role: Role) -> Callable[[Principal], Principal]:
    def required(principal: Annotated[Principal, Depends(authenticate)]) -> Principal:
        if principal.role < role:
            raise Problem(
                403,
                f"this needs the role {role.name.lower()}, and {principal.name} has "
                f"{principal.role.name.lower()}: use another token",
            )
        return principal

    return required


Viewer = Annotated[Principal, Depends(_require(Role.VIEWER))]
Operator = Annotated[Principal, Depends(_require(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(_require(Role.ADMIN))]
