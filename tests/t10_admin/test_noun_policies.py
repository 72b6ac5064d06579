"""The policies of a gateway, asked on its machine and by its admin API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.common.errors import NotThere, SpillwayError
from gateway.lifecycle.retention import policy
from gateway.service.policies import Policies
from tests.support.checkpoints.keeping import catch_up, save
from tests.support.t10.afar import Afar, afar
from tests.support.t10.either import WAYS, either
from tests.support.volumes import query

NEWEST = {"name": "newest", "run": "jobs/*", "keep_newest": 2, "wait_hours": 0}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afar]:
    with afar(tmp_path_factory.mktemp("policies")) as made:
        with made.world() as world:
            save(world, *(f"jobs/a/step-{step}" for step in range(1, 5)), "jobs/b/step-1")
            catch_up(world)
        yield made


@pytest.fixture(params=WAYS)
def policies(site: Afar, request: pytest.FixtureRequest) -> Iterator[Policies]:
    with either(site, request.param) as gateway:
        yield gateway.policies
    for table in ("policy", "approval", "policy_approval", "action"):
        query(site.site.settings, f"DELETE FROM {table}")


def given(**change: Any) -> list[policy.Policy]:
    return policy.read({"policy": [{**NEWEST, **change}]})


def test_policies_have_versions(policies: Policies) -> None:
    assert list(policies.every()) == [] == list(policies.history())
    [first] = policies.set(given())
    assert (first.version, first.changed, first.document) == (1, True, NEWEST)
    [again] = policies.set(given())
    assert (again.version, again.changed) == (1, False)
    assert policies.set(given(keep_newest=3))[0].version == 2
    off = policies.switch("newest", is_enabled=False)
    assert (off.version, off.enabled, off.changed) == (3, False, True)
    assert not policies.switch("newest", is_enabled=False).changed
    assert policies.switch("newest", is_enabled=True).version == 4
    [there] = policies.every()
    assert there.version == 4
    gone = policies.remove("newest")
    assert (gone.version, gone.document) == (5, None)
    assert list(policies.every()) == []
    assert [version.version for version in policies.versions("newest")] == [1, 2, 3, 4, 5]
    assert list(policies.history()) == policies.versions("newest")
    for name in ("newest", "none", "No Name", "a/b"):
        with pytest.raises(NotThere, match=f"there is no policy {name}"):
            policies.remove(name)
        with pytest.raises(NotThere, match=f"there is no policy {name}"):
            policies.switch(name, is_enabled=True)
    with pytest.raises(NotThere, match="there is no policy none"):
        policies.versions("none")


def test_a_plan_is_tried_stored_and_approved(policies: Policies) -> None:
    tried = policies.plan(given(), None, None)
    assert (tried.deleted, tried.is_stored, len(tried.checkpoints)) == (2, False, 5)
    listed = policies.plan(given(), "/checkpoints/jobs/a/", "delete").checkpoints
    assert [checkpoint.path for checkpoint in listed] == [
        f"/checkpoints/jobs/a/step-{n}" for n in (1, 2)
    ]
    assert policies.plan([], "jobs/b", None).checkpoints[0].fate == "keep"
    policies.set(given())
    asked = policies.plan([], None, None).asked
    assert asked is not None and asked.checkpoints == 2
    for wrong in ("0123456789ab", "none"):
        with pytest.raises(SpillwayError, match=f"{wrong}: there is no such plan"):
            policies.approve(wrong)
    approved = policies.approve(asked.plan)
    assert (approved.plan, approved.policies) == (asked.plan, ["newest v1"])
    assert policies.approvals() == [approved]


def test_the_log_has_reversible_names(site: Afar, policies: Policies) -> None:
    row = "(1, 1, 2, 'trash', 'me', :run, 1, :path, 7, '', 'it is old', 'in the trash')"
    names = {"run": b"odd\xff", "path": b"odd\xff/step-%41"}
    query(site.site.settings, f"INSERT INTO action VALUES {row}", **names)
    [action] = policies.log(None, 5)
    assert (action.run, action.path) == ("odd%FF", "/checkpoints/odd%FF/step-%2541")
    assert policies.log("odd\udcff", 5) == [action]
    assert policies.log("other", 5) == [] == policies.log(None, 0)


def test_documents_and_the_clock_are_looked_at(policies: Policies) -> None:
    assert policies.validate({"policy": [NEWEST]}).valid
    wrong = policies.validate({"policy": [{**NEWEST, "keep_newest": 0}]})
    assert not wrong.valid and "must be between 1" in (wrong.error or "")
    assert policies.clock().clock_ahead_seconds == 0
    assert policies.confirm_clock().clock_ahead_seconds == 0
