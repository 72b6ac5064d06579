"""`spillway policy`, and its lines in `spillway status`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import policies
from gateway.cli.main import main
from gateway.common import clock
from gateway.common.models import from_json
from gateway.config.settings import Settings
from gateway.service.policies import RetentionSummary
from tests.support.checkpoints.keeping import Bin, applier, catch_up, save
from tests.support.checkpoints.world import World
from tests.support.namespace import Namespace
from tests.support.t9.knowntime import read_at
from tests.support.volumes import make_volume, query, status_of, write_settings

FILE = """
[[policy]]
name = "newest"
run = "jobs/*"
keep_newest = 2
wait_hours = 0

[[policy]]
name = "scratch"
path = "scratch/*"
delete_after_days = 7
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    settings = write_settings(tmp_path / "data")
    make_volume(settings)
    made = World(settings, Namespace(settings))
    save(made, *(f"jobs/a/step-{step}" for step in range(1, 5)))
    catch_up(made)
    yield made
    made.end()
    made.namespace.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "policies.toml"
    made.write_text(FILE)
    return made


def run(world: World, verb: str, *words: object) -> int:
    return main(["policy", verb, "--config", str(world.settings.source), *map(str, words)])


def told(capsys: pytest.CaptureFixture[str], world: World, *words: str) -> Any:
    assert run(world, *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_policies_have_versions(
    world: World, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(world, "list") == 0
    assert "there are no policies: spillway policy set FILE" in capsys.readouterr().out
    assert run(world, "set", file) == 0
    assert "newest v1  enabled" in capsys.readouterr().out
    document = {"policy": [{"name": "newest", "run": "*", "keep_newest": 3}]}
    file.write_text(json.dumps(document))
    assert run(world, "disable", "newest") == 0
    assert run(world, "set", file) == 0
    assert run(world, "set", file) == 0
    assert "newest: unchanged" in capsys.readouterr().out
    assert run(world, "enable", "newest") == 0
    assert run(world, "remove", "scratch") == 0
    capsys.readouterr()
    assert run(world, "list") == 0
    head, row = (re.split("  +", line) for line in capsys.readouterr().out.splitlines())
    assert head == ["policy", "state", "runs", "keeps", "does", "trash grace"]
    assert row == ["newest v4", "enabled", "*", "the newest 3", "deletes the others", "7.0 d"]
    (found,) = told(capsys, world, "list")
    assert (found["version"], found["enabled"]) == (4, True)
    assert found["document"] == document["policy"][0]
    assert found["author"]
    assert run(world, "show", "newest", "--version", "1") == 0
    stored = capsys.readouterr().out
    assert stored.startswith("# newest v1, enabled, since ")
    first = told(capsys, world, "show", "newest", "--version", "1")["document"]
    assert tomllib.loads(stored) == {"policy": [first]}
    assert told(capsys, world, "show", "newest", "--version", "1")["document"]["keep_newest"] == 2
    history = told(capsys, world, "history")
    assert [(entry["name"], entry["version"], entry["enabled"]) for entry in history] == [
        ("newest", 1, True),
        ("newest", 2, False),
        ("newest", 3, False),
        ("newest", 4, True),
        ("scratch", 1, True),
        ("scratch", 2, False),
    ]
    assert history[-1]["document"] is None
    for words in (("remove", "scratch"), ("enable", "other"), ("show", "other")):
        assert run(world, *words) == 2
        assert f"there is no policy {words[1]}" in capsys.readouterr().err


BEST = {"number": 2, "file": "m.json", "key": "loss", "best": "min"}
THIN = [{"older_than_days": 1, "one_per_hours": 2}, {"older_than_days": 7, "one_per_hours": 24}]


@pytest.mark.parametrize(
    ("says", "cells"),
    [
        ({"run": "a*", "keep_newest": 1}, ["a*", "the newest", "deletes the others", "7.0 d"]),
        (
            {"path": "b/*", "keep_every_steps": 1000, "keep_best": BEST},
            [
                *(
                    "*, only paths b/*",
                    "one every 1,000 steps, the 2 with the lowest loss in m.json",
                ),
                *("deletes the others", "7.0 d"),
            ],
        ),
        (
            {"run": "*", "thin": THIN, "delete_after_days": 30},
            [
                "*",
                "those younger than 1 day, one every 2 h of those older than 1 day, one every 24 h "
                "of those older than 7 days, up to 30 days",
                *("deletes the others", "7.0 d"),
            ],
        ),
        (
            {"run": "*", "delete_after_days": 1, "evict_after_hours": 6},
            [
                *("*", "those younger than 1 day"),
                *("deletes the others, evicts what was unused for 6 h", "7.0 d"),
            ],
        ),
        (
            {"run": "*", "storage_class": "STANDARD_IA", "transition_after_days": 30},
            ["*", "all", "moves objects to STANDARD_IA after 30 days", "-"],
        ),
    ],
)
def test_a_list_says_in_words_what_a_policy_keeps_and_does(
    says: dict[str, Any],
    cells: list[str],
    world: World,
    file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file.write_text(json.dumps({"policy": [{"name": "one", **says}]}))
    assert run(world, "set", file) == 0
    capsys.readouterr()
    assert run(world, "list") == 0
    row = re.split("  +", capsys.readouterr().out.splitlines()[1])
    assert row == ["one v1", "enabled", *cells]


def test_what_show_prints_can_be_set_again(
    world: World, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = 'é"\\ \x1b[2J\u202e*'
    says = {"name": "one", "run": odd, "keep_best": BEST, "thin": THIN, "wait_hours": 0.5}
    file.write_text(json.dumps({"policy": [says]}))
    assert run(world, "set", file) == 0
    capsys.readouterr()
    assert run(world, "show", "one") == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown and "é" in shown
    assert tomllib.loads(shown) == {"policy": [says]}
    file.write_text(shown)
    assert run(world, "set", file) == 0
    assert "one: unchanged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[[policy]", "is neither TOML nor JSON"),
        ("{", "is neither TOML nor JSON"),
        ("", "has tables [[policy]]"),
        (FILE.replace("= 2", "= 0"), "policy newest: keep_newest = 0: must be between 1 and"),
        (None, "cannot read"),
    ],
)
def test_a_wrong_file_changes_nothing(
    text: str | None, error: str, world: World, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.unlink() if text is None else file.write_text(text)
    assert run(world, "set", file) == 2
    assert error in capsys.readouterr().err
    assert query(world.settings, "SELECT * FROM policy") == []


def test_a_plan_says_what_and_why_before_anything_is_stored(
    world: World, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(world, "plan", "--policy", file) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "jobs/a"
    assert lines[1].split() == ["step", "fate", "state", "size", "checkpoint", "why"]
    assert lines[2].split()[:3] == ["1", "delete", "durable"]
    why = re.split("  +", lines[2])[-2:]
    assert why == ["step-1", "it is not among the newest 2 (newest); step 4 is newer and durable"]
    assert re.split("  +", lines[4])[-2:] == ["step-3", "it is among the newest 2 (newest)"]
    assert lines[6:] == [
        "2 checkpoints are kept, 2 are deleted (20 B; 2 of them after an approval), 0 are evicted, "
        "0 move to another storage class",
        "policy scratch selects no checkpoint",
        "no deletion by newest was approved yet: 2 checkpoints, 20 B wait for an approval once the "
        "policies are stored",
    ]
    assert query(world.settings, "SELECT * FROM policy") == []
    assert run(world, "set", file) == 0
    capsys.readouterr()
    found = told(capsys, world, "plan")
    assert (found["deleted"], found["deleted_bytes"]) == (2, 20)
    assert found["asked"]["checkpoints"] == 2
    checkpoint = found["checkpoints"][0]
    assert (checkpoint["path"], checkpoint["fate"]) == ("/checkpoints/jobs/a/step-1", "delete")
    assert checkpoint["policies"] == ["newest v1"]
    assert told(capsys, world, "plan", "--run", "other")["checkpoints"] == []
    assert len(told(capsys, world, "plan", "--run", "/checkpoints/jobs/a")["checkpoints"]) == 4


def test_each_version_of_a_policy_is_approved_once(
    world: World, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trash = Bin(world, tmp_path / "log")

    def approve() -> None:
        capsys.readouterr()
        assert run(world, "approve", told(capsys, world, "plan")["asked"]["plan"]) == 0

    run(world, "set", file)
    applier(world, trash).run_once()
    assert trash.log() == []
    approve()
    applier(world, trash).run_once()
    assert sorted(trash.log()) == ["jobs/a/step-1", "jobs/a/step-2"]
    catch_up(world)
    # From then on each deletion by this version goes without a question.
    save(world, "jobs/a/step-5")
    catch_up(world)
    applier(world, trash).run_once()
    assert trash.log()[2:] == ["jobs/a/step-3"]
    catch_up(world)
    # Any other version is asked about, also one that says the same again.
    run(world, "disable", "newest")
    run(world, "enable", "newest")
    save(world, "jobs/a/step-6")
    catch_up(world)
    applier(world, trash).run_once()
    assert len(trash.log()) == 3
    approve()
    capsys.readouterr()
    [last, *_rest] = told(capsys, world, "approvals")
    assert last["policies"] == ["newest v3"]
    applier(world, trash).run_once()
    assert len(trash.log()) == 4
    catch_up(world)
    # A plan without deletions by a policy approves nothing of it.
    rows = "SELECT name, version FROM policy_approval ORDER BY version"
    assert query(world.settings, rows) == [("newest", 1), ("newest", 3)]
    # A person who wrote the policy may say that no question is wanted.
    file.write_text(FILE.replace("keep_newest = 2", 'keep_newest = 1\napprove = "automatic"'))
    run(world, "set", file)
    applier(world, trash).run_once()
    assert len(trash.log()) == 5


def test_a_policy_of_an_earlier_release_waits_for_a_person(
    world: World, file: Path, tmp_path: Path
) -> None:
    run(world, "set", file)
    # An approval of an earlier release names no policies.
    query(world.settings, "DELETE FROM approval")
    query(
        world.settings,
        "INSERT INTO approval (plan, deletions, checkpoints, size, asked_ns, approved_ns, author)"
        " VALUES ('0123456789ab', '[]', 0, 0, 1, 1, 'me')",
    )
    trash = Bin(world, tmp_path / "log")
    applier(world, trash).run_once()
    assert trash.log() == []


def test_a_large_plan_is_approved_by_its_id(
    world: World, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(world, *(f"jobs/a/step-{step}" for step in range(5, 10)))
    catch_up(world)
    run(world, "set", file)
    capsys.readouterr()
    plan = told(capsys, world, "plan")["asked"]["plan"]
    trash = Bin(world, tmp_path / "log")
    applier(world, trash).run_once()
    lines = list(policies.status_lines(retention_of(world.settings)))
    asks = (
        "ASKS: 7 checkpoints, 70 B wait, and are deleted once a person has approved exactly these: "
        f"spillway policy approve {plan}"
    )
    assert lines == [("retention", "2 policies"), ("retention", asks)]
    assert run(world, "approve", "other") == 2
    assert "there is no such plan, or it has changed" in capsys.readouterr().err
    # A save meanwhile makes another plan. The one that was shown can be approved nevertheless.
    save(world, "jobs/a/step-10")
    catch_up(world)
    assert run(world, "approve", plan) == 0
    applier(world, trash).run_once()
    assert len(trash.log()) == 8
    capsys.readouterr()
    assert run(world, "log", "--limit", "1") == 0
    head, row = (re.split("  +", line) for line in capsys.readouterr().out.splitlines())
    assert head == ["when", "what", "checkpoint", "result", "why", "by"]
    assert row[1:3] == ["deleted", "/checkpoints/jobs/a/step-8"]
    assert row[3].startswith("in the trash as t") and row[-1] == "newest v1"
    assert len(told(capsys, world, "log")) == 8
    ((_label, text),) = policies.status_lines(retention_of(world.settings))
    assert text.startswith("2 policies; last action ")


def test_a_clock_that_jumped_is_confirmed(
    world: World,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file.write_text('[[policy]]\nname = "aged"\nrun = "*"\ndelete_after_days = 30\n')
    run(world, "set", file)
    read_at(monkeypatch, 0, 1)
    applier(world, Bin(world, tmp_path / "log")).run_once()
    read_at(monkeypatch, 365, 1)
    lines = dict(policies.status_lines(retention_of(world.settings)))
    assert "the clock is 365.0 d ahead" in lines["retention"]
    assert run(world, "plan") == 0
    assert "0 are deleted (0 B)" in capsys.readouterr().out
    assert run(world, "clock") == 1
    assert "spillway policy clock --confirm" in capsys.readouterr().out
    assert run(world, "clock", "--confirm") == 0
    assert clock.reading().uptime_ns > 0
    capsys.readouterr()
    assert told(capsys, world, "plan")["deleted"] == 3


def retention_of(settings: Settings) -> RetentionSummary:
    return from_json(RetentionSummary, status_of(settings)["retention"])
