"""Who may call the admin API: each route by role, tokens that are not valid, sessions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from admin_api import audit, problems
from admin_api.access import sessions
from admin_api.access.authentication import role_of
from admin_api.access.principal import Role
from admin_api.access.tokens import TRIES, InvalidToken, MustWait, Verifier
from admin_api.app import PREFIX, create_app
from gateway.common import clock
from tests.support.adminsite import AdminSite, admin_site, serving
from tests.support.t10.access import bearer

OPEN = {
    *(f"{PREFIX}/health/live", f"{PREFIX}/health/ready"),
    *(f"{PREFIX}/login", "/login", "/static"),
    "/theme",  # a cookie of the browser that asks
}
"""What answers without a token."""
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
BODIES = {
    "list": (b"[]", JSON),
    "broken": (b'{"a": ', JSON),
    "no UTF-8": (b'{"a": "\xff"}', JSON),
    "no JSON": (b"a=1", FORM),
}
"""Bodies that no route takes."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminSite]:
    with admin_site(tmp_path_factory.mktemp("admin"), None) as site:
        yield site


@pytest.fixture(scope="module")
def texts(site: AdminSite) -> dict[Role, str]:
    """A token of each role."""
    return {role: site.token(role) for role in Role}


class Route(NamedTuple):
    """A method of a route."""

    method: str
    path: str
    role: Role | None

    has_body: bool

    @property
    def is_page(self) -> bool:
        return not self.path.startswith((PREFIX, "/metrics"))

    def call(
        self, site: AdminSite, token: str | None = None, body: bytes = b"{}", kind: str = JSON
    ) -> httpx.Response:
        url = str(site.http.base_url.join("/")) + self.path.lstrip("/")
        headers = {} if token is None else bearer(token)
        sent = body if self.method in ("POST", "PUT", "PATCH") else None
        if sent is not None:
            headers["Content-Type"] = kind
        return site.http.request(self.method, url, content=sent, headers=headers)


def routes(site: AdminSite) -> list[Route]:
    """All routes of the API and the pages, with something for each parameter of a path."""
    found = []
    apps = (site.app, site.app.state.pages)
    for route in itertools.chain.from_iterable(iter_route_contexts(app.routes) for app in apps):
        path = re.sub(r"\{[^}]*\}", "x", route.path or "")
        dependencies = getattr(route, "dependant", None)
        role = role_of(dependencies) if dependencies else None
        has_body = bool(dependencies and dependencies.body_params)
        found += [Route(method, path, role, has_body) for method in sorted(route.methods or ())]
    return found


def status_of(site: AdminSite, text: str) -> tuple[int, str]:
    answer = site.http.get("session", headers=bearer(text))
    return answer.status_code, answer.json().get("detail", "")


def test_each_route_needs_a_token_and_its_role(site: AdminSite, texts: dict[Role, str]) -> None:
    every = routes(site)
    assert (
        sum(route.is_page for route in every) > 30
        and sum(not route.is_page for route in every) > 50
    )
    for route in every:
        if route.path in OPEN:
            assert route.role is None, route
            continue
        assert route.role is not None, (
            f"{route}: a parameter of admin_api.access.authentication is missing"
        )
        lower = [None, *(texts[role] for role in Role if role < route.role)]
        kinds = {"form": (b"a=%00&csrf=x", FORM)} if route.is_page else BODIES
        for (what, (body, kind)), token in itertools.product(kinds.items(), lower):
            answer = route.call(site, token, body, kind)
            told = (route, what, token and token[:4], answer.text)
            if route.is_page and token is None:
                assert (answer.status_code, answer.headers["location"][:6]) == (303, "/login"), told
                continue
            assert answer.status_code == (401 if token is None else 403), told
            if not route.is_page:
                assert answer.headers["content-type"] == problems.MEDIA_TYPE
                assert answer.json()["instance"] == answer.headers["x-request-id"]
            if token is None:
                assert answer.headers["www-authenticate"] == "Bearer"
        if route.has_body:
            # Who may call it is told what is wrong with the body.
            wrong = {body: route.call(site, texts[Role.ADMIN], *BODIES[body]) for body in BODIES}
            statuses = {what: answer.status_code for what, answer in wrong.items()}
            assert statuses == {"list": 422, "broken": 422, "no UTF-8": 422, "no JSON": 415}, route
    # Routes that change something are not for those who only read.
    lax = [route for route in every if route.method not in audit.SAFE and route.role is Role.VIEWER]
    tries = {"/retention/plan", "/retention/validate", "/exports/validate"}  # they store nothing
    assert {route.path.removeprefix(PREFIX) for route in lax} <= {"/logout", *tries}


