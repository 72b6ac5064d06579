"""The routes of policies and retention: versions, entity tags, plans, approvals, the log."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from admin_api import dashboard
from gateway.lifecycle.retention import policy
from gateway.lifecycle.retention.facts import Current
from gateway.service import policies
from tests.support.checkpoints.keeping import save
from tests.support.t10.filled import Filled, filled, tag
from tests.support.volumes import query

NEWEST = {"name": "newest", "run": "jobs/*", "keep_newest": 2, "wait_hours": 0}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Filled]:
    with filled(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A site without policies that tests leave so."""
    with filled(tmp_path_factory.mktemp("admin")) as made:
        yield made


def test_a_policy_has_versions(site: Filled) -> None:
    created = site.http.post("policies", json=NEWEST)
    assert (created.status_code, created.headers["ETag"]) == (201, '"1"')
    assert created.headers["Location"] == "/api/v1/policies/newest"
    assert created.json()["author"] == "tests"
    taken = site.ask("POST", "policies", 409, json={**NEWEST, "keep_newest": 9})
    assert taken["current"]["document"] == NEWEST
    disabled = site.ask("POST", "policies/newest/disable", headers=tag(created))
    assert (disabled["version"], disabled["enabled"]) == (2, False)
    # A change of a disabled policy leaves it disabled, and nothing new is no version.
    three = {**NEWEST, "keep_newest": 3}
    changed = site.http.put("policies/newest", json=three, headers={"If-Match": '"2"'})
    assert changed.json()["version"] == 3
    again = site.ask("PUT", "policies/newest", json=three, headers=tag(changed))
    assert (again["version"], again["enabled"]) == (3, False)
    assert site.ask("POST", "policies/newest/enable", headers={"If-Match": "*"})["enabled"]
    assert [item["version"] for item in site.ask("GET", "policies")["items"]] == [4]
    removed = site.ask("DELETE", "policies/newest", headers={"If-Match": '"4"'})
    assert (removed["version"], removed["document"]) == (5, None)
    site.ask("GET", "policies/newest", 404)
    site.ask("PUT", "policies/newest", 404, json=three, headers=tag(changed))
    assert site.ask("GET", "policies")["items"] == []
    first = site.ask("GET", "policies/newest/versions?limit=3")
    rest = site.ask("GET", f"policies/newest/versions?cursor={first['next']}")
    versions = [item["version"] for item in first["items"] + rest["items"]]
    assert (versions, rest["next"]) == ([1, 2, 3, 4, 5], None)
    site.ask("GET", "policies/other/versions", 404)
    # Its versions are counted on.
    assert site.ask("POST", "policies", 201, json=NEWEST)["version"] == 6


def test_two_who_edit_one_policy_do_not_overwrite_each_other(site: Filled) -> None:
    site.ask("POST", "policies", 201, json=NEWEST)
    seen = site.http.get("policies/newest")
    mine = {**NEWEST, "keep_newest": 5}
    theirs = {**NEWEST, "keep_newest": 4, "keep_every_steps": 100}
    assert site.ask("PUT", "policies/newest", json=theirs, headers=tag(seen))["version"] == 2
    answer = site.http.put("policies/newest", json=mine, headers=tag(seen))
    assert (answer.status_code, answer.headers["ETag"]) == (412, '"2"')
    assert answer.json()["current"]["document"] == theirs
    assert answer.json()["difference"] == {
        "keep_every_steps": {"sent": None, "current": 100},
        "keep_newest": {"sent": 5, "current": 4},
    }
    assert site.ask("PUT", "policies/newest", json=mine, headers=tag(answer))["version"] == 3
    for verb, path in (("PUT", ""), ("DELETE", ""), ("POST", "/disable"), ("POST", "/enable")):
        body: Any = mine if verb == "PUT" else None
        site.ask(verb, f"policies/newest{path}", 428, json=body)
        old = site.ask(verb, f"policies/newest{path}", 412, json=body, headers=tag(seen))
        assert old["current"]["version"] == 3


