"""``--json``: each command that prints a result has it, and prints one document then."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admin_api.access.principal import Role
from admin_api.access.tokens import made as prepare
from gateway.cli.main import command_parsers, main, program_parser
from gateway.cli.output import Results
from gateway.common.errors import UserError
from tests.support.clisite import Site

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")

WITHOUT = {
    "up": "it runs until it is ended, and prints what happens",
    "admin": "it runs until it is ended",
    "serve": "it becomes a process",
    "first-boot": "a unit runs it, and the journal gets what it prints; a token is for a file",
    "init": "a person answers its questions, and the file that it writes is the result",
    "completion": "what it prints is a script",
}
"""The commands without ``--json``, and why."""


def leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands that have no verbs below them, each with its options."""
    below = command_parsers(parser)
    if not below:
        yield (
            name,
            [
                option_string
                for action in parser._actions
                for option_string in action.option_strings
            ],
        )
    for verb, sub in below.items():
        yield from leaves(f"{name} {verb}".strip(), sub)


def test_each_command_that_prints_a_result_has_it() -> None:
    found = dict(leaves("", program_parser()))
    assert {name for name, options in found.items() if "--json" not in options} == set(WITHOUT)
    assert len(found) > len(WITHOUT) + 40
    assert all(WITHOUT.values())


def test_what_was_done_before_an_error_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError), Results(as_json=True) as results:
        results.add({"path": "a"})
        raise UserError("no more")
    assert json.loads(capsys.readouterr().out) == [{"path": "a"}]
    with pytest.raises(UserError), Results(as_json=True):
        raise UserError("nothing was done")
    assert capsys.readouterr().out == ""


def ask(
    site: Site, capsys: pytest.CaptureFixture[str], line: str, status: int = 0, error: str = ""
) -> Any:
    """Run a command with ``--json``. Returns the one document that it prints."""
    command, *words = shlex.split(line)
    capsys.readouterr()
    ended = main([command, *words, "--config", str(site.config), "--json"])
    out, err = capsys.readouterr()
    assert ended == status, (line, out, err)
    assert error in err if error else err == "", (line, err)
    return json.loads(out)


