"""The description of the API is complete: each operation, its bodies, answers and examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from pydantic import TypeAdapter

from admin_api import openapi, problems
from admin_api.access.authentication import role_of
from admin_api.problems import ProblemCode
from tests.support.adminsite import AdminSite, admin_site

VERBS = """
approve cancel check confirm create delete disable empty enable evict list log make preview read
release reload remove rename replace retry revoke set stream test undelete validate wait warm
"""
METHODS = ("get", "put", "post", "delete", "patch")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminSite]:
    with admin_site(tmp_path_factory.mktemp("admin")) as made:
        yield made


def operations(site: AdminSite) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield each operation: its name, its route, and its description."""
    described = site.http.get("openapi.json").json()
    for route in iter_route_contexts(site.app.routes):
        path = described["paths"].get(route.path_format, {})
        for method in route.methods or ():
            if method.lower() in path:
                yield f"{method} {route.path}", route, path[method.lower()]


def example_in(content: dict[str, Any]) -> Any:
    [one] = content.values()
    return one["example"]


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from texts_in(one)


def test_each_operation_is_described_with_examples_that_are_valid(site: AdminSite) -> None:
    every = list(operations(site))
    described = site.http.get("openapi.json").json()["paths"]
    assert len(every) == sum(len(one) for one in described.values()) > 50
    for name, route, operation in every:
        assert operation["summary"] and operation.get("description"), name
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description") or parameter["schema"].get("title"), (
                name,
                parameter["name"],
            )
        if "requestBody" in operation:
            sent = example_in(operation["requestBody"]["content"])
            [body] = route.dependant.body_params
            _value, errors = body.validate(sent, {}, loc=("body",))
            assert not errors, (name, sent, errors)
            assert openapi.MISSING not in texts_in(sent), (name, sent)
        [done] = [
            response for status, response in operation["responses"].items() if status[0] == "2"
        ]
        if route.status_code == 204:
            assert "content" not in done, name
            continue
        shown = example_in(done["content"])
        assert openapi.MISSING not in texts_in(shown), (name, shown)
        if route.response_field is not None:
            TypeAdapter(route.response_model).validate_json(json.dumps(shown))


def test_what_it_refers_to_is_there(site: AdminSite) -> None:
    text = site.http.get("openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]
    named = set(re.findall(r'"\$ref": ?"#/components/schemas/([^"]+)"', text))
    assert named <= set(schemas) and problems.ProblemDetails.__name__ in named


def test_the_name_of_an_operation_is_a_verb_and_a_noun(site: AdminSite) -> None:
    names = [operation["operationId"] for _name, _route, operation in operations(site)]
    assert len(names) == len(set(names))
    pattern = re.compile(rf"({'|'.join(VERBS.split())})(_[a-z]+)+")
    assert [name for name in names if not pattern.fullmatch(name)] == []
    assert {"list_checkpoints", "delete_checkpoint", "read_metrics"} <= set(names)


def test_the_codes_of_problems_are_documented(site: AdminSite) -> None:
    schemas = site.http.get("openapi.json").json()["components"]["schemas"]
    assert schemas["ProblemCode"]["enum"] == [*ProblemCode]
    for code in ProblemCode:
        assert (
            f"- `{code}` ({code.status}): {code.meaning}" in schemas["ProblemCode"]["description"]
        )


def test_each_operation_declares_its_problems(site: AdminSite) -> None:
    for name, route, operation in operations(site):
        answers = operation["responses"]
        wanted = {"421", "422", "503"}
        if role_of(route.dependant) is not None:
            wanted |= {"401", "403", "429"}
        if "requestBody" in operation:
            wanted |= {"413", "415"}
        assert wanted <= set(answers), name
        for status, answer in answers.items():
            if status[0] != "2":
                assert list(answer["content"]) == [problems.MEDIA_TYPE], (name, status)
                example = problems.ProblemDetails(**example_in(answer["content"]))
                assert (example.status, example.code.status) == (int(status), int(status))


def test_all_errors_are_problems(site: AdminSite) -> None:
    http = site.http
    answers = {
        ProblemCode.UNKNOWN_ROUTE: http.get("nothing"),
        ProblemCode.MISSING_RESOURCE: http.get("files", params={"path": "nothing"}),
        ProblemCode.UNSUPPORTED_METHOD: http.patch("status"),
        ProblemCode.UNSUPPORTED_MEDIA_TYPE: http.post(
            "pins", content=b"a=1", headers={"Content-Type": "text/plain"}
        ),
        ProblemCode.INVALID_REQUEST: http.get("files"),
        ProblemCode.OVERSIZED_BODY: http.post("pins", json={"path": "/" + "x" * 2_000_000}),
        ProblemCode.INVALID_CURSOR: http.get("pins", params={"cursor": "x"}),
    }
    with pytest.MonkeyPatch.context() as asked:
        asked.setattr(site.app, "dependency_overrides", {})  # each request says who sends it
        answers[ProblemCode.MISSING_TOKEN] = httpx.get(f"{http.base_url}pins")
        wrong = {"Authorization": "Bearer x"}
        answers[ProblemCode.INVALID_TOKEN] = http.get("pins", headers=wrong)
    for code, response in answers.items():
        assert response.status_code == code.status, response.text
        assert response.headers["content-type"] == problems.MEDIA_TYPE
        details = problems.ProblemDetails(**response.json())
        assert (details.code, details.type) == (code, f"urn:spillway:problem:{code}")
        assert (details.status, details.instance) == (code.status, response.headers["x-request-id"])
        assert details.detail and details.title
    assert answers[ProblemCode.UNSUPPORTED_METHOD].headers["allow"] == "GET"
