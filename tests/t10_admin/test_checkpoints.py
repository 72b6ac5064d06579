"""The routes of checkpoints and runs: lists, pins, deletions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert

from admin_api.access.authentication import authenticate
from admin_api.app import create_app
from admin_api.events import CatalogueWatcher
from gateway.catalogue.display_state import CATALOGUED, EXPIRED
from gateway.cli.main import main
from gateway.config.settings import Settings
from gateway.db.compiled import Statement
from gateway.db.engine import Database
from gateway.db.statements import checkpoint, inode
from tests.support.adminsite import ADMIN, serving
from tests.support.checkpoints.keeping import save
from tests.support.t10.filled import Filled, filled, tag
from tests.support.volumes import query

MANY = 10_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A site that tests leave as it is."""
    with filled(tmp_path_factory.mktemp("admin")) as made:
        yield made


def names(found: dict[str, Any]) -> list[str]:
    return [item["path"].removeprefix("/checkpoints/jobs/") for item in found["items"]]


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("", ["a/step-1", "a/step-2", "a/step-3", "a/step-4", "b/step-1", "b/step-2"]),
        ("run=jobs/b", ["b/step-1", "b/step-2"]),
        ("run=jobs/b&sort=-run", ["b/step-2", "b/step-1"]),
        ("state=writing", ["b/step-2"]),
        ("state=durable&text=step-3", ["a/step-3"]),
        ("state=broken", []),
        ("text=b/step&rule=dcp", ["b/step-1", "b/step-2"]),
        ("rule=nothing", []),
        ("sort=-complete&limit=3", ["b/step-2", "b/step-1", "a/step-4"]),
        ("sort=size&limit=1", ["b/step-2"]),
    ],
)
def test_a_list_has_what_was_asked_for(site: Filled, question: str, wanted: list[str]) -> None:
    assert names(site.ask("GET", f"checkpoints?{question}")) == wanted


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("state=gone", 422),
        ("sort=name", 422),
        ("limit=0", 422),
        ("rule=a%00b", 422),
        ("cursor=nonsense", 400),
        ("sort=size&cursor=WyJydW4iLDEsMl0", 400),  # of another order
        ("sort=size&cursor=WyJzaXplIiwxZTk5LDJd", 400),
        ("sort=size&cursor=WyJzaXplIiw5OTk5OTk5OTk5OTk5OTk5OTk5OTksMl0", 400),  # no integer of SQL
        ("cursor=WyJydW4iLCJ4eCIsMSwieHgiLDFd", 400),  # no bytes
    ],
)
def test_a_wrong_question_is_a_problem(site: Filled, question: str, status: int) -> None:
    answer = site.ask("GET", f"checkpoints?{question}", status)
    assert answer["detail"]


def test_one_checkpoint_has_what_people_said_of_it(site: Filled) -> None:
    ino = site.ino("a/step-4")
    answer = site.http.get(f"checkpoints/{ino}")
    document = answer.json()
    assert answer.headers["ETag"] == f'"{document["evidence"]}"'
    assert (document["run"], document["step"], document["state"], document["files"]) == (
        "jobs/a",
        4,
        "durable",
        2,
    )
    assert (document["pinned"], document["promotions"]) == (False, [])
    pinned = site.ask(
        "POST", "pins", 201, json={"path": document["path"], "note": "look at its loss"}
    )
    assert (pinned["ino"], pinned["note"]) == (ino, "look at its loss")
    assert site.ask("GET", f"checkpoints/{ino}")["pinned"]
    refused = site.ask("DELETE", f"checkpoints/{ino}?force=true", 409)
    assert "pinned" in refused["detail"]
    assert site.http.delete(f"pins/{ino}").status_code == 204
    assert not site.ask("GET", f"checkpoints/{ino}")["pinned"]
    for verb in ("GET", "DELETE"):
        assert "no checkpoint" in site.ask(verb, "checkpoints/1", 404)["detail"]


