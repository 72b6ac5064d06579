"""What the API and the pages say of checkpoints that clients removed, and of trees."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.records import record
from tests.support.t10.filled import Filled, filled, job
from tests.support.volumes import query


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with filled(tmp_path_factory.mktemp("admin")) as made:
        yield made


def test_what_is_held_is_shown_counted_and_released(site: Filled) -> None:
    with site.world() as world:
        record(world.settings, world.attr("jobs/a/step-4").ino, b"jobs/a", 4)
        world.remove("jobs/a/step-4/.metadata")
    [item] = site.ask("GET", "trash")["items"]
    assert item["held"] is True and item["path"] == "/checkpoints/jobs/a/step-4"
    assert item["by"] == "a client (uid 0)" and item["bucket_bytes"] > 0
    status = site.ask("GET", "status")["trash"]
    assert (status["held"], status["held_bytes"]) == (1, item["bucket_bytes"])
    metrics = httpx.get(site.http.base_url.join("/metrics"), headers=site.http.headers).text
    assert "spillway_held_checkpoints 1.0" in metrics
    assert "It is held for a newer checkpoint" in site.page("/trash")
    assert item["path"] not in site.page("/trash/empty")
    assert "also from the bucket" in site.page(f"/trash/{item['id']}/release")
    # All of the trash is not what may be the last that the bucket has.
    assert job(site, "POST", "trash/empty", json={})["result"]["removed_checkpoints"] == 0
    released = site.ask("POST", f"trash/{item['id']}/release")
    assert released == {**item, "held": False, "left_seconds": released["left_seconds"]}
    [entry] = site.ask("GET", "audit?limit=1")["items"]
    assert (entry["before"]["held"], entry["after"]["held"]) == (True, False)
    assert "not held" in site.ask("POST", f"trash/{item['id']}/release", 409)["detail"]
    site.ask("POST", "trash/t1/release", 404)
    [last] = site.ask("GET", "retention/log?limit=1")["items"]
    assert (last["what"], last["author"]) == ("release", "tests")


def test_a_tree_with_the_newest_checkpoint_needs_force(site: Filled) -> None:
    refused = site.ask("DELETE", "directories", 409, params={"path": "jobs/a"})
    assert "jobs/a/step-4 stays: it is the newest complete one" in refused["detail"]
    [entry] = site.ask("GET", "audit?limit=1")["items"]
    assert entry["status"] == 409
    older = job(site, "DELETE", "directories", params={"path": "jobs/a/step-1"})
    assert older["state"] == "done"
    assert list(older["result"]["trashed"].values()) == ["jobs/a/step-1"]
    done = job(site, "DELETE", "directories", params={"path": "jobs/a", "force": True})
    assert len(done["result"]["trashed"]) == 3 and done["result"]["failures"] == []
    [entry] = site.ask("GET", "audit?limit=1")["items"]
    assert sorted(entry["before"]["checkpoints"]) == [
        f"/checkpoints/jobs/a/step-{step}" for step in (2, 3, 4)
    ]
    assert len(site.ask("GET", "trash")["items"]) == 4
    settings = site.site.settings
    assert query(settings, "SELECT count(*) FROM tombstone") == [(0,)]
    log = site.ask("GET", "retention/log")["items"]
    assert {(item["what"], item["author"]) for item in log} == {("trash", "tests")} and len(
        log
    ) == 4


def test_a_checkpoint_in_the_bucket_gets_a_held_name_by_force_only(site: Filled) -> None:
    body = {"path": "jobs/a/step-4", "to": "jobs/a/step-4.tmp"}
    refused = site.ask("POST", "files/rename", 409, json=body)
    assert "is in the bucket" in refused["detail"]
    moved = site.ask("POST", "files/rename", json={**body, "force": True})
    assert moved["path"] == "/checkpoints/jobs/a/step-4.tmp"
