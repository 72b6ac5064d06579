"""What is around each call: the audit log, repetitions, limits, and headers for browsers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest
from fastapi import APIRouter
from fastapi.routing import iter_route_contexts
from markupsafe import Markup

from admin_api import audit
from admin_api.access.authentication import Operator, role_of
from admin_api.access.principal import Limiter, Role
from admin_api.app import PREFIX, create_app
from admin_api.audit import HIDDEN, KEY, KEY_MAX, SAFE, Recorded, asked
from admin_api.middleware import BODY_BYTES_MAX, HEADERS, HSTS
from admin_api.pages.render import _environment
from admin_api.requests import Governed
from gateway.common import clock
from gateway.common.errors import UserError
from tests.support.adminsite import AdminSite, admin_site, serving
from tests.support.waiting import until

probes = APIRouter(prefix="/probes")
done: list[Any] = []
"""The bodies of the probes that ran."""
rows_inside: list[int | None] = []
"""The status in the audit, as the probes saw it while they ran."""
go_on = threading.Event()


@probes.put("/{name}", status_code=201)
def probe(
    name: str, body: dict[str, Any], gateway: Governed, call: Recorded, _who: Operator
) -> dict[str, Any]:
    """Do what its name says."""
    with gateway.store.reading() as session:
        [entry] = audit.listed(session, most=1)
    assert entry.request_id == call.request_id
    rows_inside.append(entry.status)
    done.append(body)
    if name == "refuses":
        raise UserError("it cannot be done: do something else")
    if name == "breaks":
        raise RuntimeError("a secret of the inside")
    if name == "waits":
        assert go_on.wait(30)
    call.before, call.after = {"size": 1}, body
    return {"times": len(done)}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[AdminSite]:
    done.clear()
    rows_inside.clear()
    go_on.clear()
    with admin_site(tmp_path, None) as site:
        site.app.include_router(probes, prefix=PREFIX)
        site.http.headers["Authorization"] = f"Bearer {site.token(Role.OPERATOR)}"
        yield site


def entries(site: AdminSite, **params: str | int) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = site.http.get("audit", params=params).json()["items"]
    return calls


def test_the_audit_has_each_call_that_changes_something(site: AdminSite) -> None:
    viewer = {"Authorization": f"Bearer {site.token(Role.VIEWER)}"}
    answers = [
        site.http.put("probes/works", json={"size": 2}),
        site.http.put("probes/refuses", json={}),
        site.http.put("probes/breaks", json={}),
        site.http.put("probes/works", json=[]),
        site.http.put("probes/works", json={}, headers=viewer),
    ]
    assert [response.status_code for response in answers] == [201, 409, 500, 422, 403]
    assert "a secret of the inside" not in answers[2].text
    for response in answers:
        assert {name: response.headers[name] for name in HEADERS} == HEADERS
    # The row was committed before anything was done.
    assert rows_inside == [None] * 3
    calls = entries(site)[::-1]
    assert [entry["status"] for entry in calls] == [201, 409, 500, 422, 403]
    assert [entry["request_id"] for entry in calls] == [
        response.headers["x-request-id"] for response in answers
    ]
    assert [entry["who"] for entry in calls] == [*["operator"] * 4, "viewer"]
    assert all(entry["token_id"] and entry["address"] == "127.0.0.1" for entry in calls)
    assert (calls[0]["before"], calls[0]["after"]) == ({"size": 1}, {"size": 2})
    assert calls[0]["path"] == f"{PREFIX}/probes/works"
    assert calls[1]["detail"] == "it cannot be done: do something else"
    assert "needs the role operator" in calls[4]["detail"]


STORES_NOTHING = {
    *("/logout", "/retention/plan", "/retention/validate", "/exports/validate", "/bucket/test")
}


def test_each_route_that_changes_something_says_what_it_was_and_is(site: AdminSite) -> None:
    silent = set()
    for context in iter_route_contexts(site.app.routes):
        route: Any = context
        dependencies = getattr(route, "dependant", None)
        if not dependencies or role_of(dependencies) is None or set(route.methods) <= SAFE:
            continue
        if Recorded not in get_type_hints(route.endpoint, include_extras=True).values():
            silent.add(route.path.removeprefix(PREFIX))
    assert silent == STORES_NOTHING, "a parameter of type admin_api.audit.Recorded is missing"


def test_the_audit_is_listed_by_who_path_and_time(site: AdminSite) -> None:
    other = {"Authorization": f"Bearer {site.token(Role.ADMIN)}"}
    for number in range(3):
        site.http.put(f"probes/{number}", json={})
        site.http.put(f"probes/{number}", json={}, headers=other)
    whole = entries(site)
    assert len(whole) == 6
    assert whole == sorted(whole, key=lambda one: -one["id"])
    assert {entry["who"] for entry in entries(site, who="admin")} == {"admin"}
    assert len(entries(site, who=whole[0]["token_id"])) == 3
    assert [entry["who"] for entry in entries(site, path=f"{PREFIX}/probes/1")] == [
        "admin",
        "operator",
    ]
    assert entries(site, since="2100-01-01T00:00:00Z") == entries(site, until=whole[-1]["at"]) == []
    pages: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = site.http.get("audit", params={"limit": 4, **cursor}).json()
        pages += page["items"]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert pages == whole
    assert site.http.get("audit", params={"since": "yesterday"}).status_code == 422


def test_a_repetition_gets_the_first_answer(site: AdminSite) -> None:
    def put(key: str, body: dict[str, Any], name: str = "works", **headers: str) -> httpx.Response:
        return site.http.put(f"probes/{name}", json=body, headers={KEY: key, **headers})

    first = put("one", {"a": 1})
    again = put("one", {"a": 1})
    assert (
        (again.status_code, again.json())
        == (first.status_code, first.json())
        == (201, {"times": 1})
    )
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert put("one", {"a": 2}).status_code == put("one", {"a": 1}, "other").status_code == 422
    assert len(done) == len(entries(site)) == 1
    # The key of another token is another key.
    other = {"Authorization": f"Bearer {site.token(Role.OPERATOR)}"}
    assert put("one", {"a": 2}, **other).json() == {"times": 2}
    # What was refused is refused again. What broke is tried again.
    assert [put("no", {}, "refuses").status_code for _ in range(2)] == [409, 409]
    assert [put("bad", {}, "breaks").status_code for _ in range(2)] == [500, 500]
    assert len(done) == 5
    for key in ("", "x" * (KEY_MAX + 1), "a\tb"):
        assert put(key, {}).status_code == 422
    assert len(done) == 5


def test_a_repetition_waits_for_the_first_call_and_outlives_a_restart(site: AdminSite) -> None:

    def put() -> httpx.Response:
        return site.http.put("probes/waits", json={}, headers={KEY: "k"})

    answers: list[httpx.Response] = []
    slow = threading.Thread(target=lambda: answers.append(put()))
    slow.start()
    until(lambda: done, "the first call")
    early = put()
    assert (early.status_code, early.headers["retry-after"]) == (409, "1")
    assert [entry["status"] for entry in entries(site)] == [None]
    # The process dies in the call: another one does not know whether it was done.
    with serving(create_app(site.settings)) as url:
        lost = httpx.put(f"{url}{PREFIX}/probes/waits", headers=site.http.headers, json={})
        assert lost.status_code == 404
        restarted = create_app(site.settings)
        restarted.include_router(probes, prefix=PREFIX)
    with serving(restarted) as url:
        headers = {**site.http.headers, KEY: "k"}
        answer = httpx.put(f"{url}{PREFIX}/probes/waits", headers=headers, json={})
        assert answer.status_code == 409
        assert "was interrupted: look whether it was done" in answer.json()["detail"]
    go_on.set()
    slow.join()
    assert [response.status_code for response in answers] == [201]
    again = put()
    assert again.json() == answers[0].json()
    assert len(done) == 1


def test_nothing_is_changed_without_a_row(site: AdminSite) -> None:
    with site.gateway.store.reader() as connection:
        connection.execute("ALTER TABLE audit RENAME TO away")
    answer = site.http.put("probes/works", json={})
    assert (answer.status_code, done) == (503, [])
    assert site.http.get("session").status_code == 200
    # What was done is told, although its row cannot be completed.
    with site.gateway.store.reader() as connection:
        connection.execute("ALTER TABLE away RENAME TO audit")
    probe_thread = threading.Thread(
        target=lambda: done.append(site.http.put("probes/waits", json={}).status_code)
    )
    probe_thread.start()
    until(lambda: done, "the call")
    with site.gateway.store.reader() as connection:
        connection.execute("ALTER TABLE audit RENAME TO away")
    go_on.set()
    probe_thread.join()
    assert done[-1] == 201


def test_a_page_of_another_site_cannot_use_a_name_for_this_machine(site: AdminSite) -> None:
    url = f"{site.http.base_url}health/live"
    for host, status in (
        ("localhost:8780", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("LOCALHOST.", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example", 421),
        ("localhost@attacker.example", 421),
        ("", 421),
    ):
        assert httpx.get(url, headers={"Host": host}).status_code == status, host


def test_a_large_body_is_refused(site: AdminSite) -> None:
    large = b"[" + b" " * BODY_BYTES_MAX + b"]"

    def chunks() -> Iterator[bytes]:
        yield large[: BODY_BYTES_MAX // 2]
        yield large[BODY_BYTES_MAX // 2 :]

    kind = {"Content-Type": "application/json"}
    for body in (large, chunks()):
        answer = site.http.put("probes/works", content=body, headers=kind)
        assert answer.status_code == 413
    assert done == []


def test_failures_of_a_key_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    limiter = Limiter(3, 0.5)
    assert [limiter.failed("a") for _ in range(4)] == [True, True, True, False]
    assert (limiter.wait_seconds("a"), limiter.wait_seconds("b")) == (2, 0)
    now[0] += 1.5
    assert limiter.wait_seconds("a") == 1
    now[0] += 0.5
    assert limiter.wait_seconds("a") == 0
    assert [limiter.failed("a") for _ in range(2)] == [True, False]
    # However many keys there are, the oldest are forgotten.
    for number in range(5000):
        limiter.failed(str(number))
    assert limiter.wait_seconds("a") == 0


def test_a_refused_call_has_its_target_in_the_audit(site: AdminSite) -> None:
    viewer = {"Authorization": f"Bearer {site.token(Role.VIEWER)}"}
    operator = {"Authorization": f"Bearer {site.token(Role.OPERATOR)}"}
    rename = {"path": "/checkpoints/a", "to": "/checkpoints/b"}
    for headers, status in ((viewer, 403), (operator, 404)):
        answer = site.http.post("files/rename", json=rename, headers=headers)
        assert answer.status_code == status, answer.text
    query = {"path": "/checkpoints/c", "recursive": "true"}
    assert site.http.delete("directories", params=query, headers=viewer).status_code == 403
    large = {"path": "/" + "x" * 5000, "to": "y"}
    assert site.http.post("files/rename", json=large, headers=operator).status_code == 409
    site.http.post("login", json={"token": "spw_secret_of_a_stranger"})
    with site.gateway.store.reading() as session:
        login, most, removed, *renamed = audit.listed(session, most=5)
    assert [json.loads(row.asked or "") for row in renamed] == [rename, rename]
    assert json.loads(removed.asked or "") == query
    assert json.loads(most.asked or "") == {"body": "5021 bytes"}
    assert login.asked is None
    with site.gateway.store.reading() as session:
        assert "spw_secret" not in str(audit.listed(session, most=9))


def test_no_secret_of_a_form_is_in_the_audit() -> None:
    form = b"csrf=abc&token=spw_x&name=a%2Fb&name2="
    told = asked(b"x=%FF", form, len(form), "application/x-www-form-urlencoded")
    assert json.loads(told or "") == {"x": "\ufffd", "token": HIDDEN, "name": "a/b", "name2": ""}


def test_browsers_are_told_to_use_tls_but_for_the_machine_itself(tmp_path: Path) -> None:
    with admin_site(tmp_path, None) as site:
        admin = replace(site.settings.admin, tls="self-signed", bind="0.0.0.0")
        app = create_app(replace(site.settings, admin=admin))

    async def told(host: str) -> str | None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"https://{host}") as http:
            answer = await http.get(f"{PREFIX}/health/live")
        assert answer.status_code == 200
        calls: str | None = answer.headers.get("strict-transport-security")
        return calls

    assert asyncio.run(told("gateway.example")) == HSTS
    for host in ("localhost", "127.0.0.1:8780", "[::1]"):
        assert asyncio.run(told(host)) is None


def test_no_page_shows_a_character_that_is_not_seen() -> None:
    shown = _environment().from_string("{{ text }}|{{ text | e }}|{{ markup }}")
    calls = shown.render(text="a\u202eb\x85\n<", markup=Markup("<b>\u202e</b>"))
    assert calls == "a\\u202eb\\x85\n&lt;|a\u202eb\x85\n&lt;|<b>\u202e</b>"
