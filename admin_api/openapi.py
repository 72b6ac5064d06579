"""Completes the description of the API with what every route has: refusals, and headers.

It is made from the routes, so a route cannot forget it.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import iter_route_contexts

from admin_api import calls, examples, problems
from admin_api.access.principal import Role
from admin_api.access.roles import Viewer, role_of

router = APIRouter()

_ANY = (421, 503)
_REFUSALS = (401, 403, 429)
"""The refusals of a route that needs a role."""
_UNSAFE = (409,)
_KEY = {
    "name": calls.KEY,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": f"^[ -~]{{1,{calls.KEY_MAX}}}$"},
    "example": "4f1c2d7e-save-policy",
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
            # Every route refers to it, and none has it as its model.
            schemas = found["components"]["schemas"]
            schemas["ProblemDetails"] = problems.ProblemDetails.model_json_schema()
            for route in iter_route_contexts(app.routes):
                dependencies = getattr(route, "dependant", None)
                for method in route.methods or () if dependencies else ():
                    operation = found["paths"].get(route.path_format, {}).get(method.lower())
                    if operation is not None:
                        _complete(method, operation, role_of(dependencies))
                        _show_examples(operation, schemas)
        return app.openapi_schema or {}

    app.openapi = completed  # type: ignore[method-assign]


def _complete(method: str, operation: dict[str, Any], role: Role | None) -> None:
    statuses = [*_ANY]
    if role is not None:
        statuses += _REFUSALS
        needs = f"Needs the role {role.word}."
        operation["description"] = f"{operation.get('description', '')}\n\n{needs}".strip()
    is_recorded = role is not None and role > Role.VIEWER and method not in calls.SAFE
    if is_recorded:
        statuses += _UNSAFE
        operation.setdefault("parameters", []).append(_KEY)
    if any(one["name"] == "cursor" for one in operation.get("parameters", ())):
        statuses.append(400)
    if "requestBody" in operation:
        statuses += (413, 415)
    for status, text in problems.describe(*statuses).items():
        operation["responses"].setdefault(str(status), text)


def _show_examples(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Show an example of the body, and of the answer if all goes well."""
    done = [one for status, one in operation["responses"].items() if status.startswith("2")]
    for described in (operation.get("requestBody", {}), *done):
        for content in described.get("content", {}).values():
            if "example" not in content:
                content["example"] = examples.of(content.get("schema", {}), schemas)
