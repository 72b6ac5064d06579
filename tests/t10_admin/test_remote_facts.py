"""Commands about what a gateway knows, against a gateway on another machine."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from admin_api import dashboard
from admin_api.dashboard import Sample
from admin_api.store import open_store
from gateway.cli import api
from gateway.cli.main import main
from gateway.common import clock
from tests.support.clisite import PROGRAM, Running, environ
from tests.support.t10 import remote as shared
from tests.support.t10.remote import Remote, Run, done
from tests.support.volumes import query
from tests.support.waiting import until

remote = shared.remote
server = shared.server
run = shared.run


@pytest.fixture(scope="module", autouse=True)
def fill(remote: Remote) -> None:
    """Add samples of three hours, a plan that is asked about, an approved one, and a pin."""
    settings = remote.settings
    store = open_store(settings)
    now_ns = clock.now_ns()
    with store.writing() as session:
        for minutes in range(5, 180, 5):
            at_ns = now_ns - minutes * 60 * clock.NS
            dashboard.put(session, Sample(at_ns, minutes << 20, 3.5e6, None, rpo_seconds=90.0))
    store.close()
    for plan, approved_ns in (("0123456789ab", None), ("ba9876543210", now_ns)):
        query(
            settings,
            "INSERT INTO approval VALUES (:plan, '[]', 3, 4096, :asked, :approved, :author, NULL)",
            plan=plan,
            asked=now_ns - clock.NS,
            approved=approved_ns,
            author=None if approved_ns is None else "mara",
        )
    query(
        settings,
        "INSERT INTO retry (work, ino, key, tries, next_ns, error)"
        " SELECT 'uploads', ino, :key, 4, :next, '503 SlowDown' FROM dirent WHERE name = :name",
        key="d/w",
        next=now_ns + 3600 * clock.NS,
        name=b"w",
    )
    assert (
        main([*remote.options(), "checkpoint", "pin", "--note", "the best", "jobs/a/step-2"]) == 0
    )


def past() -> list[str]:
    """Return the options of the last three hours but the last minutes: samples are taken there."""
    now = datetime.now(UTC).replace(microsecond=0)
    begin, end = now - timedelta(hours=3), now - timedelta(minutes=4)
    return ["--from", begin.isoformat(), "--to", end.isoformat()]


def test_what_is_read_says_what_a_person_needs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "durable" in done(run, "checkpoint", "show", "jobs/a/step-1")
    listed = done(
        run, "checkpoint", "list", "--sort", "complete", "--reverse", "--state", "durable"
    )
    assert [line.split("/")[-1] for line in listed.splitlines()][-1].startswith("step-1")
    assert "/checkpoints/jobs/a/step-" in listed
    stat = done(run, "stat", "d/a")
    assert "object            d/a" in stat and "8 bytes, stored" in stat
    until(lambda: "failing, 4 tries" in done(run, "stat", "d/w"), "the end of its settle time")
    failing = done(run, "stat", "d/w")
    assert re.search(r"4 tries, next in (59|60)\.[0-9] min: 503 SlowDown", failing)
    assert "object            none" in failing
    calls = done(run, "audit", "--who", "admin", "--path", "/api/v1/pins")
    head, *rows = (re.split("  +", line) for line in calls.splitlines())
    assert head == ["when", "who", "from", "what", "result"]
    assert ["admin", "127.0.0.1", "POST /api/v1/pins", "201"] in [row[1:] for row in rows]
    head, *hour = (
        re.split("  +", line.strip()) for line in done(run, "history", *past()).splitlines()
    )
    assert len(hour) == 35 and head[:3] == ["time", "dirty", "written"]
    last = dict(zip(head, hour[-1], strict=True))
    assert (last["written"], last["at risk"]) == ("3.3 MiB/s", "1.5 min")
    _file, titles, key, _doc = done(run, "configuration", "drain.workers").splitlines()
    assert titles.split() == ["key", "value", "from", "default"]
    assert key.split()[0] == "drain.workers" and key.split()[2] in ("default", "file")
    assert "approved" in done(run, "policy", "approvals")
    assert json.loads(done(run, "token", "whoami", "--json"))["role"] == "admin"
    variable = "SPILLWAY_NAMESPACE_URL"
    monkeypatch.setenv(variable, "postgresql://user:hidden@db.example/name")
    _status, out, _err = run("configuration", "namespace.url", here=True)
    assert "db.example" in out and f"  {variable}" in out and "hidden" not in out


def test_the_gateway_is_asked_about_its_bucket(run: Run) -> None:
    far, near = run("bucket", "setup"), run("bucket", "setup", here=True)
    assert (far[0], near[0]) == (2, 2)
    assert near[2].removeprefix("spillway: ").strip() in far[2] and "no credentials" in far[2]
    assert "needs the role admin" in run("bucket", "setup", role="operator")[2]
    taken = run("bucket", "setup", "--adopt")
    assert taken[0] == 2 and "no credentials" in taken[2]
    assert "run it there" in run("bucket", "test", "--adopt")[2]
    status, out, err = run("bucket", "test", role="operator")
    assert (status, err) == (1, "") and "no credentials" in out


@pytest.mark.usefixtures("server")
def test_a_checkpoint_is_deleted_and_taken_back(run: Run) -> None:
    step = "/checkpoints/jobs/a/step-1"
    newest = "jobs/a/step-4"
    status, out, err = run("checkpoint", "delete", newest)
    assert (status, out) == (1, "") and "--force deletes it nevertheless" in err
    assert "spillway checkpoint list lists them" in run("checkpoint", "delete", "jobs/a", "none")[2]
    assert "needs the role admin" in run("checkpoint", "delete", step, role="operator")[2]
    for here in (False, True):
        words = ("--reason", "diverged", "jobs/a/step-1")
        # There are no credentials for the bucket, so it cannot be asked for the newer one.
        assert "the bucket cannot be asked" in run("checkpoint", "delete", *words, here=here)[2]
        status, out, err = run("checkpoint", "delete", "--force", *words, here=here)
        assert (status, err) == (0, ""), err
        assert out.startswith(f"{step}: in the trash as t")
        trash = done(run, "trash", "list")
        assert step in trash and "diverged" in trash
        assert "it is back" in run("trash", "restore", step)[1]
        history = [line for line in done(run, "stat", step).splitlines() if "history" in line]
        assert "restored: " in history[0] and "deleted: in the trash as t" in history[1]
        assert "diverged" in history[1]
    [made] = json.loads(done(run, "checkpoint", "delete", "--force", "--json", newest))
    assert made["path"] == f"/checkpoints/{newest}"
    done(run, "trash", "restore", made["id"])


def test_an_upload_is_cancelled(run: Run) -> None:
    path = "jobs/b/step-1"
    for here in (False, True):
        said = run("queue", "cancel", path, here=here)[1]
        assert said == f"{path}: its upload ends, and it is held: spillway queue release {path}\n"
        assert done(run, "queue").splitlines()[-1].startswith("hold")
        done(run, "queue", "release", path)
    assert "name a PATH" in run("queue", "cancel")[2]
    assert run("queue", "cancel", "none")[0] == 2


def test_what_a_promotion_is_to_have_is_sent(run: Run, remote: Remote) -> None:
    start = ("checkpoint", "promote", "--as", "v3", "--no-wait", "--json", "jobs/a/step-3")
    assert "--to: any key may be of a client's file" in run(*start, "--to", "models")[2]
    assert "--tag 'wrong': write key=value" in run(*start, "--tag", "wrong")[2]
    assert run(*start, "--legal-hold")[0] > 0
    done(run, *start, "--tag", "team=llm")
    assert query(remote.settings, "SELECT tags FROM promotion") == [('{"team": "llm"}',)]
    done(run, "promotion", "remove", "v3", "--yes", "--no-wait")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("audit", "--since", "yesterday"), "--since 'yesterday': must look like 2026-11-23T09:30"),
        (("audit", "--until", "2026-13-01"), "--until '2026-13-01': must look like"),
        (("audit", "--limit", "many"), "--limit"),
        (("history", "--step", "10s"), "--step '10s': must be at least 1m"),
        (("history", "--step", "1.5x"), "--step '1.5x'"),
        (("history", "--from", "2026-01-02", "--to", "2026-01-01"), "is not before --to"),
        (("history", "--from", "90d"), "that would be over 2000 rows"),
        (("configuration", "no\x1bne"), r"there is no key no\x1bne: spillway configuration"),
        (("checkpoint", "list", "--state", "none"), "--state"),
        (("checkpoint", "list", "--sort", "name"), "--sort"),
        (("events", "--kind", "none"), "--kind"),
        (("policy", "validate", "/none.toml"), "cannot read /none.toml"),
        (("policy", "plan", "--fate", "none"), "--fate"),
        (("job", "list", "--state", "none"), "--state"),
        (("bucket", "test", "--apply"), "unknown option --apply"),
        (("checkpoint", "delete"), "PATH"),
    ],
)
def test_wrong_usage_is_one_line(run: Run, words: tuple[str, ...], part: str) -> None:
    for here in (False, True):
        status, out, err = run(*words, here=here)
        assert (status, out, err.count("\n")) == (2, "", 1), (out, err)
        assert part in err


def test_some_need_the_admin_api(run: Run) -> None:
    for words in (("events", "--follow"), ("token", "whoami")):
        status, out, err = run(*words, here=True)
        assert (status, out) == (2, "") and "spillway --gateway http://127.0.0.1:8780" in err


def test_events_are_followed_until_ctrl_c(run: Run, remote: Remote) -> None:
    [state] = done(run, "events").splitlines()
    assert "  status       " in state and "files, " in state
    document = json.loads(done(run, "events", "--json"))
    assert document["event"] == "status" and "dirty_bytes" in document["data"]
    argv = [str(PROGRAM), *remote.options("viewer"), "events", "--follow"]
    with Running(argv, environ()) as follower:
        follower.expect("status")
        done(run, "warm", "--wait", "d/a")
        follower.expect("warm done: ")
        follower.process.send_signal(signal.SIGINT)
        assert follower.wait() == 130


class _Breaking(BaseHTTPRequestHandler):
    """Tells one event in each connection, refuses the third and a wrong token."""

    asked: list[str | None]

    def do_GET(self) -> None:
        self.asked.append(self.headers["Last-Event-ID"])
        count = len(self.asked)
        if count == 3:
            return  # the connection ends without an answer
        if count == 5:
            body = json.dumps({"detail": "the token has ended"})
            self._answer(401, "application/problem+json", body)
            return
        facts: dict[str, Any] = {
            "ino": 1,
            "path": f"/c/{count}",
            "run": "",
            "state": "gone",
            "dirty_bytes": 0,
        }
        event = f"id: b-{count}\nevent: checkpoint\ndata: {json.dumps(facts)}\n\n"
        self._answer(200, "text/event-stream", f"retry: 2000\n\n: still here\n\n{event}")

    def _answer(self, status: int, kind: str, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def breaking() -> Iterator[tuple[str, list[str | None]]]:
    asked: list[str | None] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Breaking,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_stream_is_taken_up_again_after_a_break(
    run: Run, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "AGAIN_SECONDS", 0.0)
    with breaking() as (url, asked):
        options = ["--gateway", url, *remote.options()[4:]]
        status, out, err = run("events", "--follow", options=options)
    told = [line.split()[-2] for line in out.splitlines()]
    assert told == ["/c/1:", "/c/2:", "/c/4:"], out
    assert asked == [None, "b-1", "b-2", "b-2", "b-4"]
    assert status == 2 and "does not take the token: the token has ended" in err
