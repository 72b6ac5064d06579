"""Completes the description of the API with what every route has: refusals, and headers.

It is made from the routes, so a route cannot forget it.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request

from admin_api import calls, problems
from admin_api.access.roles import Viewer

router = APIRouter()

_REFUSALS = (401, 403, 421, 429)
"""Of a route that needs a role."""
_UNSAFE = (409, 413)
_KEY = {
    "name": calls.KEY,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": calls.KEY_MAX},
    "description": "A repetition of this request with the same key gets the same answer, for a "
    "day. It is not done twice.",
}


@router.get("/openapi.json", include_in_schema=False)
def description(request: Request, _who: Viewer) -> dict[str, Any]:
    """Return the description of the API."""
    app: FastAPI = request.app
    return app.openapi()


def complete(app: FastAPI) -> None:
    """Have the description of an application name what all of its routes have."""
    plain = app.openapi

    def completed() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = plain()
            for path in found["paths"].values():
                for method, operation in path.items():
                    _complete(method.upper(), operation)
        return app.openapi_schema or {}

    app.openapi = completed  # type: ignore[method-assign]


def _complete(method: str, operation: dict[str, Any]) -> None:
    needs_role = "security" in operation
    is_recorded = needs_role and method not in calls.SAFE
    statuses = [*(_REFUSALS if needs_role else (421,)), 503]
    if is_recorded:
        statuses += _UNSAFE
        operation.setdefault("parameters", []).append(_KEY)
    for status, text in problems.describe(*statuses).items():
        operation["responses"].setdefault(str(status), text)
