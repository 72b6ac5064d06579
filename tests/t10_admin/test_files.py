"""The routes of files, directories, the queue, jobs, the bucket and the configuration."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from admin_api.app import KINDS
from admin_api.jobs import kinds, rows
from admin_api.jobs.kinds import JobKind
from admin_api.jobs.runner import THREADS, JobThreads
from admin_api.problems import Problem
from gateway.common.models import to_json
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import BucketSettings, NamespaceSettings
from gateway.db.engine import Database
from gateway.drain.job import WorkKind
from gateway.namespace.lookup import ENTRIES_BY_NAME
from gateway.service import configuration, residency
from gateway.service.configuration import without_userinfo
from tests.support.adminsite import ADMIN, admin_site
from tests.support.checkpoints.world import World
from tests.support.t10.filled import Filled, ended, job
from tests.support.volumes import query
from tests.support.waiting import until

ODD = b"b\xff%41"
HALF = b'{"path": "half a pair: \\ud800"}'
JSON = {"Content-Type": "application/json"}
ROOT = "/checkpoints"
WAITS = ("settling", "waiting")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A site with a drained file, an evicted one and one that waits, and names of any bytes."""
    with admin_site(tmp_path_factory.mktemp("admin")) as served:
        made = Filled(served)
        with made.world() as world:
            _fill(world)
        yield made


def _fill(world: World) -> None:
    for name in ("a", "e", "w"):
        world.write(f"d/{name}", b"12345678")
    world.drain("d/a")
    world.drain("d/e")
    world.evict("d/e")
    parent = world.directory("odd")
    for at in range(5):
        world.namespace.mkdir(*_mkdir(parent, b"%d" % at))
    world.namespace.mkdir(*_mkdir(parent, ODD))


def _mkdir(parent: int, name: bytes) -> tuple[Any, ...]:
    return (ROOT_CRED, parent, name, SetAttr(mode=0o755))


def test_a_file_has_all_that_is_known_of_it(site: Filled) -> None:
    drained = site.ask("GET", "files", params={"path": f"{ROOT}/d/a"})
    assert drained["path"] == f"{ROOT}/d/a"
    assert (drained["kind"], drained["bytes"], drained["waiting"]) == ("file", "resident", None)
    assert drained["object"]["key"] == "d/a" and drained["object"]["size_bytes"] == 8
    assert drained["object"]["checksum"] == "md5:c"
    assert site.ask("GET", "files", params={"path": "d/e"})["bytes"] == "absent"
    waits = site.ask("GET", "files", params={"path": f"{ROOT}/d/w"})
    assert waits["waiting"]["state"] in WAITS and waits["object"] is None


def test_the_page_of_a_file_has_the_same(site: Filled) -> None:
    page = site.page("/files", path=f"{ROOT}/d/a")
    for text in ("on the disk", "as it is here", ">d/a</dd>", ">e</dd>", ">md5:c</dd>"):
        assert text in page, text
    assert "+00:00</dd>" not in page, "all times have one form"
    assert "only in the bucket" in site.page("/files", path=f"{ROOT}/d/e")
    page = site.page("/files", path=f"{ROOT}/d/w")
    assert "The bucket does not have it yet" in page and "was closed" in page
    act = "INSERT INTO action (what, author, run, path, ino, evidence, reason, began_ns, result)"
    act += " VALUES ('evict', 'by-age v1', :path, :path, 1, 'e', 'it is old', 1, '1 file evicted')"
    query(site.site.settings, act, path=b"d")
    page = site.page("/files", path=f"{ROOT}/d/a")
    query(site.site.settings, "DELETE FROM action")
    assert "by by-age v1" in page and "it is old; 1 file evicted" in page


@pytest.mark.parametrize(
    ("path", "status"),
    [("nothing", 404), ("d/a/b", 409), ("a%00b", 422), ("", 422)],
)
def test_what_is_no_file_is_a_problem(site: Filled, path: str, status: int) -> None:
    site.ask("GET", "files", status, params={"path": path})
    site.ask("GET", "directories", status, params={"path": path})