def test_tokens_that_are_not_valid(site: AdminSite, texts: dict[Role, str]) -> None:
    good = texts[Role.VIEWER]
    assert status_of(site, good) == (200, "")
    with pytest.MonkeyPatch.context() as context:
        text = site.token(Role.VIEWER, clock.now_ns() + 3600 * clock.NS)
        assert status_of(site, text) == (200, "")
        now_ns = clock.now_ns()
        context.setattr(clock, "now_ns", lambda: now_ns + 3601 * clock.NS)
        assert status_of(site, text) == (401, "the token has expired: ask for another one")
    secret = site.token(Role.ADMIN)[-43:]
    for wrong in (
        good[:-43] + secret,
        good[:-1],
        f"spw_000000000000_{secret}",
        "x" * 5000,
        "spw__",
    ):
        status, detail = status_of(site, wrong)
        assert status == 401, wrong
        assert detail == "the token is not valid"
    assert status_of(site, good) == (200, "")
    other = httpx.get(f"{site.http.base_url}session", headers={"Authorization": "Basic eDp5"})
    assert other.status_code == 401


def test_wrong_tokens_are_limited_and_audited_and_who_is_known_passes(tmp_path: Path) -> None:
    with admin_site(tmp_path, None) as site:
        known, unknown = site.token(Role.VIEWER), site.token(Role.VIEWER)
        assert status_of(site, known) == (200, "")
        for _ in range(TRIES):
            assert status_of(site, "spw_wrong")[0] == 401
        for answer in (
            site.http.get("session", headers=bearer(unknown)),
            site.http.post("login", json={"token": unknown}),
        ):
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 6
        assert status_of(site, known) == (200, "")
        found = site.http.get("audit", headers=bearer(known)).json()["items"]
        assert len(found) == TRIES
        assert {(entry["status"], entry["who"], entry["address"]) for entry in found} == {
            (401, "", "127.0.0.1")
        }


def test_a_token_that_has_ended_locks_no_other_out(site: AdminSite) -> None:
    verifier = Verifier(site.gateway.store)
    ended = site.token(Role.VIEWER, clock.now_ns())
    for _ in range(2 * TRIES):
        with pytest.raises(InvalidToken, match="has expired"):
            verifier.verify(ended, "10.0.0.2")
    assert verifier.verify(site.token(Role.VIEWER), "10.0.0.2").role is Role.VIEWER


def test_tries_are_counted_by_the_network_of_a_host(site: AdminSite) -> None:
    verifier = Verifier(site.gateway.store)
    for number in range(TRIES):
        with pytest.raises(InvalidToken):
            verifier.verify("spw_wrong", f"2001:db8::{number:x}")
    with pytest.raises(MustWait):
        verifier.verify("spw_wrong", "2001:db8::ffff")
    for other in ("2001:db8:0:1::1", "10.0.0.1"):
        with pytest.raises(InvalidToken):
            verifier.verify("spw_wrong", other)


