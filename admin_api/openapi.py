"""OpenAPI document: refusals and headers of every route, and examples of bodies and answers.

It is made from the routes, so a route cannot forget it. A field's own example comes first. Fields
that mean the same everywhere have theirs here, by name.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute, iter_route_contexts

from admin_api import audit, problems
from admin_api.access.authentication import Viewer, role_of
from admin_api.access.principal import Role
from gateway.common import clock

Schema = dict[str, Any]

MISSING = "..."
"""A text of which nothing says what it may be. A test finds it."""
_MOMENT_NS = 1_795_426_200 * clock.NS
_MOMENT = clock.rfc3339(_MOMENT_NS)
_STEP = "/checkpoints/jobs/llama-7b/step-1200"
_BY_NAME: dict[str, Any] = {
    "address": "10.0.0.7",
    "alive": True,
    "arguments": {"paths": [_STEP]},
    "asked_by": "ci",
    "author": "ci",
    "before": None,
    "after": None,
    "bucket": "checkpoints",
    "bytes": 64 << 30,
    "by": "ci",
    "catalogue_is_made": True,
    "changed_by": "ci",
    "checksum": "crc64nvme",
    "columns": ["time", "dirty_bytes"],
    "config": "/etc/spillway/spillway.toml",
    "created_by": "ci",
    "data_dir": "/var/lib/spillway",
    "default": 4,
    "doc": "How many files are uploaded at once.",
    "drain": None,
    "dropped_readers": [],
    "enabled": True,
    "ended_at": None,
    "endpoint_url": "https://s3.example",
    "error": None,
    "etag": "9a0364b9e99bb480dd25e1f0284c8555",
    "evict_from": 0.8,
    "evict_to": 0.7,
    "evidence": "5f0c61b2a9d3e874",
    "expiring_rules": [],
    "gid": 1000,
    "healthy": True,
    "ino": 4711,
    "is_well": True,
    "key": "jobs/llama-7b/step-1200/model.pt",
    "last_exit": "",
    "name": "ci",
    "names": 1,
    "note": "the best by MMLU",
    "object_lock": "off",
    "path": _STEP,
    "paths": [_STEP],
    "pid": 4242,
    "pinned_by": "ci",
    "plan": "6f1c0a5e9b42",
    "prefix": "production/",
    "problem": None,
    "promotions": {"done": 1, "failed": 0},
    "reachable": True,
    "reason": "it is not among the newest 3",
    "request_id": "0123456789abcdef0123456789abcdef",
    "result": None,
    "revoked_at": None,
    "rows": [[_MOMENT, 1 << 30]],
    "run": "jobs/llama-7b",
    "served": True,
    "status": 200,
    "step": 1200,
    "token_id": "0123456789ab",
    "transition_rules": [],
    "uid": 1000,
    "unfinished_uploads": "aborted after 7 days",
    "unused_policies": [],
    "valid": True,
    "value": 8,
    "versioning": "off",
}


def of(schema: Schema, schemas: dict[str, Schema], name: str = "") -> Any:
    """Return an example of what fits a JSON schema.

    Args:
        schemas: those that it may refer to.
        name: name of the field that has it.
    """
    if "$ref" in schema:
        return of(schemas[schema["$ref"].rpartition("/")[2]], schemas, name)
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    if "const" in schema:
        return schema["const"]
    if name in _BY_NAME and _fits(_BY_NAME[name], schema):
        return _BY_NAME[name]
    if (default := schema.get("default")) is not None:
        return default
    if "anyOf" in schema:
        first = of(schema["anyOf"][0], schemas, name)
        # What may be null and is not known has no better example than null.
        return None if first == MISSING else first
    return _of_type(schema, schemas, name)


def _of_type(schema: Schema, schemas: dict[str, Schema], name: str) -> Any:
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {})
        if isinstance(values := schema.get("additionalProperties"), dict):
            fields = {"drain": values}
        return {field: of(field_type, schemas, field) for field, field_type in fields.items()}
    if kind == "array":
        return [of(schema.get("items", {}), schemas, name)]
    if kind in ("integer", "number"):
        number = 3 << 30 if name.endswith("bytes") else 3
        return min(number, schema.get("maximum", number))
    if kind == "boolean":
        return False
    if kind == "string":
        return _MOMENT if schema.get("format") == "date-time" else MISSING
    return None


def _fits(value: Any, schema: Schema) -> bool:
    """Return whether a value has the type that a schema asks for."""
    kinds = {option.get("type") for option in schema.get("anyOf", [schema])}
    is_of = {
        "null": value is None,
        "string": isinstance(value, str),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
        "boolean": isinstance(value, bool),
        None: True,
    }
    return any(is_of.get(kind, False) for kind in kinds)


router = APIRouter()

_ANY = (421, 503)
_REFUSALS = (401, 403, 429)
"""The refusals of a route that needs a role."""
_UNSAFE = (409,)
_KEY = {
    "name": audit.KEY,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": f"^[ -~]{{1,{audit.KEY_MAX}}}$"},
    "example": "4f1c2d7e-save-policy",
    "description": "A repetition of this request with the same key gets the same answer, for a "
    "day. It is not done twice.",
}


@router.get("/openapi.json", include_in_schema=False)
def description(request: Request, _who: Viewer) -> dict[str, Any]:
    """Return the description of the API."""
    app: FastAPI = request.app
    return app.openapi()


def operation_id(route: APIRoute) -> str:
    """Return the name of an operation, of which programs make methods: that of its function."""
    return route.name


def complete(app: FastAPI) -> None:
    """Have the description of an application name what all of its routes have."""
    plain = app.openapi

    def completed() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            # Every route refers to it, and none has it as its model.
            schemas = document["components"]["schemas"]
            problems.describe_details(schemas)
            for route in iter_route_contexts(app.routes):
                dependencies = getattr(route, "dependant", None)
                for method in route.methods or () if dependencies else ():
                    operation = document["paths"].get(route.path_format, {}).get(method.lower())
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
    is_recorded = role is not None and role > Role.VIEWER and method not in audit.SAFE
    if is_recorded:
        statuses += _UNSAFE
        operation.setdefault("parameters", []).append(_KEY)
    if any(parameter["name"] == "cursor" for parameter in operation.get("parameters", ())):
        statuses.append(400)
    if "requestBody" in operation:
        statuses += (413, 415)
    for status, text in problems.describe(*statuses).items():
        operation["responses"].setdefault(str(status), text)


def _show_examples(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Show an example of the body, and of the answer if all goes well."""
    done = [
        response for status, response in operation["responses"].items() if status.startswith("2")
    ]
    for described in (operation.get("requestBody", {}), *done):
        for content in described.get("content", {}).values():
            if "example" not in content:
                content["example"] = of(content.get("schema", {}), schemas)