def test_of_many_at_once_one_edit_wins(site: Filled) -> None:
    site.ask("POST", "policies", 201, json=NEWEST)
    seen = tag(site.http.get("policies/newest"))

    def edit(number: int) -> int:
        body = {**NEWEST, "keep_newest": number}
        return site.http.put("policies/newest", json=body, headers=seen).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(edit, range(10, 18))) == [200] + 7 * [412]
    assert site.ask("GET", "policies/newest")["version"] == 2


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": "Not A Name"}, "name"),
        ({"keep_newest": 0}, "keep_newest"),
        ({"keep_newest": "3"}, "keep_newest"),
        ({"keep_newest": True}, "keep_newest"),
        ({"keep_newest": 2.5}, "keep_newest"),
        ({"keep_oldest": 3}, "keep_oldest"),
        ({"run": None}, "must say which checkpoints"),
        ({"run": "a\0b"}, "run"),
        ({"run": ""}, "run"),
        ({"keep_newest": None}, "says nothing to do"),
        ({"keep_newest": None, "evict_after_hours": 1}, "wait_hours"),
        ({"keep_best": {"number": 1, "file": "../x", "key": "loss", "best": "min"}}, "keep_best"),
        ({"keep_best": {"number": 1, "file": "x", "key": "loss", "best": "most"}}, "keep_best"),
        ({"thin": []}, "thin"),
        (
            {"thin": 2 * [{"older_than_days": 1, "one_per_hours": 1}]},
            "older_than_days must grow",
        ),
        ({"delete_after_days": 0}, "delete_after_days"),
    ],
)
def test_a_wrong_policy_is_refused(shared: Filled, change: dict[str, Any], where: str) -> None:
    refused = shared.ask("POST", "policies", 422, json={**NEWEST, **change})
    assert where in refused["detail"]
    shared.ask("POST", "retention/plan", 422, json={"policies": [{**NEWEST, **change}]})
    assert shared.ask("GET", "policies")["items"] == []


