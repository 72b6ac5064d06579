"""What a request says and no route knows is refused: a misspelt guard must not be dropped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from admin_api.access.tokens import LIFE_SECONDS
from admin_api.requests import Body
from gateway.common import clock
from tests.support.adminsite import AdminSite, admin_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminSite]:
    with admin_site(tmp_path_factory.mktemp("strict")) as site:
        yield site


def test_each_body_of_the_api_refuses_what_it_does_not_declare(site: AdminSite) -> None:
    found = set()
    for route in iter_route_contexts(site.app.routes):
        dependant = getattr(route, "dependant", None)
        for field in dependant.body_params if dependant else ():
            kind = field.field_info.annotation
            if isinstance(kind, type) and not issubclass(kind, Body):
                found.add((route.path, kind))
    assert found == set()


def test_an_unknown_parameter_of_a_query_is_refused(site: AdminSite) -> None:
    for method, path in (
        ("GET", "checkpoints?rnu=a"),
        ("GET", "status?x="),
        ("DELETE", "policies/mine?verison=3"),
        ("DELETE", "directories?path=/checkpoints/a&recursiv=true"),
    ):
        answer = site.http.request(method, path)
        assert answer.status_code == 422, path
        wrong = answer.json()["errors"][0]
        assert wrong["where"] == f"query.{path.partition('?')[2].split('&')[-1].partition('=')[0]}"
        assert "no such parameter" in wrong["what"]
    assert httpx.get(f"{site.http.base_url}status?x=1").status_code == 401
    assert site.http.get("audit", params={"limit": 1, "who": "x"}).status_code == 200


def test_a_token_ends_unless_it_is_asked_for_without_end(site: AdminSite) -> None:
    new = {"name": "x", "role": "viewer"}

    def left_seconds(**more: object) -> float | None:
        made = site.http.post("tokens", json={**new, **more}).json()["token"]
        if made["expires_at"] is None:
            return None
        ends: float = datetime.fromisoformat(made["expires_at"]).timestamp()
        return ends - clock.now_ns() / clock.NS

    found = left_seconds()
    assert found is not None and LIFE_SECONDS - 600 < found <= LIFE_SECONDS
    assert left_seconds(expires_seconds=None) is None
    misspelt = site.http.post("tokens", json={**new, "expires_secnods": 60})
    assert misspelt.status_code == 422 and "expires_secnods" in misspelt.text
