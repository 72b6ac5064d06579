"""Webhooks are delivered signed, in order, at least once, and hold up nothing else."""

from __future__ import annotations

import base64
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from admin_api import webhook_sender
from admin_api.webhook_events import WebhookEvent, document
from admin_api.webhook_queue import QueueStanding, WebhookQueue
from admin_api.webhook_sender import (
    GONE_SECONDS,
    Delivery,
    HttpPost,
    WebhookReceiver,
    Webhooks,
    WebhookSender,
    signature,
)
from gateway.cli.main import main
from gateway.common import clock
from gateway.common.errors import ConfigError, UserError
from gateway.common.models import from_json, to_json
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.service import alarms, deliveries
from gateway.service.alarms import alarms_of
from gateway.service.configuration import model
from gateway.service.status import Status
from tests.support.clisite import PROGRAM, Running, Site, environ
from tests.support.ports import free_port
from tests.support.t10.hooks import Hook, receiving, table
from tests.support.volumes import make_settings, make_volume, status_of, write_settings
from tests.support.waiting import until


@pytest.fixture
def hook() -> Iterator[Hook]:
    with receiving() as made:
        yield made
    assert made.wrong == []


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[WebhookQueue]:
    with closing(WebhookQueue(tmp_path / "webhooks.db", events_max=5)) as made:
        yield made


def put(queue: WebhookQueue, *subjects: str, receiver: str = "chat") -> None:
    with queue.changing() as change:
        for subject in subjects:
            id, body = document(WebhookEvent("alarm.raised", subject, {}), "gw1", "")
            change.put(receiver, id, body)


@pytest.fixture
def sender(tmp_path: Path, hook: Hook, queue: WebhookQueue) -> Iterator[WebhookSender]:
    with closing(HttpPost()) as post:
        yield WebhookSender(WebhookReceiver.of(table(tmp_path, hook)), queue, post)


def subjects(hook: Hook) -> list[str]:
    return [document["subject"] for document in hook.got]


