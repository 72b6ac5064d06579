"""The routes of the trash and of promotions, and orders about checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admin_api.app import KINDS
from admin_api.jobs import work
from admin_api.jobs.runner import JobThreads
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import identity
from tests.support.adminsite import ADMIN
from tests.support.t10.filled import Filled, ended, filled, job, tag
from tests.support.waiting import until


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with filled(tmp_path_factory.mktemp("admin")) as made:
        yield made


def throw_away(site: Filled, path: str) -> str:
    """Delete a checkpoint, and have the catalogue see it. Returns its id in the trash."""
    made: str = site.ask("DELETE", f"checkpoints/{site.ino(path)}?force=true")["id"]
    with site.world():
        pass
    return made


def recorded(site: Filled) -> dict[str, Any]:
    """Return the newest entry of the audit."""
    item: dict[str, Any] = site.ask("GET", "audit?limit=1")["items"][0]
    return item


def later(site: Filled, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a job that was asked for before this moment. Returns it when it has ended."""
    gateway = site.site.gateway
    never = JobThreads(gateway.settings, gateway.database, gateway.store, KINDS)
    never.stop()
    id = never.submit(kind, arguments, ADMIN, "r").id
    runner = JobThreads(gateway.settings, gateway.database, gateway.store, KINDS)
    runner.start()
    document = ended(site, id)
    runner.stop()
    return document


def test_the_trash_is_listed_gives_back_and_is_emptied(site: Filled) -> None:
    one, two = throw_away(site, "a/step-1"), throw_away(site, "a/step-2")
    assert recorded(site)["before"]["path"] == "/checkpoints/jobs/a/step-2"
    assert recorded(site)["after"]["id"] == two
    first = site.ask("GET", "trash?limit=1")
    second = site.ask("GET", f"trash?limit=1&cursor={first['next']}")
    assert [item["id"] for item in first["items"] + second["items"]] == [one, two]
    assert second["next"] is None
    assert first["items"][0]["local_bytes"] > 0 and first["items"][0]["by"] == "tests"
    before = site.http.get(f"trash/{one}")
    assert before.json() == first["items"][0] | {"left_seconds": before.json()["left_seconds"]}
    unknown: tuple[tuple[str, str, Any], ...] = (
        ("GET", "trash/t1", None),
        ("DELETE", "trash/t1", None),
        ("POST", "trash/t1/undelete", {}),
    )
    for verb, path, body in unknown:
        assert "not in the trash" in site.ask(verb, path, 404, json=body)["detail"]
    wrong: tuple[tuple[str, str, Any], ...] = (
        ("GET", "trash/x", None),
        ("POST", "trash/empty", {"ids": []}),
        ("POST", "trash/empty", {"ids": ["x"]}),
        ("POST", f"trash/{one}/undelete", {"to": "a\0b"}),
    )
    for verb, path, body in wrong:
        site.ask(verb, path, 422, json=body)
    refused = site.ask("POST", f"trash/{one}/undelete", 409, json={"to": "jobs/a/step-3"})
    assert "is there already" in refused["detail"]
    back = site.ask("POST", f"trash/{one}/undelete", json={"to": "jobs/a/back%FF"})
    assert back == {"id": one, "path": "/checkpoints/jobs/a/back%FF"} == recorded(site)["after"]
    assert recorded(site)["before"]["id"] == one
    # It is deleted once more under its id: that is not what was seen, or chosen, before.
    with site.world():
        pass
    chosen = Trash(site.site.settings, site.site.gateway.database).now_ns()
    assert throw_away(site, "a/back%FF") == one
    changed = site.ask("DELETE", f"trash/{one}", 412, headers=tag(before))
    assert changed["current"]["path"] == "/checkpoints/jobs/a/back%FF"
    stays = later(site, work.EMPTY, {"ids": [one], "until": str(chosen)})
    assert stays["result"] == {"removed_checkpoints": 0, "failures": []}
    assert job(site, "POST", "trash/empty", json={"ids": [two]})["result"] == {
        "removed_checkpoints": 1,
        "failures": [],
    }
    assert [item["id"] for item in site.ask("GET", "trash")["items"]] == [one]
    removed = job(site, "DELETE", f"trash/{one}", headers=tag(site.http.get(f"trash/{one}")))
    assert removed["result"]["removed_checkpoints"] == 1
    assert recorded(site)["after"]["job"] == removed["id"]
    assert site.ask("GET", "trash") == {"items": [], "next": None}
    done = site.ask("GET", "retention/log?limit=3")["items"]
    assert [(entry["what"], entry["ino"], entry["author"]) for entry in done] == [
        ("remove", int(one[1:]), "tests"),
        ("remove", int(two[1:]), "tests"),
        ("trash", int(one[1:]), "tests"),
    ]
    assert job(site, "POST", "trash/empty", json={})["result"]["removed_checkpoints"] == 0


