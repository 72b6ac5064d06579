"""Commands on the gateway are in the audit log, with what they were about."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import caller
from gateway.cli.main import NOUNS, SUBCOMMANDS, command_parsers, main, program_parser
from gateway.common.errors import UserError
from tests.support.clisite import Site
from tests.support.ports import free_port

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")
READING: dict[str, frozenset[str]] = {
    "policy": frozenset({"list", "show", "history", "plan", "validate", "log", "approvals"}),
    "export": frozenset({"list", "show", "validate"}),
    "job": frozenset({"list", "show"}),
    "token": frozenset({"list", "whoami"}),
    "queue": frozenset({"list"}),
}
"""The verbs that change nothing, of the commands that have others."""
READ = {
    *("status", "statistics", "clients", "usage", "ls", "stat", "drain", "wait", "plan", "events"),
    *("checkpoint list", "checkpoint show", "checkpoint pins", "promotion list", "trash list"),
    *("bucket test", "bucket verify", "history", "audit", "configuration", "completion"),
    *("support-bundle", "webhook test"),
}
OF_ANOTHER_LOG = {"init", "restore", "up", "admin", "serve", "first-boot"}
"""They make a gateway or run it: the log of the machine has them."""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, free_port())
    data = str(tmp_path / "data")
    assert main(["init", "--config", str(made.config), "--data-dir", data, "--bucket", "b"]) == 0
    return made


def run(site: Site, *words: str) -> int:
    """Run a command. The configuration is named behind its noun and verb."""
    at = 2 if words[0] in NOUNS else 1
    return main([*words[:at], "--config", str(site.config), *words[at:]])


def logged(site: Site, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(site, "audit", "--json") == 0
    document: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return document


def verbs_of(parser: argparse.ArgumentParser) -> set[str]:
    for action in parser._actions:
        if action.dest == "verb" and action.choices:
            return set(action.choices)
    return set(command_parsers(parser))


def test_of_each_command_it_is_known_whether_it_changes_something() -> None:
    assert {subcommand.name for subcommand in SUBCOMMANDS} == {
        *caller.CHANGING,
        *READ,
        *OF_ANOTHER_LOG,
    }
    parsers = command_parsers(program_parser())
    assert {name for name, verbs in caller.CHANGING.items() if verbs is not None} == {*READING}
    for name, changing in caller.CHANGING.items():
        if changing is not None:
            assert verbs_of(parsers[name]) == changing | READING[name], name


def test_a_command_is_in_the_audit_log_with_its_target(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(site, "mkdir", "a b") == 0
    assert run(site, "rm", "-r", "a b") == 0
    assert run(site, "checkpoint", "pin", "nothing") == 1
    assert run(site, "token", "revoke", "nothing") == 2
    assert run(site, "ls") == 0
    assert run(site, "fsck") == 0
    assert run(site, "policy", "clock") == 0
    revoked, pinned, removed, made = logged(site, capsys)
    config = f"--config {site.config}"
    assert made["path"] == f"spillway mkdir {config} 'a b'"
    assert removed["path"] == f"spillway rm {config} -r 'a b'"
    assert (made["status"], removed["status"]) == (200, 200)
    assert (made["method"], made["address"]) == ("COMMAND", "")
    assert (pinned["status"], pinned["path"]) == (409, f"spillway checkpoint pin {config} nothing")
    assert revoked["status"] == 409 and "no token nothing" in revoked["detail"]


def test_a_token_is_in_the_audit_log_without_its_hash(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    hashed = "$argon2id$v=19$m=1,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2g"
    added = ("token", "add", "--name", "boot", "0123456789ab", hashed)
    assert run(site, *added) == 0
    [one] = logged(site, capsys)
    assert one["after"]["id"] == "0123456789ab"
    assert "argon2" not in json.dumps(one)


def test_a_command_that_is_killed_has_left_a_row(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    args = program_parser().parse_args(["rm", "x"])
    args.config = site.config
    with pytest.raises(KeyboardInterrupt), caller.recorded(args, ["rm", "x"]):
        raise KeyboardInterrupt
    [one] = logged(site, capsys)
    assert (one["path"], one["status"]) == ("spillway rm x", None)


def test_a_log_that_cannot_be_written_keeps_no_command_from_its_work(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.settings.admin_db.write_bytes(b"no database" * 1000)
    capsys.readouterr()
    assert run(site, "mkdir", "a") == 0
    assert "the audit log lacks this command: cannot use" in capsys.readouterr().err


def test_no_log_is_made_where_the_disk_is_not_mounted(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    data = site.settings.data_dir
    data.rename(data.with_name("elsewhere"))
    data.mkdir(mode=0o700)
    assert run(site, "mkdir", "a") == 2
    assert list(data.iterdir()) == []


def test_an_error_of_a_command_is_its_own(site: Site) -> None:
    args = program_parser().parse_args(["rm", "x"])
    args.config = site.config
    with pytest.raises(UserError, match="mine"), caller.recorded(args, ["rm", "x"]):
        raise UserError("mine")


def test_a_bucket_that_is_away_ends_a_command_with_one_line_that_the_log_has_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path, free_port())
    data, away = str(tmp_path / "data"), f"http://127.0.0.1:{free_port()}"
    given = ("--data-dir", data, "--bucket", "b", "--endpoint-url", away)
    assert run(site, "init", *given) == 0
    site.settings.credentials_file.write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    assert run(site, "mkdir", "a") == 0
    capsys.readouterr()
    assert run(site, "checkpoint", "promote", "--legal-hold", "a", "--as", "best") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("spillway: ") and away in line
    refused, _made = logged(site, capsys)
    assert (refused["status"], refused["detail"]) == (409, line.removeprefix("spillway: "))