def test_states_are_those_that_the_command_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with filled(tmp_path) as site:
        settings = site.site.settings
        with site.world() as world:
            save(world, "jobs/c/step-1")
            query(settings, "UPDATE object SET storage_class = 'GLACIER_IR' WHERE key LIKE '%/c/%'")
        site.ask("DELETE", f"checkpoints/{site.ino('a/step-1')}")
        with site.world():
            pass
        capsys.readouterr()
        assert main(["checkpoints", "--config", str(settings.source), "--json"]) == 0
        command = json.loads(capsys.readouterr().out)["checkpoints"]
        states = {
            entry["path"].removeprefix("/checkpoints/jobs/"): entry["state"] for entry in command
        }
        assert states == {
            **{"a/step-1": "expired", "a/step-2": "durable", "a/step-3": "durable"},
            **{"a/step-4": "durable", "b/step-1": "complete", "b/step-2": "writing"},
            "c/step-1": "archived",
        }
        told = site.ask("GET", "checkpoints")["items"] + site.ask("GET", "trash")["items"]
        assert {entry["path"]: entry["state"] for entry in told} == {
            entry["path"]: entry["state"] for entry in command
        }
        planned = site.ask("GET", "retention/plan")["checkpoints"]
        assert {entry["path"]: entry["state"] for entry in planned}.items() <= {
            (entry["path"], entry["state"]) for entry in command
        }
        counted = site.ask("GET", "status")["catalogue"]["checkpoints"]
        for state in (*CATALOGUED, EXPIRED):
            wanted = [name for name, known in states.items() if known == state]
            if state == EXPIRED:
                assert site.open("/checkpoints/list", state=state).headers["Location"] == "/trash"
                continue
            answer = site.ask("GET", f"checkpoints?state={state}")
            assert names(answer) == wanted
            assert counted[state] == len(wanted)
            page = site.page("/checkpoints/list", state=state)
            for entry in command:
                is_there = f'href="/checkpoints/{entry["ino"]}"' in page
                assert is_there == (entry["state"] == state)
        page = site.page(f"/checkpoints/{site.ino('c/step-1')}")
        assert "archived</span>" in page
        assert "GLACIER_IR" in page


def test_a_move_to_another_storage_class_is_an_event(tmp_path: Path) -> None:
    with filled(tmp_path) as site:
        database = Database(site.site.settings.database_url)
        looker = CatalogueWatcher(site.site.settings, database)
        assert looker.look() == []
        ino = site.ino("a/step-4")
        query(
            site.site.settings,
            "UPDATE checkpoint SET storage_class = 'GLACIER_IR' WHERE ino = :ino",
            ino=ino,
        )
        [(kind, facts)] = looker.look()
        database.close()
    assert (kind, facts["ino"], facts["state"]) == ("checkpoint", ino, "archived")


def test_runs_say_what_is_at_risk(site: Filled) -> None:
    first = site.ask("GET", "runs?limit=1")
    second = site.ask("GET", f"runs?limit=1&cursor={first['next']}")
    assert [item["run"] for item in first["items"] + second["items"]] == ["jobs/a", "jobs/b"]
    assert second["next"] is None
    assert first["items"][0]["newest_durable"]["step"] == 4
    assert second["items"][0]["newest_durable"] is None
    assert second["items"][0]["at_risk_bytes"] > 0
    assert site.ask("GET", "runs?run=jobs/c")["items"] == []


def test_a_deletion_obeys_the_guards(tmp_path: Path) -> None:
    with filled(tmp_path) as site:
        newest, older = site.ino("a/step-4"), site.ino("a/step-1")
        for path, why in (
            ("a/step-4", "the newest complete one"),
            ("b/step-1", "the newest complete one"),
            ("b/step-2", "not complete"),
        ):
            refused = site.ask("DELETE", f"checkpoints/{site.ino(path)}", 409)
            assert why in refused["detail"]
            assert "force" in refused["detail"]
        # A save changed it meanwhile: it is not what was seen.
        seen = site.http.get(f"checkpoints/{older}")
        with site.world() as world:
            world.write("jobs/a/step-1/__0_1.distcp", b"more")
        changed = site.ask("DELETE", f"checkpoints/{older}", 412, headers=tag(seen))
        assert changed["current"]["files"] == 3
        made = site.ask("DELETE", f"checkpoints/{site.ino('a/step-2')}?reason=a test")
        assert made["path"] == "/checkpoints/jobs/a/step-2"
        made = site.ask("DELETE", f"checkpoints/{newest}?force=true")
        assert made["id"] == f"t{newest}"
        with site.world():
            pass
        assert names(site.ask("GET", "checkpoints?run=jobs/a")) == ["a/step-1", "a/step-3"]
        log = site.ask("GET", "retention/log")["items"]
        assert [(entry["what"], entry["author"], entry["step"]) for entry in log] == [
            ("trash", "tests", 4),
            ("trash", "tests", 2),
        ]
        assert log[1]["reason"] == "a test"
        assert log[1]["result"] == f"in the trash as t{log[1]['ino']}"


