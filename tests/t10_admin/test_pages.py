"""The pages without a browser: who gets which, what is served, and that it comes from here only."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from admin_api import dashboard
from admin_api.access import authentication, tokens
from admin_api.access.authentication import role_of
from admin_api.access.principal import Role
from admin_api.pages import site as pages
from admin_api.pages.render import STATIC, static
from gateway.common import clock
from tests.support.adminsite import AdminSite, admin_site
from tests.support.waiting import until

VENDOR = STATIC / "vendor"
AXE = Path(__file__).parent / "axe"
WITHOUT_ROLE = {("GET", "/login"), ("POST", "/login"), ("POST", "/theme")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminSite]:
    with admin_site(tmp_path_factory.mktemp("pages"), principal=None) as site:
        yield site


@pytest.fixture
def http(site: AdminSite) -> Iterator[httpx.Client]:
    """A browser that is not logged in."""
    base_url = str(site.http.base_url.copy_with(path="/"))
    with httpx.Client(base_url=base_url, timeout=60.0) as http:
        yield http


def log_in(site: AdminSite, http: httpx.Client, role: Role) -> None:
    assert http.post("/login", data={"token": site.token(role)}).status_code == 303


def routes() -> list[tuple[str, str, Role | None]]:
    """Return method, path and role of every page and order."""
    base_routes = [route for router in pages.PAGES for route in router.routes]
    assert all(isinstance(route, APIRoute) for route in base_routes)
    return [
        (method, route.path, role_of(route.dependant))
        for route in base_routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]


def address_of(path: str) -> str:
    """Return an address of a route: there is nothing with these numbers and names."""
    for name in ("ino", "name", "trash_id", "token_id", "job_id"):
        path = path.replace(f"{{{name}}}", "1")
    return path


def test_every_page_needs_a_login_and_every_order_the_role_that_it_says(
    site: AdminSite, http: httpx.Client
) -> None:
    listed = routes()
    assert {(method, path) for method, path, role in listed if role is None} == WITHOUT_ROLE
    needed = [one for one in listed if one[2] is not None]
    assert len(needed) > 40
    orders = {path for method, path, role in needed if method == "POST" and role == Role.VIEWER}
    assert orders == {"/logout"}
    for method, path, _role in needed:
        answer = http.request(method, address_of(path))
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login"), path
    log_in(site, http, Role.VIEWER)
    csrf = http.get("/api/v1/session").json()["csrf_token"]
    for method, path, role in needed:
        if role is None or role <= Role.VIEWER:
            continue
        answer = http.request(method, address_of(path), data={"csrf": csrf})
        assert answer.status_code == 403, path
        assert "This needs the role" in answer.text, path


def test_a_title_names_the_gateway(site: AdminSite, http: httpx.Client) -> None:
    assert f"<title>Log in · {site.settings.name} · Spillway</title>" in http.get("/login").text


def test_an_order_without_the_token_of_its_form_is_refused(
    site: AdminSite, http: httpx.Client
) -> None:
    log_in(site, http, Role.ADMIN)
    for method, path, role in routes():
        if method == "POST" and role is not None:
            answer = http.post(address_of(path), data={"csrf": "0" * 64})
            assert answer.status_code == 403, path
            assert "load the page again" in answer.text, path
            back = re.search('<a class="button primary" href="([^"]*)">Back</a>', answer.text)
            assert back is not None, path
            assert http.get(back[1]).status_code == 200, path


def test_pages_without_anything_to_show_say_what_comes(site: AdminSite, http: httpx.Client) -> None:
    log_in(site, http, Role.VIEWER)
    for path, text in (
        ("/", "No checkpoints yet"),
        ("/checkpoints", "No checkpoints yet"),
        ("/checkpoints/list?state=durable", "No checkpoint fits"),
        ("/files", "This directory is empty"),
        ("/queue", "Nothing waits for the bucket"),
        ("/policies", "No policy deletes anything"),
        ("/policies/plan", "Nothing is deleted"),
        ("/promotions", "Nothing is promoted"),
        ("/trash", "The trash is empty"),
        ("/jobs", "No jobs"),
        ("/clients", "No NFS server answers now"),
        ("/exports", "No directory is exported beside"),
        ("/audit?by=nobody", "No entry fits"),
        ("/settings", "[bucket]"),
    ):
        answer = http.get(path)
        assert (answer.status_code, text in answer.text) == (200, True), path


def test_errors_are_pages_here_and_problems_in_the_api(site: AdminSite, http: httpx.Client) -> None:
    log_in(site, http, Role.ADMIN)
    for path, status, text in (
        ("/nothing", 404, "There is no such page"),
        ("/checkpoints/4711", 404, "not there any more"),
        ("/checkpoints/list?state=odd", 422, "There is no state odd"),
        ("/checkpoints/list?cursor=odd", 400, "begin without a cursor"),
        ("/policy/nothing", 404, "There is no policy nothing"),
        ("/files?path=/checkpoints/nothing", 404, "no such file or directory"),
        ("/files?cursor=odd", 400, "begin without a cursor"),
        ("/exports/edit?name=/nothing", 404, "There is no export /nothing"),
        ("/trash/t1/remove", 404, "is not in the trash"),
        ("/promotions/nothing/demote", 404, "No promotion nothing"),
        ("/checkpoints/list?text=%2500", 200, "No checkpoint fits"),
        ("/files?path=%2500", 422, "no NUL byte"),
    ):
        answer = http.get(path)
        assert answer.headers["content-type"] == "text/html; charset=utf-8", path
        assert (answer.status_code, text in answer.text) == (status, True), path
    assert http.get("/api/v1/nothing").headers["content-type"] == "application/problem+json"
    assert http.post("/api/v1/checkpoints").status_code == 405


def test_an_error_is_told_to_who_is_logged_in(site: AdminSite, http: httpx.Client) -> None:
    assert "Log out" not in http.get("/nothing").text
    log_in(site, http, Role.VIEWER)
    for path, status in (
        ("/nothing", 404),
        ("/checkpoints/4711", 404),
        ("/checkpoints/odd", 422),
        ("/checkpoints/4711/delete", 403),
    ):
        answer = http.get(path)
        assert (answer.status_code, "Log out" in answer.text) == (status, True), path


def test_messages_keep_names_and_keys_as_they_are(site: AdminSite, http: httpx.Client) -> None:
    log_in(site, http, Role.ADMIN)
    text = http.get("/policies/preview?name=a&keep_newest=many").text
    assert "keep_newest = " in text and "Keep_newest" not in text


def test_settings_are_shown_as_the_file_says_them(site: AdminSite, http: httpx.Client) -> None:
    log_in(site, http, Role.VIEWER)
    rows = re.findall('<tr><th scope="row".*?</tr>', http.get("/settings").text, re.DOTALL)
    [row] = [one for one in rows if ">manage_gids<" in one]
    assert ">false<" in row or ">true<" in row


def test_nobody_is_sent_to_another_site(site: AdminSite, http: httpx.Client) -> None:
    token = site.token(Role.VIEWER)
    for wanted in ("https://evil.example/", "//evil.example", "/\\evil.example", "x"):
        answer = http.post("/login", data={"token": token, "next": wanted})
        assert answer.headers["location"] == "/"
        answer = http.post("/theme", data={"theme": "dark", "back": wanted})
        assert answer.headers["location"] == "/"
    assert 'data-theme="dark"' in http.get("/login").text


def test_static_files_are_kept_by_browsers_and_pages_are_not(
    site: AdminSite, http: httpx.Client
) -> None:
    style = http.get(static("spillway.css"))
    assert (style.status_code, "immutable" in style.headers["cache-control"]) == (200, True)
    page = http.get("/login")
    assert page.headers["cache-control"] == "no-store"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "<script>" not in page.text
    assert "style=" not in page.text


def test_the_history_is_condensed_and_says_what_was_written(
    site: AdminSite, http: httpx.Client
) -> None:
    log_in(site, http, Role.VIEWER)
    assert http.get("/live/history").json() == [[], [], [], []]
    dashboard.Sampler(site.settings, site.gateway.store, site.app.state.figures.status).take()
    # Nothing runs: no rate is known.
    assert [column[-1] for column in http.get("/live/history").json()[1:]] == [0, None, None]
    with site.gateway.store.writing() as session:
        for minutes in (40, 30):
            at_ns = clock.now_ns() - minutes * 60 * clock.NS
            dashboard.put(session, dashboard.Sample(at_ns, minutes, 8.0, 4.0))
    hour = http.get("/live/history").json()
    assert [column[:2] for column in hour[1:]] == [[40, 30], [8.0, 8.0], [4.0, 4.0]]
    month = http.get("/live/history", params={"seconds": 31 * 86_400}).json()
    assert len(month[0]) <= 2 and max(month[1]) == 40


def test_the_dashboard_tells_how_old_the_names_in_the_bucket_are(
    site: AdminSite, http: httpx.Client
) -> None:
    log_in(site, http, Role.VIEWER)

    def shows(*texts: str) -> bool:
        page = re.sub(r"<[^>]*>", "", http.get("/").text).replace("&nbsp;", " ")
        return all(text in page for text in texts)

    until(lambda: shows("Names in the bucket", "none yet"), "that there are none yet")
    hour_ns = 3600 * clock.NS
    times = {"copied_ns": clock.now_ns() - 2 * hour_ns, "base_ns": clock.now_ns() - 3 * hour_ns}
    names = {**times, "waiting": 1, "error": "<no route>"}
    (site.settings.run_dir / "recovery.json").write_text(json.dumps({"names": names}))
    told = ("late", "as of 2 h ago, 1 change waiting", "&lt;no route&gt;")
    until(lambda: shows(*told), "that they are old, and why")
    until(lambda: shows("The bucket has the names as they were 2.0 h ago"), "the alarm")


def test_news_come_at_once_and_when_a_report_is_written(
    site: AdminSite, http: httpx.Client
) -> None:
    log_in(site, http, Role.VIEWER)
    with http.stream("GET", "/live/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in answer.iter_lines() if line.startswith("event:"))
        assert [next(lines), next(lines)] == ["event: status", "event: job"]
        (site.settings.run_dir / "drain.json").write_text("{}")
        assert next(lines) == "event: status"


def test_news_end_with_the_token_of_their_session(
    site: AdminSite, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "CHECK_SECONDS", 0.2)
    token = site.token(Role.VIEWER)
    assert http.post("/login", data={"token": token}).status_code == 303
    with http.stream("GET", "/live/events", timeout=10) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 2000"
        with site.gateway.store.writing() as session:
            tokens.revoke(session, token.split("_")[1], clock.now_ns())
        # A stream that lasts is silent for longer than the client waits.
        assert set(lines) <= {"", "event: status", "event: job", "data: {}"}
    assert http.get("/live/events").status_code == 303


@pytest.mark.parametrize("directory", [VENDOR, AXE], ids=["pages", "tests"])
def test_foreign_files_are_those_that_were_published(directory: Path) -> None:
    listed = json.loads((directory / "vendor.json").read_text())
    for entry in listed:
        digest = hashlib.sha256((directory / entry["file"]).read_bytes()).hexdigest()
        assert digest == entry["sha256"], entry["file"]
        assert entry["version"] in entry["file"]
    named = {name for entry in listed for name in (entry["file"], entry["licence_file"])}
    assert {path.name for path in directory.iterdir()} == {*named, "vendor.json"}
