"""Events of webhooks: each is found once, whatever ended between two looks, on both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from admin_api.webhook_events import EventFinder
from admin_api.webhook_queue import WebhookQueue
from gateway.common.models import from_json
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.retention import store
from gateway.lifecycle.retention.store import ActionRow
from gateway.service.status import Status
from tests.support.checkpoints.keeping import FILES, Bin, applier, catch_up, put
from tests.support.checkpoints.world import World
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings, make_volume, query, status_of


class Finding:
    """A gateway with a receiver, and what its queue gets."""

    def __init__(self, settings: Settings, namespace: Namespace, directory: Path) -> None:
        table = {"name": "chat", "url": "http://h/", "secret_file": "/s"}
        made = replace(settings.webhooks, receiver=(table,))
        self.settings = replace(settings, webhooks=made)
        self.world = World(settings, namespace)
        self.database = Database(settings.database_url)
        self.queue = WebhookQueue(directory / "webhooks.db")
        self.status: Status | None = None
        self.restart()

    def restart(self) -> None:
        self.finder = EventFinder(self.settings, self.database, self.queue, self._status)

    def _status(self) -> Status:
        assert self.status is not None
        return self.status

    def save(self, path: str, *, durable: bool = False) -> None:
        for name in FILES:
            self.world.write(f"{path}/{name}", b"12345")
            if durable:
                self.world.drain(f"{path}/{name}")

    def drain(self, path: str) -> None:
        for name in FILES:
            self.world.drain(f"{path}/{name}")

    def found(self) -> list[tuple[str, str]]:
        """Look, and return type and subject of what the receiver would get."""
        catch_up(self.world)
        self.finder.look()
        return [(one["type"], one["subject"]) for one in self.taken()]

    def taken(self) -> list[dict[str, Any]]:
        documents = []
        while (event := self.queue.first("chat")) is not None:
            documents.append(json.loads(event.body))
            assert documents[-1]["id"] == event.id
            self.queue.done(event)
        return documents


@contextmanager
def opened(settings: Settings, directory: Path) -> Iterator[Finding]:
    with closing(Namespace(settings)) as namespace:
        made = Finding(settings, namespace, directory)
        with closing(made.queue), closing(made.database):
            yield made
            made.world.end()


@pytest.fixture
def each_finding(settings: Settings, tmp_path: Path) -> Iterator[Finding]:
    """A gateway on each engine."""
    with opened(settings, tmp_path) as made:
        yield made


@pytest.fixture
def finding(tmp_path: Path) -> Iterator[Finding]:
    """A gateway on SQLite, for what the statements do not decide."""
    settings = make_settings(tmp_path / "data")
    make_volume(settings)
    with opened(settings, tmp_path) as made:
        yield made


def test_what_is_there_at_the_first_look_is_no_news(finding: Finding) -> None:
    finding.save("run/step-1", durable=True)
    end(finding, begin(finding, b"run/step-0"), "in the trash as t")
    assert finding.found() == []
    assert finding.found() == []


def test_each_event_of_a_checkpoint_is_found_once(each_finding: Finding) -> None:
    finding = each_finding
    assert finding.found() == []
    finding.save("run/step-1")
    path = "/checkpoints/run/step-1"
    assert finding.found() == [("checkpoint.complete", path)]
    assert finding.found() == []
    finding.drain("run/step-1")
    assert finding.found() == [("checkpoint.durable", path)]
    finding.world.remove(f"run/step-1/{FILES[0]}")
    assert finding.found() == [("checkpoint.broken", path)]
    assert finding.found() == []


def test_a_restart_loses_and_repeats_nothing(finding: Finding) -> None:
    assert finding.found() == []
    finding.save("run/step-1", durable=True)
    finding.restart()
    both = [(f"checkpoint.{word}", "/checkpoints/run/step-1") for word in ("complete", "durable")]
    assert finding.found() == both
    finding.restart()
    assert finding.found() == []


def test_a_transaction_that_fails_loses_nothing(
    finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finding.found() == []
    finding.save("run/step-1")
    with monkeypatch.context() as context:
        context.setattr("admin_api.webhook_queue.QueueChange.see", _full)
        with pytest.raises(OSError, match="full"):
            finding.found()
    assert finding.taken() == []
    assert finding.found() == [("checkpoint.complete", "/checkpoints/run/step-1")]


def _full(*_args: object) -> None:
    raise OSError("full")


def test_events_are_in_the_order_of_completion(finding: Finding) -> None:
    assert finding.found() == []
    for step in (3, 1, 2):
        finding.save(f"run/step-{step}")
        catch_up(finding.world)
    query(finding.settings, "UPDATE checkpoint_record SET complete_ns = 1000000 - completion")
    assert [subject[-1] for _type, subject in finding.found()] == ["3", "1", "2"]


def test_a_receiver_gets_what_it_wants(finding: Finding) -> None:
    [table] = finding.settings.webhooks.receiver
    made = replace(
        finding.settings.webhooks,
        receiver=({**table, "events": ["checkpoint.durable", "alarm.*"]},),
    )
    finding.settings = replace(finding.settings, webhooks=made)
    finding.restart()
    assert finding.found() == []
    finding.save("run/step-1", durable=True)
    assert finding.found() == [("checkpoint.durable", "/checkpoints/run/step-1")]


def test_what_a_policy_deletes_is_told(each_finding: Finding, tmp_path: Path) -> None:
    finding = each_finding
    assert finding.found() == []
    for step in (1, 2):
        finding.save(f"run/step-{step}", durable=True)
        catch_up(finding.world)
    finding.found()
    put(finding.world, {"name": "newest", "keep_newest": 1})
    task = applier(finding.world, Bin(finding.world, tmp_path / "log"))
    task.run_once()
    catch_up(finding.world)
    finding.finder.look()
    [event] = [one for one in finding.taken() if one["type"] == "checkpoint.deleted"]
    assert event["subject"] == "/checkpoints/run/step-1"
    assert event["data"]["by"] == "newest v1" and event["data"]["step"] == 1
    finding.restart()
    assert finding.found() == []


def begin(finding: Finding, path: bytes) -> int:
    subject = ActionRow(0, 0, None, "trash", "", b"run", 1, path, 9, "", "", None)
    with finding.database.writing() as session:
        return store.begin(session, "trash", subject, "newest v1", "why")


def end(finding: Finding, action: int, result: str) -> None:
    with finding.database.writing() as session:
        store.end(session, action, result)


def test_an_action_under_way_holds_up_no_other_and_is_told_at_its_end(
    each_finding: Finding,
) -> None:
    finding = each_finding
    assert finding.found() == []
    first, second = begin(finding, b"run/1"), begin(finding, b"run/2")
    end(finding, second, "in the trash as t2")
    assert finding.found() == [("checkpoint.deleted", "/checkpoints/run/2")]
    finding.restart()
    end(finding, first, "interrupted: it is not at its path any more")
    assert finding.found() == [("checkpoint.deleted", "/checkpoints/run/1")]
    refused = begin(finding, b"run/3")
    end(finding, refused, "refused: it is open")
    assert finding.found() == []


def test_a_database_of_yesterday_hides_no_deletion(each_finding: Finding) -> None:
    finding = each_finding
    for _ in range(3):
        end(finding, begin(finding, b"old"), "in the trash as t")
    finding.found()
    query(finding.settings, "DELETE FROM action")
    sequence = "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'action'"
    if finding.database.dialect.name == "sqlite":
        tables = query(finding.settings, "SELECT name FROM sqlite_master")
        if ("sqlite_sequence",) in tables:
            query(finding.settings, sequence)
    else:
        query(finding.settings, "ALTER SEQUENCE action_id_seq RESTART WITH 1")
    end(finding, begin(finding, b"run/new"), "in the trash as t")
    assert finding.found() == [("checkpoint.deleted", "/checkpoints/run/new")]


def test_a_promotion_is_told_when_it_is_done(each_finding: Finding) -> None:
    finding = each_finding
    assert finding.found() == []
    columns = (
        "name, state, ino, path, run, step, note, asked_by, asked_ns, done_ns, top, generation, "
        "files, size, legal_hold"
    )
    path = "x'72756e2f31'" if finding.database.dialect.name == "sqlite" else "'run/1'::bytea"
    values = f"'best', 'copying', 9, {path}, NULL, 1, 'n', 'me', 1, NULL, 10, 1, 2, 3, 0"
    query(finding.settings, f"INSERT INTO promotion ({columns}) VALUES ({values})")
    assert finding.found() == []
    query(finding.settings, "UPDATE promotion SET state = 'done', done_ns = 5")
    assert finding.found() == [("checkpoint.promoted", "/checkpoints/run/1")]
    assert finding.found() == []


def test_an_alarm_is_told_when_two_looks_agree(finding: Finding) -> None:
    def look(*dead: str) -> list[tuple[str, str]]:
        facts = status_of(finding.settings)
        for name, process in facts["processes"].items():
            process["alive"] = name not in dead
        finding.status = from_json(Status, facts)
        finding.finder.look_at_alarms()
        return [(one["type"], one["subject"]) for one in finding.taken()]

    def about_processes(events: list[tuple[str, str]]) -> list[str]:
        return [type for type, subject in events if subject == "process_down"]

    assert about_processes(look("drain")) == []
    assert about_processes(look("drain")) == ["alarm.raised"]
    finding.restart()
    assert about_processes(look("drain")) == []
    assert about_processes(look()) == []
    assert about_processes(look("drain")) == [], "it came back before it was gone"
    assert about_processes(look()) == []
    assert about_processes(look()) == ["alarm.cleared"]