def test_nothing_is_deleted_while_the_catalogue_is_made(tmp_path: Path) -> None:
    with filled(tmp_path) as site:
        ino = site.ino("a/step-1")
        query(site.site.settings, "DELETE FROM catalogue")
        refused = site.ask("DELETE", f"checkpoints/{ino}?force=true", 409)
        assert "not looked at as a whole" in refused["detail"]


def _fill(database: Database) -> list[int]:
    """Add many checkpoints, some of them without steps or with names that are no text."""
    inos = range(1_000_000, 1_000_000 + MANY)
    files = [
        {
            **{column.name: None if column.nullable else 0 for column in inode.c},
            **{"ino": ino, "kind": 7, "nlink": 2, "parent": 1},
        }
        for ino in inos
    ]
    rows = [
        {
            **{column.name: None for column in checkpoint.c},
            **{"ino": ino, "parent": 1, "path": b"jobs/%d/\xff%d" % (ino % 40, ino)},
            **{"run": b"jobs/%d\xff" % (ino % 40), "step": ino if ino % 7 else None},
            **{"rule": "dcp", "extent": 1, "state": "durable", "files": 64, "size": ino % 9},
            **{"dirty_files": 0, "dirty_size": 0, "evidence": "e", "complete_ns": ino},
        }
        for ino in inos
    ]
    with database.writing() as session:
        session.run_each(Statement(insert(inode)), files)
        session.run_each(Statement(insert(checkpoint)), rows)
    return list(inos)


def test_pages_show_each_row_once_while_rows_change(settings: Settings) -> None:
    database = Database(settings.database_url)
    inos = _fill(database)
    app = create_app(settings)
    app.dependency_overrides[authenticate] = lambda: ADMIN
    stop = threading.Event()
    stayed = {ino for at, ino in enumerate(inos) if at % 10 > 1}

    def change() -> None:
        # Every tenth row grows, and others are deleted or come back elsewhere.
        for turn in count():
            if stop.is_set():
                return
            with database.writing() as session:
                grow, gone = inos[turn * 10 % MANY], inos[(turn * 10 + 1) % MANY]
                session._connection.execute(
                    f"UPDATE checkpoint SET size = size + 5 WHERE ino = {grow}"
                )
                session._connection.execute(f"DELETE FROM checkpoint WHERE ino = {gone}")

    changing = threading.Thread(target=change)
    with serving(app) as url, httpx.Client(base_url=f"{url}/api/v1", timeout=60) as http:
        changing.start()
        try:
            for sort in ("run", "-run", "-size"):
                answer = [one for one in _all(http, sort) if one in stayed]
                assert len(answer) == len(stayed)
                assert set(answer) == stayed
            # A name that is no text can be sent back as the answer has it.
            [first] = http.get("checkpoints?limit=1").json()["items"]
            assert first["run"] == "jobs/0%FF"
            of_run = http.get("checkpoints", params={"run": first["run"], "limit": 1000}).json()
            assert len(of_run["items"]) in range(100, 251)
            assert {item["run"] for item in of_run["items"]} == {first["run"]}
        finally:
            stop.set()
            changing.join()
    database.close()
    app.state.gateway.database.close()


def _all(http: httpx.Client, sort: str) -> list[int]:
    seen: list[int] = []
    question = {"sort": sort, "limit": "1000"}
    while True:
        page = http.get("checkpoints", params=question)
        assert page.status_code == 200, page.text
        seen += [item["ino"] for item in page.json()["items"]]
        if page.json()["next"] is None:
            return seen
        question["cursor"] = page.json()["next"]