def test_promotions_are_made_listed_and_removed(site: Filled) -> None:
    ino = site.ino("a/step-4")
    not_yet = site.ask("POST", "promotions", 409, json={"path": "jobs/b/step-1", **NAMED})
    assert "not in the bucket yet" in not_yet["detail"]
    body = {"path": "jobs/a/step-4", "name": "bést 1", "note": "why"}
    made = site.http.post("promotions", json=body)
    assert made.status_code == 201 and made.json()["state"] == "copying"
    assert recorded(site)["after"] == made.json()
    again = site.http.get(made.headers["Location"].removeprefix("/api/v1/"))
    assert again.json() == made.json() and again.headers["ETag"] == made.headers["ETag"]
    taken = site.ask("POST", "promotions", 409, json=body)
    assert "there is a promotion" in taken["detail"]
    for name, status in (("a/b", 409), (".x", 409), ("", 422), ("a\0", 422), ("x" * 251, 422)):
        site.ask("POST", "promotions", status, json={**body, "name": name})
    site.ask("POST", "promotions", 409, json={"path": "/checkpoints", **NAMED})  # all of it
    site.ask("POST", "promotions", 404, json={"path": "nothing", **NAMED})
    site.ask("POST", "promotions", 201, json={"path": "jobs/a/step-3", "name": "other"})
    first = site.ask("GET", "promotions?limit=1")
    second = site.ask("GET", f"promotions?limit=1&cursor={first['next']}")
    assert [item["name"] for item in first["items"] + second["items"]] == ["bést 1", "other"]
    assert site.ask("GET", f"checkpoints/{ino}")["promotions"] == ["bést 1"]
    site.ask("GET", "promotions/nothing", 404)
    site.ask("DELETE", "promotions/nothing", 404)
    site.ask("DELETE", "promotions/other", 412, headers=tag(made))
    gone = site.ask("DELETE", "promotions/other", headers=tag(site.http.get("promotions/other")))
    assert gone["state"] == "demoting"
    entry = recorded(site)
    assert (entry["before"]["state"], entry["after"]["state"]) == ("copying", "demoting")


NAMED = {"name": "x"}


def test_jobs_about_a_checkpoint_follow_its_name(site: Filled) -> None:
    ino = site.ino("a/step-3")
    chosen = {"paths": ["jobs/a/step-3"]}
    warmed = job(site, "POST", "files/warm", json=chosen)
    assert warmed["text"] == "0 files came, 2 were there before"
    assert (warmed["state"], warmed["result"]["resident_before_files"]) == ("done", 2)
    assert recorded(site)["after"]["job"] == warmed["id"]
    # The bucket has no credentials.
    problem = job(site, "POST", "files/evict", json=chosen)["problem"]
    assert (problem["status"], problem["code"]) == (502, "bucket_refusal")
    with site.world() as world:
        world.rename("jobs/a/step-3", "jobs/a/step-33")
    moved = later(site, work.WARM, {"paths": ["jobs/a/step-3"], "ino": ino})
    assert moved["result"]["resident_before_files"] == 2
    throw_away(site, "a/step-33")
    gone = later(site, work.WARM, {"paths": ["jobs/a/step-3"], "ino": ino})
    assert (gone["state"], gone["problem"]["status"]) == ("failed", 404)


def test_a_wait_is_a_job_and_says_what_is_missing(site: Filled) -> None:
    durable = job(site, "POST", "files/wait", json={"path": "jobs/a/step-4"})
    assert (durable["state"], durable["result"]) == ("done", {"durable": True})
    begun = site.ask("POST", "files/wait", 202, json={"path": "jobs/b/step-1"})["id"]

    def text() -> str:
        told: str = site.ask("GET", f"jobs/{begun}")["text"]
        return told

    until(lambda: text().startswith("2 files") and "b/step-1" in text(), "what is missing")
    site.ask("POST", f"jobs/{begun}/cancel")
    assert ended(site, begun)["state"] == "cancelled"


def test_what_is_saved_between_the_look_and_the_deletion_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion compares what the client saw in the transaction that reads what it deletes."""
    with filled(tmp_path) as site:
        ino = site.ino("a/step-1")
        seen = tag(site.http.get(f"checkpoints/{ino}"))
        surroundings = identity.require_surroundings

        def save_more(*given: Any) -> None:
            surroundings(*given)
            with site.world() as world:
                world.write("jobs/a/step-1/__0_1.distcp", b"more")

        monkeypatch.setattr(identity, "require_surroundings", save_more)
        changed = site.ask("DELETE", f"checkpoints/{ino}?force=true", 412, headers=seen)
        assert changed["current"]["files"] == 3
        monkeypatch.undo()
        assert site.ask("GET", "trash")["items"] == []
        site.ask("DELETE", f"checkpoints/{ino}", 412, headers={"If-Match": '"x", W/"y"'})
        site.ask("DELETE", f"checkpoints/{ino}?force=true", headers={"If-Match": "*"})