def test_a_directory_is_listed_in_pages_by_name(site: Filled) -> None:
    found, cursor = [], None
    while True:
        asked = {"path": "odd", "limit": 2, **({"cursor": cursor} if cursor else {})}
        page = site.ask("GET", "directories", params=asked)
        found += page["items"]
        if (cursor := page["next"]) is None:
            break
    assert [entry["name"] for entry in found] == ["0", "1", "2", "3", "4", "b%FF%2541"]
    # The path of an answer can be sent back, whatever the bytes of the name.
    again = site.ask("GET", "files", params={"path": found[-1]["path"]})
    assert again["ino"] == found[-1]["ino"]
    assert site.ask("GET", "directories", 409, params={"path": "d/a"})
    asked = {"path": "odd", "cursor": "WyJ4eCJd"}
    assert "cursor" in site.ask("GET", "directories", 400, params=asked)["detail"]


def test_names_are_made_moved_and_removed(site: Filled) -> None:
    made = site.ask("POST", "directories", 201, json={"path": "new%FF", "mode": "0700"})
    assert made == {"path": f"{ROOT}/new%FF"}
    assert site.ask("GET", "files", params={"path": "new%FF"})["mode"] == "0700"
    site.ask("POST", "directories", 409, json={"path": "new%FF"})
    deep = {"path": "new%FF/x/y", "parents": True}
    site.ask("POST", "directories", 201, json=deep)
    site.ask("POST", "directories", 201, json=deep)
    assert site.ask("POST", "directories", 422, json={"path": "n", "owner": 0})
    site.ask("POST", "directories", 422, content=HALF, headers=JSON)
    for long in (
        "x" * 256,
        "x" * 9000,
    ):  # the second one does not fit into a request over the control socket
        site.ask("POST", "directories", 409, json={"path": long})
        site.ask("POST", "files/rename", 409, json={"path": "new%FF/x", "to": long})
    moved = site.ask("POST", "files/rename", json={"path": "new%FF/x", "to": "new%FF/z"})
    assert moved["path"] == f"{ROOT}/new%FF/z"
    for body in (
        {"path": "new%FF/z", "to": "d/a"},  # it is there already
        {"path": "new%FF/z", "to": "d/a", "replace": True},  # a directory replaces no file
        {"path": "new%FF", "to": "new%FF/z/below"},
        {"path": "/", "to": "root"},
        {"path": "new%FF", "to": ".spillway/new"},
        {"path": ".spillway/trash", "to": "mine"},
    ):
        assert site.ask("POST", "files/rename", 409, json=body)["detail"], body
    site.ask("POST", "files/rename", 404, json={"path": "nothing", "to": "there"})
    site.ask("DELETE", "files", 409, params={"path": "new%FF"})  # it is not empty
    site.ask("DELETE", "files", 409, params={"path": "new%FF/z/y", "ino": 1})
    gone = site.http.delete("files", params={"path": "new%FF/z/y", "ino": _ino(site, "new%FF/z/y")})
    assert gone.status_code == 204
    [entry] = site.ask("GET", "audit", params={"limit": 1})["items"]
    assert entry["before"]["path"] == "new%FF/z/y"
    removed = job(site, "DELETE", "directories", params={"path": "new%FF"})
    assert (removed["state"], removed["result"]["removed_names"]) == ("done", 2)
    site.ask("GET", "files", 404, params={"path": "new%FF"})


def _ino(site: Filled, path: str) -> int:
    ino: int = site.ask("GET", "files", params={"path": path})["ino"]
    return ino


def test_the_queue_is_listed_and_takes_orders(site: Filled) -> None:
    [item] = site.ask("GET", "queue")["items"]
    assert item["path"] == f"{ROOT}/d/w" and item["state"] in WAITS
    assert site.ask("GET", "queue", params={"path": "odd"}) == {"items": [], "next": None}
    site.ask("PUT", "queue/orders", json={"path": "d/w", "order": "hold"})
    assert site.ask("GET", "queue/orders") == [{"path": f"{ROOT}/d/w", "order": "hold"}]
    assert site.ask("GET", "queue", params={"path": "d"})["items"][0]["state"] == "held"
    assert site.http.delete("queue/orders", params={"path": "d/w"}).status_code == 204
    site.ask("DELETE", "queue/orders", 404, params={"path": "d/w"})
    site.ask("PUT", "queue/orders", 404, json={"path": "gone", "order": "bump"})
    assert site.ask("POST", "queue/retry", json={"path": "d/w"})["had_failed"] is False
    ino = _ino(site, "d/w")
    row = f"'{WorkKind.UPLOAD.value}', {ino}, 'd/w', 3, 'no', {1 << 62}, NULL, 0"
    failed = f"INSERT INTO retry VALUES ({row})"
    query(site.site.settings, failed)
    assert site.ask("POST", "queue/retry", json={"path": "d/w"})["had_failed"] is True
    [item] = site.ask("GET", "queue")["items"]
    assert (item["tries"], item["error"], item["next_try_seconds"]) == (3, "no", 0.0)
    query(site.site.settings, "DELETE FROM retry")


