"""The calls that commands make of another gateway are operations that its admin API describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from admin_api.problems import ProblemCode
from gateway.cli import api, client
from gateway.cli.api import PREFIX, UNKNOWN_ROUTE, ApiCall
from gateway.common.models import json_name
from tests.support.adminsite import admin_site

CALLS = [
    one for module in (client, api) for one in vars(module).values() if isinstance(one, ApiCall)
]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with admin_site(tmp_path_factory.mktemp("admin")) as site:
        openapi: dict[str, Any] = site.app.openapi()
        yield openapi


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_call_is_an_operation(described: dict[str, Any], call: ApiCall[Any]) -> None:
    operation = described["paths"][f"{PREFIX}{call.path}"][call.method.lower()]
    [answer] = [
        response for status, response in operation["responses"].items() if status.startswith("2")
    ]
    if call.model is None:
        return
    schema = answer["content"]["application/json"]["schema"]
    names = {json_name(name) for name in call.model.__dataclass_fields__}
    assert answered(described, schema).keys() >= names


def test_the_code_that_the_client_knows_is_one_of_the_api() -> None:
    assert UNKNOWN_ROUTE == ProblemCode.UNKNOWN_ROUTE


def answered(described: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of what a call answers: of an item, if that is a list."""
    if "$ref" in schema:
        schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "array":
        return answered(described, schema["items"])
    properties: dict[str, Any] = schema["properties"]
    if properties.keys() == {"items", "next"}:
        return answered(described, properties["items"])
    return properties