def test_changes_of_names_tell_where_it_is_now(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ask(site, capsys, "mkdir -p d/sub e")
    assert made == [{"path": "/checkpoints/d/sub"}, {"path": "/checkpoints/e"}]
    assert [ask(site, capsys, f"stat {entry['path']}")[0]["kind"] for entry in made] == [
        "directory",
        "directory",
    ]
    assert ask(site, capsys, "chmod 700 e") == [{"path": "/checkpoints/e"}]
    assert ask(site, capsys, "mkdir e f", 1, "e: it is there already")[0]["path"][-2:] == "/f"
    [moved] = ask(site, capsys, "mv d/sub e")
    assert moved == {"from": "d/sub", "path": "/checkpoints/e/sub"}
    [moved] = ask(site, capsys, "mv e/sub renamed")
    assert (moved["from"], moved["path"]) == ("e/sub", "/checkpoints/renamed")
    assert ask(site, capsys, "mv none e", 1, "none: no such file") == []
    removed = {"path": "renamed", "was_directory": True, "removed_names": 1, "failures": []}
    removed["trashed"] = {}
    assert ask(site, capsys, "rm -rf renamed none") == [
        removed,
        {**removed, "path": "none", "was_directory": False, "removed_names": 0},
    ]
    assert ask(site, capsys, "rm f", 1, "f: it is a directory") == []


def test_pins_and_orders_are_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    ask(site, capsys, "mkdir d")
    pinned = ask(site, capsys, "checkpoint pin d none --note best", 1, "none: no such file")
    assert pinned == ask(site, capsys, "checkpoint pins")
    assert pinned[0]["note"] == "best"
    ino = pinned[0]["ino"]
    assert ask(site, capsys, "checkpoint unpin d") == [{"path": "d", "ino": ino, "unpinned": True}]
    assert ask(site, capsys, "checkpoint unpin d", 1, "not pinned by itself") == []
    for verb, order in (("hold", "hold"), ("bump", "bump"), ("release", None)):
        assert ask(site, capsys, f"queue {verb} d") == [{"path": "d", "order": order}]
    assert ask(site, capsys, "queue retry d") == [{"path": "d", "had_failed": False}]


def test_exports_are_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    made = ask(site, capsys, "export set /mine --client '10.0.0.0/8 ro'")
    assert made == ask(site, capsys, "export show /mine")
    assert ask(site, capsys, "export set /mine --squash all")["version"] == 2
    assert ask(site, capsys, "export remove /mine") == {"name": "/mine", "removed": True}


def test_policies_are_told(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policies.toml"
    file.write_text(
        '[[policy]]\nname = "a"\nrun = "*"\nkeep_newest = 1\n'
        '[[policy]]\nname = "b"\nrun = "*"\nkeep_newest = 2\n'
    )
    stored = ask(site, capsys, f"policy set {file}")
    assert [(entry["name"], entry["version"], entry["changed"]) for entry in stored] == [
        ("a", 1, True),
        ("b", 1, True),
    ]
    assert [entry["changed"] for entry in ask(site, capsys, f"policy set {file}")] == [False, False]
    switched = ask(site, capsys, "policy disable a")
    assert (switched["version"], switched["enabled"], switched["changed"]) == (2, False, True)
    assert not ask(site, capsys, "policy disable a")["changed"]
    assert ask(site, capsys, "policy enable a")["enabled"]
    shown = ask(site, capsys, "policy show a --version 1")
    assert {**shown, "changed": True} == stored[0]
    assert main(["policy", "show", "a", "--config", str(site.config)]) == 0
    head, *says = capsys.readouterr().out.splitlines()
    assert head.startswith("# a v3, enabled, since ")
    assert says == ["[[policy]]", "keep_newest = 1", 'name = "a"', 'run = "*"']
    assert ask(site, capsys, "policy remove a")["document"] is None
    assert ask(site, capsys, "policy clock --confirm")["clock_ahead_seconds"] == 0


def test_what_is_wrong_is_no_json(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """A script gets the exit status, and nothing on the standard output."""
    for line, said in {
        "policy approve 0123456789ab": "there is no such plan",
        "policy remove none": "there is no policy none",
        "export remove /none": "there is no export /none",
        "export set /mine --client nonsense/99": "nonsense/99",
        "job cancel 0123456789abcdef": "is ended by the admin API",
        "token revoke none": "there is no token none",
        "trash empty t1 --yes": "is not in the trash",
        "promotion remove none --yes": "no promotion none",
        "queue hold": "nothing to hold",
        "queue hold none": "none",
    }.items():
        capsys.readouterr()
        assert main([*line.split(), "--json", "--config", str(site.config)]) == 2, line
        out, err = capsys.readouterr()
        assert out == "", line
        assert said in err, line
        assert err.count("\n") == 1, line


def test_tokens_are_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.edit("admin", "enabled", "true")
    made = ask(site, capsys, "token create --role viewer --name x")
    assert made["secret"].startswith("spw_")
    revoked = ask(site, capsys, f"token revoke {made['token']['id']}")
    assert (revoked["id"], revoked["state"]) == (made["token"]["id"], "revoked")
    token, _text = prepare("boot", Role.ADMIN, None, "tests")
    for changed in (True, False):
        added = ask(site, capsys, f"token add --name boot {token.id} {shlex.quote(token.hash)}")
        assert (added["id"], added["changed"]) == (token.id, changed)


def test_an_upgrade_is_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(site, capsys, "upgrade")
    assert answer["database"] == str(site.settings.data_dir / "namespace.db")
    assert answer["schema"].isdigit()
    assert any("current, schema" in line for line in answer["done"])


def test_what_was_adopted_is_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(site, capsys, "adopt files", status=1)
    assert (answer["files"], answer["damaged"], answer["bucket"]) == (0, 0, None)
    site.edit("bucket", "prefix", '"other"')
    assert ask(site, capsys, "adopt bucket") == {"bucket": "b", "prefix": "other", "files": 0}