def test_a_revoked_token_ends_at_once_with_its_sessions(
    site: AdminSite, texts: dict[Role, str]
) -> None:
    admin = bearer(texts[Role.ADMIN])
    made = site.http.post(
        "tokens", json={"name": "ci\n", "role": "operator", "expires_seconds": 60}, headers=admin
    ).json()
    text, token_id = made["secret"], made["token"]["id"]
    assert made["token"]["name"] == "ci\\n"
    assert status_of(site, text) == (200, "")
    with httpx.Client(base_url=site.http.base_url) as browser:
        assert browser.post("login", json={"token": text}).status_code == 200
        assert browser.get("session").status_code == 200
        gone = site.http.delete(f"tokens/{token_id}", headers=admin).json()
        assert gone["state"] == "revoked"
        assert status_of(site, text) == (401, "the token was revoked: ask for another one")
        answer = browser.get("session")
        assert (answer.status_code, answer.json()["detail"]) == (
            401,
            "the session has ended: log in again",
        )
    listed = site.http.get("tokens", headers=admin)
    kept = {item["id"]: item for item in listed.json()["items"]}[token_id]
    assert kept["last_used_at"] is not None
    assert text.split("_", 2)[2] not in listed.text
    assert site.http.delete("tokens/nothing", headers=admin).status_code == 404
    pages = [site.http.get("tokens", headers=admin, params={"limit": 2}).json()]
    while cursor := pages[-1]["next"]:
        params = {"limit": 2, "cursor": cursor}
        pages.append(site.http.get("tokens", headers=admin, params=params).json())
    ids = [item["id"] for page in pages for item in page["items"]]
    assert ids == [item["id"] for item in listed.json()["items"]]


def test_sessions(site: AdminSite, texts: dict[Role, str]) -> None:
    with httpx.Client(base_url=site.http.base_url) as browser:
        assert browser.post("login", json={"token": "spw_wrong"}).status_code == 401
        opened = browser.post("login", json={"token": f" {texts[Role.ADMIN]} "})
        cookie = opened.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=lax", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
        who = browser.get("session").json()
        assert who["csrf_token"] == opened.json()["csrf_token"]
        assert (who["name"], who["role"]) == ("admin", "admin")
        # A call that changes something must have the CSRF token, in the header or in a form.
        new = {"name": "x", "role": "viewer"}
        assert browser.post("tokens", json=new).status_code == 403
        wrong = {sessions.CSRF_HEADER: "0" * 64}
        assert browser.post("tokens", json=new, headers=wrong).status_code == 403
        right = {sessions.CSRF_HEADER: who["csrf_token"]}
        assert browser.post("tokens", json=new, headers=right).status_code == 201
        assert browser.post("logout", data={sessions.CSRF_FIELD: "0"}).status_code == 403
        # A copy of the cookie ends with the logout too.
        copied = dict(browser.cookies)
        form = {sessions.CSRF_FIELD: who["csrf_token"]}
        assert browser.post("logout", data=form).status_code == 204
        assert browser.get("session").status_code == 401
        with httpx.Client(base_url=site.http.base_url, cookies=copied) as thief:
            assert thief.get("session").status_code == 401
    with httpx.Client(base_url=site.http.base_url) as browser, pytest.MonkeyPatch.context() as late:
        browser.post("login", json={"token": texts[Role.VIEWER]})
        now_ns = clock.now_ns()
        late.setattr(clock, "now_ns", lambda: now_ns + 12 * 3600 * clock.NS)
        assert browser.get("session").status_code == 401


def test_a_restart_keeps_tokens_and_sessions_and_no_secret_is_stored(tmp_path: Path) -> None:
    with admin_site(tmp_path, None) as site:
        text = site.token(Role.ADMIN)
        key = {audit.KEY: "one"}
        new = {"name": "x", "role": "viewer"}
        made = site.http.post("tokens", json=new, headers={**bearer(text), **key}).json()
        site.http.post("login", json={"token": text})
        cookies = dict(site.http.cookies)
        settings = site.settings
    with serving(create_app(settings)) as url:
        with httpx.Client(base_url=f"{url}{PREFIX}", headers=bearer(text)) as http:
            assert http.get("session").status_code == 200
        with httpx.Client(base_url=f"{url}{PREFIX}", cookies=cookies) as http:
            assert http.get("session").status_code == 200
    kept = b"".join(path.read_bytes() for path in settings.data_dir.glob("admin.db*"))
    for secret in (text, made["secret"], *cookies.values()):
        assert secret[-43:].encode() not in kept