def test_events_arrive_signed_and_in_order(
    sender: WebhookSender, queue: WebhookQueue, hook: Hook
) -> None:
    put(queue, "a", "b", "c")
    assert [sender.step() for _ in range(4)] == [0, 0, 0, None]
    assert subjects(hook) == ["a", "b", "c"]
    assert hook.got[0]["gateway"] == "gw1"
    assert {*hook.got[0]} == {"id", "type", "timestamp", "gateway", "subject", "data"}


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """This is the example with which its libraries are tested."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    made = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("status", [500, 307, 404])
def test_an_error_keeps_the_order_and_the_id(
    sender: WebhookSender, queue: WebhookQueue, hook: Hook, status: int
) -> None:
    with receiving() as other:
        hook.answers = [(status, {"Location": other.url}), status]
        put(queue, "a", "b")
        pauses = [sender.step() for _ in range(2)]
        assert all(pause is not None and pause >= 1 for pause in pauses), pauses
        assert str(status) in sender.last.error
        assert [sender.step() for _ in range(2)] == [0, 0]
        assert other.ids == [], "a redirect was followed"
    assert subjects(hook) == ["a", "b"]
    assert len(hook.ids) == 4 and len({*hook.ids[:3]}) == 1


def test_pauses_grow_and_have_a_limit(sender: WebhookSender, queue: WebhookQueue) -> None:
    sender._post = lambda *_args: Delivery("away")
    put(queue, "a")
    pauses = [sender.step() or 0 for _ in range(40)]
    assert 1 <= pauses[0] <= 2 and 2 <= pauses[1] <= 4 and min(pauses[20:]) >= 300
    assert max(pauses) <= webhook_sender.PAUSE_MAX_SECONDS


def test_a_receiver_says_when_it_wants_to_be_asked_again(
    sender: WebhookSender, queue: WebhookQueue, hook: Hook
) -> None:
    hook.answers = [(503, {"Retry-After": "120"}), (429, {"Retry-After": "soon"})]
    put(queue, "a")
    assert sender.step() == 120
    assert (sender.step() or 0) < 10


def test_a_receiver_that_is_gone_is_left_alone_and_loses_nothing(
    sender: WebhookSender, queue: WebhookQueue, hook: Hook
) -> None:
    hook.answers = [410]
    put(queue, "a")
    assert sender.step() == GONE_SECONDS
    assert sender.last.is_gone and queue.standing("chat").waiting == 1
    assert sender.step() == 0
    assert subjects(hook) == ["a"]


def test_a_receiver_that_is_away_loses_nothing_up_to_the_bound(
    tmp_path: Path, queue: WebhookQueue
) -> None:
    port = free_port()
    away = Hook()
    away.port = port
    with closing(HttpPost()) as post:
        sender = WebhookSender(WebhookReceiver.of(table(tmp_path, away)), queue, post)
        for name in "abcde":
            put(queue, name)
            assert (sender.step() or 0) > 0
        assert "ConnectError" in sender.last.error
        # A restart: the queue is on the disk.
        queue.close()
        path = tmp_path / "webhooks.db"
        with closing(WebhookQueue(path, events_max=5)) as again, receiving(port) as hook:
            sender = WebhookSender(sender.receiver, again, post)
            assert [sender.step() for _ in range(6)] == [0, 0, 0, 0, 0, None]
    assert subjects(hook) == list("abcde")


def test_beyond_the_bound_the_oldest_are_dropped_and_counted(
    sender: WebhookSender, queue: WebhookQueue, hook: Hook
) -> None:
    put(queue, *"abcdefgh")
    put(queue, "other", receiver="mail")
    standing = queue.standing("chat")
    assert (standing.waiting, standing.dropped) == (5, 3) and standing.dropped_ns
    assert queue.standing("mail") == QueueStanding(1, queue.standing("mail").oldest_ns)
    while sender.step() == 0:
        pass
    assert subjects(hook) == list("defgh")


def test_a_silent_receiver_holds_up_no_other(
    tmp_path: Path, queue: WebhookQueue, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_sender, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(webhook_sender, "LOOK_SECONDS", 0.05)
    stop = threading.Event()
    with receiving() as silent:
        silent.is_silent.set()
        receivers = [table(tmp_path, silent), table(tmp_path, hook, "mail")]
        senders = [WebhookSender(WebhookReceiver.of(one), queue, HttpPost()) for one in receivers]
        put(queue, "a")
        put(queue, "a", "b", receiver="mail")
        webhooks = Webhooks(queue, senders, lambda: 0, lambda: 0, stop)
        webhooks.start()
        try:
            until(lambda: subjects(hook) == ["a", "b"], "what the other gets")
            assert silent.got == []
            until(lambda: "Timeout" in webhooks.report()["chat"]["error"], "the error")
            assert webhooks.report()["mail"]["error"] == ""
            silent.is_silent.clear()
            silent.goes_on.set()
            until(lambda: queue.standing("chat").waiting == 0, "what was silent before")
            assert {*subjects(silent)} == {"a"} and len({*silent.ids}) == 1
        finally:
            stop.set()


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (None, 0, "No such file"),
        ("whsec_c2hvcnQ=", 0o600, "has no secret of at least 24 bytes"),
        ("whsec_!", 0o600, "has no secret"),
        ("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", 0o604, "others can read"),
    ],
)
def test_without_a_secret_nothing_is_sent(
    tmp_path: Path, hook: Hook, text: str | None, mode: int, problem: str
) -> None:
    receiver = WebhookReceiver.of(table(tmp_path, hook))
    receiver.secret_file.unlink()
    if text is not None:
        receiver.secret_file.write_text(text)
        receiver.secret_file.chmod(mode)
    delivery = webhook_sender.send_test("gw1", receiver)
    assert problem in delivery.error and hook.ids == []


def test_no_error_quotes_the_url(tmp_path: Path) -> None:
    away = Hook()
    away.port = free_port()
    made = {**table(tmp_path, away), "url": f"http://127.0.0.1:{away.port}/a-secret-path"}
    assert "a-secret" not in webhook_sender.send_test("gw1", WebhookReceiver.of(made)).error


def test_a_queue_of_another_release_or_without_sense_is_told(tmp_path: Path) -> None:
    path = tmp_path / "webhooks.db"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(UserError, match="move it away"):
        WebhookQueue(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 9")
    with pytest.raises(UserError, match="another release"):
        WebhookQueue(path)


def test_a_receiver_that_left_the_configuration_loses_its_events(queue: WebhookQueue) -> None:
    put(queue, "a")
    put(queue, "a", receiver="mail")
    queue.keep_only(["mail"])
    assert queue.standing("chat").waiting == 0 and queue.standing("mail").waiting == 1


GOOD = {"name": "chat", "url": "https://h/p", "secret_file": "/s"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "Chat"}, "without a name"),
        ({"url": "ftp://h/"}, "must have a url"),
        ({"url": "https://user:pass@h/"}, "must have a url"),
        ({"secret_file": "s"}, "must have a secret_file"),
        ({"events": ["checkpoint.gone"]}, "must have events out of"),
        ({"events": []}, "must have events out of"),
        ({"secret": "s"}, "has the key secret"),
    ],
)
def test_a_wrong_receiver_is_refused_without_its_url(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        make_settings(tmp_path, {"webhooks": {"receiver": [{**GOOD, **change}]}})
    assert "pass" not in str(caught.value).replace("password", "")


def test_the_configuration_shows_no_path_of_a_url(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, {"webhooks": {"receiver": [GOOD]}})
    shown = model(settings).sections["webhooks"]["receiver"].value
    assert shown == [{**GOOD, "url": "https://h/***"}]


def reported(settings: Settings, **facts: Any) -> Status:
    """Return the status of a gateway whose process of the admin API reported."""
    (settings.run_dir / datadir.DELIVERIES).write_text(json.dumps({"chat": facts, "old": {}}))
    return from_json(Status, to_json(from_json(Status, status_of(settings))))


def test_an_alarm_says_what_is_dropped_or_late(tmp_path: Path, hook: Hook) -> None:
    settings = write_settings(tmp_path, {"webhooks": {"receiver": [table(tmp_path, hook)]}})
    make_volume(settings)
    found = reported(settings, waiting=2, oldest_ns=None, dropped=3, dropped_ns=1, error="")
    assert alarms.of(found)[alarms.EVENTS_DROPPED] == 0, "it was long ago"
    now_ns = clock.now_ns()
    found = reported(settings, waiting=2, dropped=3, dropped_ns=now_ns)
    assert alarms.of(found)[alarms.EVENTS_DROPPED] == 3
    assert [one.text for one in alarms_of(found) if "dropped" in one.text] == [
        "3 events for chat were dropped, because too many waited"
    ]
    hours_ago = now_ns - 2 * 3600 * clock.NS
    found = reported(settings, waiting=2, oldest_ns=hours_ago, error="it answers 503")
    assert alarms.of(found)[alarms.DELIVERIES_LATE] == 1
    assert list(deliveries.lines(found.deliveries)) == [
        "chat: 2 wait, the first for 2.0 h; it answers 503 (LATE)"
    ]
    assert {*found.deliveries} == {"chat"}


def test_a_person_can_try_a_receiver(
    tmp_path: Path, hook: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = write_settings(tmp_path, {"webhooks": {"receiver": [table(tmp_path, hook)]}})
    words = ["webhook", "test", "--config", str(settings.source)]
    assert main([*words, "chat"]) == 0
    assert hook.types() == ["webhook.test"]
    hook.answers = [500]
    assert main([*words, "--json", "chat"]) == 1
    assert '"error": "it answers 500"' in capsys.readouterr().out
    assert main([*words, "mail"]) == 2
    assert "there are chat" in capsys.readouterr().err


def test_the_process_delivers_and_reports(tmp_path: Path, hook: Hook) -> None:
    """The audit log is exported by it too."""
    site, data = Site(tmp_path, free_port()), str(tmp_path / "data")
    assert main(["init", "--config", str(site.config), "--data-dir", data, "--bucket", "b"]) == 0
    made = table(tmp_path, hook)
    inline = ", ".join(f"{name} = {json.dumps(value)}" for name, value in made.items())
    site.edit("webhooks", "receiver", f"[{{{inline}}}]")
    site.edit("admin", "port", str(free_port()))
    file = tmp_path / "audit.jsonl"
    site.edit("admin", "audit_export", f'"{file}"')
    settings = site.settings
    words = ["token", "create", "--config", str(site.config), "--role", "viewer"]
    assert main(words) == 0
    with closing(WebhookQueue(settings.webhooks_db)) as queue:
        put(queue, "before")
        hook.answers = [500]
        with Running([str(PROGRAM), "admin", "--config", str(site.config)], environ()) as admin:
            admin.expect("chat does not take events: it answers 500")
            until(lambda: subjects(hook) == ["before"], "the event")
            until(lambda: queue.seen("state"), "the first look")
            until(lambda: file.exists() and "token create" in file.read_text(), "the entry")
        report = datadir.read(settings, datadir.DELIVERIES)
    assert report is not None and report["chat"]["dropped"] == 0
    assert report["audit_export"]["error"] == ""
