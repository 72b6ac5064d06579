"""The command line against a gateway on another machine: the real process, over TLS."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from gateway.cli import target
from gateway.cli.main import FOR_ANY_GATEWAY, NEEDS_NO_GATEWAY, SUBCOMMANDS
from tests.support.ports import free_port
from tests.support.t10 import remote as shared
from tests.support.t10.remote import ONLY_HERE, Remote, Run, done

server = shared.server
run = shared.run
remote = shared.remote


def test_the_state_is_told(run: Run) -> None:
    status, out, _err = run("status", "--json")
    document = json.loads(out)
    assert (status, document["healthy"]) == (1, False)
    assert (
        document["bucket"]["reachable"] is False and "no credentials" in document["bucket"]["error"]
    )
    assert document["cache"]["resident"]["files"] > 0
    assert "NOT USABLE: " in run("status")[1]


@pytest.mark.usefixtures("server")
def test_orders_are_given_from_afar(run: Run, remote: Remote) -> None:
    assert done(run, "mkdir", "-p", "n/x", "n/y") == ""
    assert run("mkdir", "n/x")[::2] == (1, "spillway: n/x: it is there already\n")
    done(run, "mkdir", "--owner", "1000:2000", "-m", "2770", "n/team")
    done(run, "chown", ":3000", "n/team")
    done(run, "chmod", "2750", "n/team")
    [told] = json.loads(done(run, "stat", "--json", "n/team"))
    assert (told["mode"], told["uid"], told["gid"]) == ("2750", 1000, 3000)
    assert run("chmod", "700", "n/team", role="operator")[0] != 0
    done(run, "rm", "-r", "n/team")
    done(run, "mv", "n/x", "n/y")
    done(run, "mv", "n/y/x", "n/z")
    assert done(run, "ls", "n").split() == ["y", "z"]
    assert "not a directory" in run("mv", "n/y", "n/z", "n/none")[2]
    assert [run("rm", *words)[0] for words in (["n"], ["n/none"], ["-f", "n/none"])] == [1, 1, 0]
    assert done(run, "rm", "-r", "n") == "n: 3 names removed\n"
    assert done(run, "rm", "d/w") == "" and run("stat", "d/w")[0] == 1
    assert "pinned; its bytes are only" in done(run, "checkpoint", "pin", "d/e")
    assert done(run, "checkpoint", "unpin", "d/e") == "d/e: not pinned any more\n"
    assert run("checkpoint", "unpin", "d/e")[0] == 1
    path = "jobs/b/step-1"
    assert done(run, "queue", "hold", path) == f"{path}: hold\n"
    assert "hold" in done(run, "queue").splitlines()[-1]
    assert done(run, "queue", "release", path) == f"{path}: released\n"
    assert done(run, "queue", "retry", path) == f"{path}: nothing of it has failed\n"
    shown = run("wait", "--durable", "--timeout", "0.3", path)
    assert shown[0] == 1 and f"{path} is not durable after 0.3 s" in shown[2]
    assert done(run, "wait", "--durable", "jobs/a") == ""
    jobs = json.loads(done(run, "job", "list", "--json"))
    [job] = [entry for entry in jobs if entry["state"] == "cancelled"]
    assert "cancelled" in run("job", "show", job["id"])[1]
    assert run("job", "cancel", job["id"])[::2] == (2, "spillway: the job has ended: cancelled\n")
    assert "asked for: spillway job show" in done(run, "warm", "d/a")
    assert "on the disk" in done(run, "warm", "--wait", "d/a")


@pytest.mark.usefixtures("server")
def test_exports_promotions_and_the_trash_are_changed_from_afar(run: Run, remote: Remote) -> None:
    client = ("--client", "10.0.0.0/8 ro")
    assert done(run, "export", "set", "/mine", "--path", "jobs", *client) == "/mine: version 1\n"
    assert done(run, "export", "set", "/mine", "--squash", "all") == "/mine: version 2\n"
    assert "10.0.0.0/8 ro, squash all" in done(run, "export", "show", "/mine")
    assert "/mine: it is like this already" in done(run, "export", "validate", "/mine")
    assert done(run, "export", "reload") == "the exports are in force\n"
    assert "/checkpoints: everything" in done(run, "export", "list")
    assert "has version 2, not 1" in run("export", "remove", "/mine", "--version", "1")[2]
    assert done(run, "export", "remove", "/mine") == "/mine: removed\n"
    status, _out, err = run("checkpoint", "promote", "--no-wait", "--as", "best", "jobs/b/step-1")
    assert status == 1 and "not in the bucket yet" in err
    made = done(
        run, "checkpoint", "promote", "--no-wait", "--as", "best", "jobs/a/step-4", "--note", "good"
    )
    assert made.startswith("best  copying  2 files")
    assert "would be removed" in run("promotion", "remove", "best")[1]
    assert (
        done(run, "promotion", "remove", "best", "--yes", "--no-wait") == "best: is being removed\n"
    )
    ino = json.loads(done(run, "stat", "--json", "jobs/a/step-1"))[0]["ino"]
    token = (remote.files / "admin").read_text().strip()
    trust = ssl.create_default_context(cafile=str(remote.certificate))
    path = f"{remote.url}/api/v1/checkpoints/{ino}?force=true"
    answer = httpx.delete(path, headers={"Authorization": f"Bearer {token}"}, verify=trust)
    trashed = answer.json()["id"]
    assert trashed in done(run, "trash", "list")
    assert done(run, "trash", "restore", "jobs/a/step-1").startswith(
        "/checkpoints/jobs/a/step-1: it is"
    )
    assert run("trash", "restore", trashed)[0] == 1
    trashed = httpx.delete(path, headers={"Authorization": f"Bearer {token}"}, verify=trust).json()
    assert "add --yes" in run("trash", "empty", "--all")[2]
    assert done(run, "trash", "empty", "--all", "--yes") == f"{trashed['id']}: removed for good\n"


def test_policies_and_tokens_are_changed_from_afar(
    run: Run, remote: Remote, tmp_path: Path
) -> None:
    file = tmp_path / "policies.toml"
    file.write_text('[[policy]]\nname = "mine"\nrun = "jobs/b"\nkeep_newest = 1\n')
    assert "jobs/b" in done(run, "policy", "plan", "--policy", str(file))
    assert done(run, "policy", "set", str(file)).startswith("mine v1  enabled")
    assert done(run, "policy", "set", str(file)).startswith("mine: unchanged\n")
    assert done(run, "policy", "disable", "mine").startswith("mine v2  disabled")
    assert done(run, "policy", "disable", "mine") == "mine: unchanged\n"
    assert done(run, "policy", "enable", "mine").startswith("mine v3")
    assert done(run, "policy", "remove", "mine").startswith("mine v4  removed")
    assert "mine v4" in done(run, "policy", "history")
    assert "mine" not in done(run, "policy", "list")
    assert run("policy", "show", "mine", "--version", "9")[0] == 2
    status, _out, err = run("policy", "approve", "0123456789ab")
    assert status == 2 and "there is no such plan" in err
    made = json.loads(done(run, "token", "create", "--role", "viewer", "--name", "x", "--json"))
    secret, id = made["secret"], made["token"]["id"]
    assert secret.startswith("spw_") and made["token"]["state"] == "valid"
    assert id in done(run, "token", "list")
    assert done(run, "token", "revoke", id) == f"{id}: revoked\n"
    other = tmp_path / "other"
    other.write_text(secret)
    other.chmod(0o600)
    options = [*remote.options()[:-1], str(other)]
    status, out, err = run("status", options=options)
    assert status == 2 and "does not take the token" in err and secret not in out + err


def test_what_goes_wrong_is_one_line_with_a_remedy(
    run: Run, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = (remote.files / "admin").read_text().strip()
    given = remote.options()

    def fails(options: list[str], *words: str, status: int = 2) -> str:
        found, out, err = run(*words, options=options)
        assert (found, out, err.count("\n")) == (status, "", 1), (words, out, err)
        assert token not in err
        return err

    assert "needs the role operator" in fails(remote.options("viewer"), "checkpoint", "pin", "d")
    assert "not trusted" in fails(["--gateway", remote.url, *given[4:]], "status")
    assert "--ca FILE" in fails(["--gateway", remote.url, *given[4:]], "status")
    other = remote.url.replace("localhost", "127.1")
    assert "name or address that it is for" in fails(["--gateway", other, *given[2:]], "status")
    plain = remote.url.replace("https", "http")
    assert "does the gateway run" in fails(["--gateway", plain, *given[2:]], "status")
    nothing = f"https://localhost:{free_port()}"
    assert "does the gateway run" in fails(["--gateway", nothing, *given[2:]], "status")
    assert "in the clear" in fails(["--gateway", "http://gw.example:8780", *given[2:]], "status")
    for wrong in ("gw:8780", "ftp://gw", "https://u:secret@gw:1", "https://gw:x"):
        assert "secret" not in fails(["--gateway", wrong], "status")
    for command in sorted(ONLY_HERE & {"fsck", "up", "adopt"}):
        words = [command, *(["files"] if command == "adopt" else [])]
        assert f"spillway {command} runs on the gateway only" in fails(given, *words)
    assert "exclude each other" in fails(given, "status", "--config", "x")
    assert "goes before the command" in fails([], "status", *given)
    assert "are for --gateway" in fails(given[2:], "status")
    readable = tmp_path / "readable"
    readable.write_text(token)
    readable.chmod(0o644)
    assert f"chmod 600 {readable}" in fails([*given[:-1], str(readable)], "status")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "~" not in fails(given[:4], "status")
    monkeypatch.setenv(target.TOKEN, f"{token}\nX: y")
    assert "no token in one line" in fails(given[:4], "status")
    monkeypatch.setenv(target.TOKEN, token)
    monkeypatch.setenv(target.CA, given[3])
    monkeypatch.setenv(target.GATEWAY, remote.url)
    assert run("checkpoint", "pins", options=[])[0] == 0
    monkeypatch.setenv(target.GATEWAY, nothing)
    assert run("checkpoint", "pins", here=True)[0] == 0
    assert run("completion", "bash", options=[])[0] == 0


class _Other(BaseHTTPRequestHandler):
    """What else may listen at an address."""

    answers: dict[str, tuple[int, str]] = {}

    def do_GET(self) -> None:
        status, body = self.answers.get(
            self.path, (404, '{"code": "unknown_route", "detail": "Not Found"}')
        )
        self.send_response(status)
        self.send_header("Retry-After", "17")
        self.send_header("Content-Type", "application/json" if body[0] == "{" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def answering(answers: dict[str, tuple[int, str]]) -> Iterator[str]:
    handler = type("Handler", (_Other,), {"answers": answers})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            (404, '{"code": "unknown_route", "detail": "Not Found"}'),
            r"\(it is Spillway 9\.1, this is .*same version",
        ),
        ((200, "<html>"), "not as the admin API"),
        ((200, "{}"), "its answer has no 'healthy'.*same version"),
        ((502, "<html>bad gateway"), "answers 502, and not as the admin API"),
        ((429, '{"detail": "too many wrong tokens"}'), "try again in 17 s"),
        ((503, '{"detail": "the database is away: wait"}'), "the database is away"),
        ((500, '{"detail": "not foreseen", "instance": "abc"}'), r"not foreseen \(request abc\)"),
        ((412, '{"detail": "x"}'), "it was changed meanwhile"),
        (
            (403, '{"detail": "this needs the role admin\\u001b[2J: use another token"}'),
            "use anoth",
        ),
    ],
)
def test_each_refusal_says_what_to_do(
    run: Run, remote: Remote, answer: tuple[int, str], said: str
) -> None:
    version = '{"info": {"version": "9.1"}}'
    with answering({"/api/v1/status": answer, "/api/v1/openapi.json": (200, version)}) as url:
        status, out, err = run("status", options=["--gateway", url, *remote.options()[4:]])
    assert (status, out, err.count("\n")) == (1 if answer[0] == 412 else 2, "", 1)
    assert re.search(said, err) and "\x1b" not in err


def test_what_is_refused_is_no_json(run: Run) -> None:
    for role, words, said in (
        ("viewer", ("checkpoint", "pin", "d"), "needs the role"),
        ("admin", ("export", "remove", "/none"), "no export /none"),
    ):
        status, out, err = run(*words, "--json", role=role)
        assert (status, out) == (2, "") and said in err


def test_each_command_says_where_it_runs() -> None:
    """docs/reference/cli.md is made from the same lists (tests/t5_cli/test_help.py)."""
    names = {command.name for command in SUBCOMMANDS}
    assert names == {*FOR_ANY_GATEWAY, *ONLY_HERE, *NEEDS_NO_GATEWAY}