def test_other_wrong_bodies_are_refused(shared: Filled) -> None:
    twice = shared.ask("POST", "retention/plan", 422, json={"policies": [NEWEST, NEWEST]})
    assert "two policies with the name newest" in twice["detail"]
    shared.ask("POST", "retention/approvals", 422, json={"plan": "x"})
    assert (
        "no such plan"
        in shared.ask("POST", "retention/approvals", 409, json={"plan": "0123456789ab"})["detail"]
    )
    for body in (b"{", b"\xff", b'{"policy": [{"name": "\\ud800"}]}', b"[]", b'{"policy": [1]}'):
        answer = shared.http.post(
            "retention/validate", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in (200, 400, 422), answer.text
        assert not answer.is_success or not answer.json()["valid"]
    for table, is_valid in ((NEWEST, True), ({"name": "newest"}, False)):
        found = shared.ask("POST", "retention/validate", json={"policy": [table]})
        assert found["valid"] is is_valid
        assert (found["error"] is None) is is_valid


def test_a_plan_can_be_tried_before_it_is_stored(shared: Filled) -> None:
    plan = shared.ask("POST", "retention/plan?run=jobs/a", json={"policies": [NEWEST]})
    assert (plan["kept"], plan["deleted"], plan["more_checkpoints"]) == (4, 2, 0)
    assert [checkpoint["fate"] for checkpoint in plan["checkpoints"]] == [
        "delete",
        "delete",
        "keep",
        "keep",
    ]
    assert "it is not among the newest 2 (newest)" in plan["checkpoints"][0]["why"]
    plan = shared.ask("POST", "retention/plan?fate=delete&limit=1", json={"policies": [NEWEST]})
    assert [checkpoint["step"] for checkpoint in plan["checkpoints"]] == [1]
    assert plan["more_checkpoints"] == 1
    assert shared.ask("GET", "retention/plan?fate=delete")["checkpoints"] == []
    assert shared.ask("GET", "retention/plan?fate=evict")["checkpoints"] == []
    assert query(shared.site.settings, "SELECT * FROM policy") == []


def test_a_plan_that_deletes_much_is_approved(site: Filled) -> None:
    with site.world() as world:
        save(world, *(f"jobs/a/step-{step}" for step in range(5, 12)))
    site.ask("POST", "policies", 201, json=NEWEST)
    asked = site.ask("GET", "retention/plan")["asked"]
    assert asked["checkpoints"] == 9
    assert site.ask("GET", "retention/approvals") == []
    made = site.ask("POST", "retention/approvals", json={"plan": asked["plan"]})
    assert (made["author"], made["checkpoints"]) == ("tests", 9)
    assert site.ask("GET", "retention/approvals") == [made]
    assert site.ask("GET", "retention/plan")["asked"] is None
    assert site.ask("GET", "retention/clock")["clock_ahead_seconds"] == 0
    assert site.ask("POST", "retention/clock/confirm")["ages_until"].startswith("20")
    [known] = query(site.site.settings, "SELECT known_ns FROM known_time")
    assert known[0] > 0


def test_a_kept_plan_has_what_people_said_by_now(
    site: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "PLAN_SECONDS", 10**6)
    monkeypatch.setattr(dashboard, "PLAN_LATE_SECONDS", 10**6)  # what is kept is kept for days
    kept = site.site.app.state.figures
    before = kept.plan()
    assert kept.plan() is before
    site.ask("POST", "policies", 201, json=NEWEST)
    with_it = kept.plan()
    assert [str(one) for one in with_it.policies] == ["newest v1"]
    assert {
        checkpoint["fate"] for checkpoint in site.ask("GET", "retention/plan")["checkpoints"]
    } == {
        "keep",
        "delete",
    }
    site.ask("POST", "pins", 201, json={"path": "jobs/a/step-1"})
    pinned = kept.plan()
    assert pinned is not with_it
    [one] = site.ask("GET", "retention/plan?fate=delete")["checkpoints"]
    assert one["path"].endswith("jobs/a/step-2")
    # A person who approves a plan that is no more has looked at an outdated one.
    site.ask("POST", "retention/approvals", 409, json={"plan": "0123456789ab"})
    assert kept.plan() is not pinned


def test_the_preview_of_a_policy_makes_no_plan_of_all_runs(
    site: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for with each key that is typed. The plan without the policy is kept."""
    site.ask("POST", "policies", 201, json=NEWEST)
    site.ask("GET", "retention/plan")
    made: list[object] = []
    monkeypatch.setattr(policies, "planned", made.append)
    form = {"version": "1", "name": "newest", "run": "jobs/*", "wait_hours": "0"}
    page = site.page("/policies/preview", **form, keep_newest="1")
    assert "1 checkpoint more is deleted" in page and ">step 3 " in page
    page = site.page("/policies/preview", **form, keep_newest="3")
    assert "Nothing more is deleted" in page and "1 checkpoint that would go now stays" in page
    assert not made


def test_a_preview_says_what_a_plan_of_all_says(site: Filled) -> None:
    site.ask("POST", "policies", 201, json=NEWEST)
    database, settings = site.site.gateway.database, site.site.settings
    now = policies.planned(settings, database, ())
    for table in (
        {**NEWEST, "keep_newest": 1},
        {**NEWEST, "run": "other/*"},
        {**NEWEST, "name": "another", "keep_newest": 2},
    ):
        other = Current(policy.of(table), 0)
        made = policies.revised(settings, database, now, other)
        whole = policies.planned(settings, database, [other])
        assert made.plan.decisions == whole.plan.decisions
        assert made.policies == whole.policies
        assert made.asked == whole.asked
        assert made.superseded == whole.superseded
