"""The pages and the API refuse the same: each order of a page is a route of the API too."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import httpx
import pytest

from admin_api.access.authentication import role_of
from admin_api.access.principal import Role
from admin_api.app import PREFIX, ROUTERS
from admin_api.audit import SAFE, Recorded
from admin_api.pages import site as pages
from tests.support.adminsite import AdminSite, admin_site

SAME = {
    "POST /tokens": "/settings/tokens",
    "DELETE /tokens/{token_id}": "/settings/tokens/{token_id}/revoke",
    "POST /pins": "/checkpoints/{ino}/pin",
    "DELETE /pins/{ino}": "/checkpoints/{ino}/unpin",
    "DELETE /checkpoints/{ino}": "/checkpoints/{ino}/delete",
    "POST /promotions": "/checkpoints/{ino}/promote",
    "DELETE /promotions/{name}": "/promotions/{name}/demote",
    "POST /trash/{id}/undelete": "/trash/{trash_id}/undelete",
    "POST /trash/{id}/release": "/trash/{trash_id}/release",
    "DELETE /trash/{id}": "/trash/{trash_id}/remove",
    "POST /trash/empty": "/trash/empty",
    "POST /policies": "/policies",
    "PUT /policies/{name}": "/policies",
    "DELETE /policies/{name}": "/policy/{name}/remove",
    "POST /policies/{name}/enable": "/policy/{name}/switch",
    "POST /policies/{name}/disable": "/policy/{name}/switch",
    "POST /retention/approvals": "/policies/plan/approve",
    "POST /files/evict": "/files/{order}",
    "POST /files/warm": "/files/{order}",
    "POST /exports": "/exports",
    "PUT /exports/{name:path}": "/exports",
    "DELETE /exports/{name:path}": "/exports/remove",
    "POST /exports/reload": "/exports/reload",
    "PUT /queue/orders": "/queue/order",
    "DELETE /queue/orders": "/queue/order",
    "POST /queue/retry": "/queue/retry",
    "POST /jobs/{id}/cancel": "/jobs/{job_id}/cancel",
}
"""The order of the pages for each unsafe route of the API."""
OF_A_CHECKPOINT = {
    "POST /files/evict": "/checkpoints/{ino}/evict",
    "POST /files/warm": "/checkpoints/{ino}/warm",
}
"""Further orders, by the number of a checkpoint: a rename since its page was made is no matter."""
WITHOUT_PAGE = {
    "POST /retention/clock/confirm",
    *("DELETE /files", "POST /files/rename", "POST /files/attributes", "POST /files/wait"),
    *("POST /directories", "DELETE /directories", "POST /bucket/test", "POST /bucket/setup"),
}
"""The API and the command line have these, and the pages do not."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminSite]:
    with admin_site(tmp_path_factory.mktemp("same"), principal=None) as site:
        yield site


def orders(routers: Any) -> dict[str, Any]:
    """Return the unsafe routes for which a caller must be more than a viewer."""
    return {
        f"{method} {route.path}": route
        for router in routers
        for route in router.routes
        for method in sorted(set(route.methods) - SAFE)
        if (role_of(route.dependant) or Role.VIEWER) > Role.VIEWER
    }


def test_a_page_refuses_what_the_api_refuses(site: AdminSite) -> None:
    api, own = orders(ROUTERS), orders(pages.PAGES)
    assert set(api) == {*SAME, *WITHOUT_PAGE}
    pairs = [*SAME.items(), *OF_A_CHECKPOINT.items()]
    assert set(own) == {f"POST {path}" for _name, path in pairs}
    for route in own.values():
        hints = get_type_hints(route.endpoint, include_extras=True).values()
        assert Recorded in hints, f"{route.path} says not what was and is"
    root = str(site.http.base_url.join("/"))
    for role in (Role.VIEWER, Role.OPERATOR):
        text = site.token(role)
        with httpx.Client(base_url=root) as http:
            assert http.post("/login", data={"token": text}).status_code == 303
            csrf = http.get(f"{PREFIX}/session").json()["csrf_token"]
            for name, path in pairs:
                needed = role_of(api[name].dependant)
                assert needed == role_of(own[f"POST {path}"].dependant), name
                if needed is None or needed <= role:
                    continue
                said = _detail(site, name, text)
                page = http.post(_address(path), data={"csrf": csrf})
                assert page.status_code == 403, name
                assert said[1:] in html.unescape(page.text), name


def _detail(site: AdminSite, name: str, text: str) -> str:
    """Return why the API refuses a route to the owner of a token."""
    method, path = name.split()
    headers = {"Authorization": f"Bearer {text}"}
    answer = site.http.request(method, _address(path).lstrip("/"), headers=headers)
    assert answer.status_code == 403, name
    detail: str = answer.json()["detail"]
    assert detail.startswith("this needs the role")
    return detail


def _address(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "1", path)