def test_a_page_of_a_part_of_the_queue_has_the_rest_behind_it(site: Filled) -> None:
    with site.world() as world:
        for name in "xyz":
            world.write(f"many/{name}", b"1")
    found, cursor = [], None
    while True:
        asked = {"path": "many", "limit": 2, **({"cursor": cursor} if cursor else {})}
        page = site.ask("GET", "queue", params=asked)
        found += [item["path"][-1] for item in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert sorted(found) == ["x", "y", "z"]
    job(site, "DELETE", "directories", params={"path": "many"})


def test_a_job_says_why_it_failed(site: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    # The bucket has no credentials.
    evicted = job(site, "POST", "files/evict", json={"paths": ["d"]})
    assert (evicted["state"], evicted["problem"]["status"]) == ("failed", 502)
    assert "credentials" in evicted["text"]
    monkeypatch.setattr(residency, "DEAD_SECONDS", 0.0)
    monkeypatch.setattr(residency, "POLL_SECONDS", 0.05)
    warmed = job(site, "POST", "files/warm", json={"paths": ["d", "nothing%FF"]})
    assert warmed["state"] == "done" and warmed["result"]["left_files"] == 1
    [missing] = warmed["result"]["failures"]
    assert "no nothing" in missing and "hydrator does not run" in warmed["result"]["error"]
    assert warmed["arguments"] == {"paths": ["d", "nothing%FF"]}


def test_a_job_waits_until_it_is_cancelled(site: Filled) -> None:
    began = site.ask("POST", "files/wait", 202, json={"path": "d/w"})
    id = began["id"]
    until(lambda: site.ask("GET", f"jobs/{id}")["text"].startswith("1 file, "), "progress")
    answer = site.ask("GET", f"jobs/{id}")
    assert (answer["done"], answer["total"]) == (0, 8)
    assert site.ask("POST", f"jobs/{id}/cancel")["cancel_asked"] is True
    assert ended(site, id)["state"] == "cancelled"
    site.ask("POST", f"jobs/{id}/cancel", 409)
    site.ask("POST", "jobs/0123456789abcdef/cancel", 404)
    assert job(site, "POST", "files/wait", json={"path": "d/a"})["result"] == {"durable": True}
    listed = site.ask("GET", "jobs", params={"kind": "wait", "limit": 1})
    assert listed["items"][0]["state"] == "done"
    asked = {"kind": "wait", "limit": 1, "cursor": listed["next"]}
    assert site.ask("GET", "jobs", params=asked)["items"][0]["id"] == id


def test_a_restart_resumes_jobs_or_says_what_to_do(site: Filled) -> None:
    gateway = site.site.gateway
    ran: list[dict[str, Any]] = []

    def run(work: kinds.RunningJob) -> dict[str, Any]:
        ran.append(work.arguments)
        return {}

    again, once = JobKind("again", run), JobKind("once", run, "look at the bucket, and ask again")
    never = JobThreads(gateway.settings, gateway.database, gateway.store, (again, once, *KINDS))
    never.stop()  # what it is given stays for the next one
    ids = {
        name: never.submit(kind, {"name": name}, ADMIN, "r").id
        for name, kind in (("w", "once"), ("r", "again"), ("i", "once"), ("c", "again"))
    }
    with gateway.store.writing() as session:
        for name in ("r", "i", "c"):
            session.run(rows.RUN, the_id=ids[name], new_text="half", now_ns=1)
        session.run(rows.CANCEL, the_id=ids["c"])
    next_one = JobThreads(gateway.settings, gateway.database, gateway.store, (again, once))
    next_one.start()
    found = {name: ended(site, id) for name, id in ids.items()}
    next_one.stop()
    states = {name: one["state"] for name, one in found.items()}
    assert states == {"w": "done", "r": "done", "i": "interrupted", "c": "cancelled"}
    assert found["i"]["text"] == "the gateway was restarted: look at the bucket, and ask again"
    assert sorted(entry["name"] for entry in ran) == ["r", "w"]


def test_jobs_end_with_the_process_and_bounds_hold(
    site: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = site.site.gateway
    running = JobThreads(gateway.settings, gateway.database, gateway.store, KINDS)
    id = running.submit("wait", {"paths": ["d/w"]}, ADMIN, "r").id
    until(lambda: site.ask("GET", f"jobs/{id}")["state"] == "running", "the job")
    running.stop()
    assert site.ask("GET", f"jobs/{id}")["state"] == "running"  # the next start resumes it
    monkeypatch.setattr("admin_api.jobs.runner.WAITING_MAX", 0)
    with pytest.raises(Problem, match="jobs wait already"):
        running.submit("wait", {"paths": ["d/w"]}, ADMIN, "r")
    other = JobThreads(gateway.settings, gateway.database, gateway.store, KINDS)
    other.cancel(id)
    other.start()
    assert ended(site, id)["state"] == "cancelled"
    other.stop()


def test_jobs_that_wait_keep_no_others_from_work(site: Filled) -> None:
    gateway = site.site.gateway
    go_on = threading.Event()

    def wait(_work: kinds.RunningJob) -> dict[str, Any]:
        assert go_on.wait(30)
        return {}

    given = JobKind("waits", wait, waits=True), JobKind("works", lambda _work: {})
    runner = JobThreads(gateway.settings, gateway.database, gateway.store, given)
    waiting = [runner.submit("waits", {}, ADMIN, "r").id for _ in range(THREADS + 1)]
    assert ended(site, runner.submit("works", {}, ADMIN, "r").id)["state"] == "done"
    go_on.set()
    assert {ended(site, id)["state"] for id in waiting} == {"done"}
    runner.stop()


def test_an_unforeseen_error_of_a_job_is_not_shown(site: Filled) -> None:
    gateway = site.site.gateway

    def run(_work: kinds.RunningJob) -> dict[str, Any]:
        raise RuntimeError("a secret of the inside")

    runner = JobThreads(
        gateway.settings, gateway.database, gateway.store, (JobKind("breaks", run),)
    )
    failed = ended(site, runner.submit("breaks", {}, ADMIN, "r").id)
    runner.stop()
    assert failed["state"] == "failed" and "secret" not in json.dumps(failed)


def test_bucket_and_status(site: Filled) -> None:
    def bucket_of() -> dict[str, Any]:
        document: dict[str, Any] = site.ask("GET", "status")["bucket"]
        return document

    until(lambda: bucket_of()["reachable"] is not None, "the answer of the bucket")
    bucket = bucket_of()
    assert bucket["reachable"] is False and "no credentials" in bucket["error"]
    assert bucket["checksum"] == {"kind": None, "source": None}
    assert site.ask("POST", "bucket/test")["reachable"] is False
    assert "no credentials" in site.ask("POST", "bucket/setup", 502, json={})["detail"]
    until(lambda: site.ask("GET", "status")["cache"]["resident"] is not None, "the count of files")
    status = site.ask("GET", "status")
    assert status["healthy"] is False and status["processes"]["drain"]["alive"] is False
    assert status["dirty"]["files"] == 1 and status["cache"]["absent"] == {"files": 1, "bytes": 8}


def test_the_configuration_has_no_secret(site: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLWAY_DRAIN_WORKERS", "7")
    sections = site.ask("GET", "configuration")["sections"]
    assert sections["drain"]["workers"]["is_overridden"] is True
    assert sections["bucket"]["name"]["value"] == "b"
    settings = replace(
        site.site.settings,
        namespace=NamespaceSettings(url="postgresql://user:hush@host/db?password=hush"),
        bucket=BucketSettings(name="b", endpoint_url="https://user:hu/sh@host:9000"),
    )
    gateway = replace(site.site.gateway, settings=settings)
    monkeypatch.setattr(site.site.app.state, "gateway", gateway)
    page = site.page("/settings")
    for shown in (json.dumps(to_json(configuration.model(settings))), page):
        assert "hush" not in shown and "hu/sh" not in shown
        assert "https://***@host:9000" in shown
        assert "postgresql://user:***@host/db" in shown
    assert "The variable SPILLWAY_DRAIN_WORKERS sets it" in page
    assert without_userinfo("https://host/a") == "https://host/a"


def test_long_lists_cost_no_more_behind(site: Filled) -> None:
    """The pages of a directory are found by an index, on both ends of the list."""
    database = Database(site.site.settings.database_url)
    sql, parameters = ENTRIES_BY_NAME.compiled(database.dialect)
    with database.reader() as connection:
        values = parameters({"parent": 2, "name": b"x", "most": 10})
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    database.close()
    assert not [line for line in plan if "SCAN" in line or "TEMP B-TREE" in line], plan
