"""The commands about checkpoints against a gateway on another machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import client
from gateway.cli.api import Api
from gateway.cli.client import RemoteGateway
from gateway.cli.main import main
from gateway.cli.output import ProgressLine
from gateway.cli.target import Reach
from gateway.common.errors import NotPossible
from tests.support.checkpoints.keeping import save
from tests.support.records import record
from tests.support.t10.afar import Afar, afar
from tests.support.volumes import query

ODD = "odd\n%41"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afar]:
    with afar(tmp_path_factory.mktemp("checkpoints")) as made:
        with made.world() as world:
            save(world, *(f"jobs/a/step-{step}" for step in range(1, 7)))
            save(world, "jobs/b/step-1", durable=False)
            save(world, f"jobs/{ODD}/step-1")
            save(world, "kept/step-1", "late/step-1")
        yield made


@pytest.fixture
def run(gateway: Afar, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command from afar. Returns its exit status and what it printed."""

    def ran(*words: str, role: str = "admin") -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([*gateway.options(role), *words])
        out, err = capsys.readouterr()
        return status, out, err

    return ran


@contextmanager
def remote(gateway: Afar) -> Iterator[RemoteGateway]:
    """Open what commands use for a gateway on another machine."""
    _option, url, _option, file = gateway.options()
    with Api(Reach(url, Path(file).read_text(), None)) as api:
        yield RemoteGateway(api)


def ask(run: Run, *words: str) -> Any:
    """Run a command with ``--json`` that succeeds. Returns the document that it prints."""
    status, out, err = run(*words, "--json")
    assert (status, err) == (0, ""), (words, out, err)
    return json.loads(out)


def steps(run: Run, *words: str) -> list[str]:
    """Return the runs and steps of a list."""
    listed = ask(run, "checkpoint", "list", *words)["checkpoints"]
    return [f"{entry['run'].removeprefix('jobs/')}-{entry['step']}" for entry in listed]


def catch_up(gateway: Afar) -> None:
    """Have the catalogue see what was done."""
    with gateway.world():
        pass


def test_checkpoints_are_listed(run: Run) -> None:
    answer = ask(run, "checkpoint", "list")
    assert answer["is_made"] is True
    odd = "jobs/odd%0A%2541"
    assert [entry["run"] for entry in answer["runs"]] == ["jobs/a", "jobs/b", odd, "kept", "late"]
    assert answer["checkpoints"][-3]["path"] == f"/checkpoints/{odd}/step-1"
    for name in ("jobs/a", "/checkpoints/jobs/a", "jobs/a/"):
        assert steps(run, name) == [f"a-{step}" for step in range(1, 7)]
    assert steps(run, f"jobs/{ODD}") == ["odd%0A%2541-1"]
    assert steps(run, "--text", f"{ODD}/step") == ["odd%0A%2541-1"]
    assert steps(run, "--state", "complete", "--text", "jobs/b") == ["b-1"]
    assert steps(run, "--rule", "none") == []
    assert steps(run, "--reverse", "--limit", "2", "jobs/a") == ["a-6", "a-5"]
    assert steps(run, "--sort", "complete", "--limit", "1") == ["a-1"]
    status, out, err = run("checkpoint", "list")
    assert (status, err) == (0, "")
    assert r"jobs/odd\n%41: nothing is durable; complete: step 1 (" in out
    assert run("checkpoint", "list", "none") == (1, "there are no checkpoints of this run\n", "")
    status, out, err = run("checkpoint", "list", "--unrecognised")
    assert (status, out) == (2, "") and "run it there" in err


def test_a_checkpoint_is_shown(run: Run) -> None:
    [one] = ask(run, "checkpoint", "show", f"jobs/{ODD}/step-1")
    assert (one["step"], one["run"]) == (1, "jobs/odd%0A%2541")
    status, out, err = run("checkpoint", "show", f"jobs/{ODD}/step-1", "jobs/a", "none")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 1 and r"path /checkpoints/jobs/odd\n%41/step-1" in lines
    assert r"run jobs/odd\n%41" in lines
    assert "jobs/a is no checkpoint: spillway checkpoint list lists them\n" in err
    assert "none: no such file or directory" in err


def test_a_checkpoint_is_deleted(run: Run, gateway: Afar) -> None:
    path = f"jobs/{ODD}/step-1"
    status, out, err = run("checkpoint", "delete", path)
    assert (status, out) == (1, "") and "--force deletes it nevertheless" in err
    status, out, err = run("checkpoint", "delete", "--force", "--reason", "diverged", path)
    assert (status, err) == (0, "")
    assert out.startswith(r"/checkpoints/jobs/odd\n%41/step-1: in the trash as t")
    catch_up(gateway)
    [trashed] = gateway.ask("GET", "trash")["items"]
    assert (trashed["reason"], trashed["by"]) == ("diverged", "admin")
    assert steps(run, path.rpartition("/")[0]) == ["odd%0A%2541-1"]
    [made] = ask(run, "checkpoint", "delete", "--force", "jobs/a/step-1")
    assert made["path"] == "/checkpoints/jobs/a/step-1"
    catch_up(gateway)
    [listed] = [
        checkpoint
        for checkpoint in ask(run, "checkpoint", "list")["checkpoints"]
        if checkpoint["path"] == made["path"]
    ]
    assert listed["state"] == "expired"
    assert made["id"] in listed["reason"]


def test_the_trash_is_listed_gives_back_and_is_emptied(run: Run, gateway: Afar) -> None:
    one, two, three = (
        ask(run, "checkpoint", "delete", "--force", f"jobs/a/step-{step}")[0]["id"]
        for step in (2, 3, 4)
    )
    listed = {entry["id"]: entry for entry in ask(run, "trash", "list")["trash"]}
    assert listed.keys() >= {one, two, three}
    assert listed[one]["path"] == "/checkpoints/jobs/a/step-2"
    head, *rows = (re.split("  +", line) for line in run("trash", "list")[1].splitlines())
    assert head[2] == "time left"
    assert r"/checkpoints/jobs/odd\n%41/step-1: admin: diverged" in [row[-1] for row in rows]
    for what, to in ((one, ["--to", f"jobs/a/{ODD}"]), ("/checkpoints/jobs/a/step-3", [])):
        status, out, err = run("trash", "restore", what, *to)
        assert (status, err) == (0, "") and out.splitlines()[0].endswith(": it is back")
    assert "not in the trash" in run("trash", "restore", one)[2]
    assert ask(run, "trash", "restore", three)["path"] == "/checkpoints/jobs/a/step-4"
    catch_up(gateway)
    again = ask(run, "checkpoint", "delete", "--force", f"jobs/a/{ODD}", "jobs/a/step-3")
    assert [entry["id"] for entry in again] == [one, two]
    assert run("trash", "empty", "t1", "--yes")[::2] == (
        2,
        "spillway: t1 is not in the trash: see spillway trash list\n",
    )
    assert "add --yes" in run("trash", "empty", one)[2]
    assert "name what is to be removed" in run("trash", "empty", "--yes")[2]
    assert ask(run, "trash", "empty", two, one, two, "--yes") == [
        {"id": two, "removed": True, "failures": []},
        {"id": one, "removed": True, "failures": []},
    ]
    assert "needs the role admin" in run("trash", "empty", "--all", "--yes", role="operator")[2]


def test_what_came_into_the_trash_later_stays(gateway: Afar, run: Run) -> None:
    with remote(gateway) as remote_gateway:
        bin = remote_gateway.trash
        [made] = ask(run, "checkpoint", "delete", "--force", "jobs/a/step-5")
        [seen] = bin.find([made["id"]])
        run("trash", "restore", seen.id)
        catch_up(gateway)
        assert ask(run, "checkpoint", "delete", "--force", "jobs/a/step-5")[0]["id"] == seen.id
        stays = bin.remove(seen, lambda _progress: None)
        assert not stays.removed and "changed meanwhile" in stays.failures[0]
        [now] = bin.find([seen.id])
        assert bin.remove(now, lambda _progress: None).removed
        assert not bin.remove(now, lambda _progress: None).removed


def test_what_is_held_is_released(run: Run, gateway: Afar) -> None:
    with gateway.world() as world:
        for name in ("kept", "late"):
            path = f"{name}/step-1"
            record(world.settings, world.attr(path).ino, name.encode(), 1, path=path.encode())
            world.remove(f"{path}/.metadata")
    listed = ask(run, "trash", "list")["trash"]
    one, two = (entry for entry in listed if entry["held"])
    others = f"spillway: {len(listed) - 2} checkpoints, "
    assert run("trash", "empty", "--all")[2].startswith(others)
    assert run("trash", "release", "t1", one["id"])[0] == 2
    [released] = ask(run, "trash", "release", one["id"])
    assert (released["id"], released["held"]) == (one["id"], False)
    status, out, err = run("trash", "release", one["id"])
    assert (status, out) == (1, "") and "not held" in err
    assert "nothing there is held" in run("trash", "release", "kept/step-1")[2]
    text = f"{two['id']}: released: it leaves the bucket within some minutes\n"
    assert run("trash", "release", "/checkpoints/late") == (0, text, "")


def test_promotions_are_made_listed_and_removed(run: Run, gateway: Afar) -> None:
    promote = ("checkpoint", "promote", "jobs/a/step-6", "--as", "best 1")
    made = ask(run, *promote, "--no-wait", "--note", "good", "--tag", "team=llm")
    assert (made["state"], made["run"], made["by"]) == ("copying", "jobs/a", "admin")
    assert ask(run, "promotion", "list") == [made]
    assert "team" in query(gateway.site.settings, "SELECT tags FROM promotion")[0][0]
    assert "there is a promotion best 1 (copying)" in run(*promote)[2]
    assert "needs the role operator" in run(*promote, role="viewer")[2]
    assert "no such file" not in run("checkpoint", "promote", "none", "--as", "x")[2]
    status, out, err = run("checkpoint", "promote", "jobs/b/step-1", "--as", "x", "--no-wait")
    assert (status, out) == (1, "") and "2 files, 10 B are not in the bucket yet" in err
    status, out, err = run("promotion", "list")
    head, row = (re.split("  +", line) for line in out.splitlines())
    assert (status, err, head[:4]) == (0, "", ["name", "state", "files", "size"])
    assert row[:5] == ["best 1", "copying", "2", "10 B", "/checkpoints/jobs/a/step-6"]
    status, out, err = run("promotion", "remove", "best 1")
    assert (status, err) == (1, "") and "would be removed for good, also from the bucket" in out
    assert run("promotion", "remove", "other", "--yes")[::2] == (
        2,
        "spillway: no promotion other: look with spillway promotion list\n",
    )
    gone = ask(run, "promotion", "remove", "best 1", "--yes", "--no-wait")
    assert (gone["state"], gone["removed"]) == ("demoting", False)


def test_a_promotion_is_waited_for(
    run: Run, gateway: Afar, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = gateway.site.settings
    steps = iter(
        (
            "UPDATE promotion_member SET is_made = 1 WHERE CAST(path AS TEXT) = '.metadata'",
            "UPDATE promotion SET state = 'done' WHERE name = 'waited'",
            "UPDATE promotion SET reason = 'objects' WHERE name = 'waited'",
            "DELETE FROM promotion WHERE name = 'waited'",
        )
    )
    shown: list[str] = []
    monkeypatch.setattr(client, "_pause", lambda _then: query(settings, next(steps)))
    monkeypatch.setattr(ProgressLine, "show", lambda _line, text: shown.append(text))
    status, out, err = run("checkpoint", "promote", "jobs/a/step-6", "--as", "waited")
    assert (status, err) == (0, "") and out.startswith("waited  done  2 files")
    copied = [text.split("  ")[-1] for text in shown]
    assert copied == ["0 of 2 files copied", "1 of 2 files copied"]
    assert run("promotion", "remove", "waited", "--yes") == (0, "waited: removed\n", "")
    assert shown[2:] == ["removing: files", "removing: objects"]


def test_only_the_promotion_that_was_found_is_demoted(run: Run, gateway: Afar) -> None:
    ask(run, "checkpoint", "promote", "jobs/a/step-6", "--as", "again", "--no-wait")
    with remote(gateway) as remote_gateway:
        promotion = remote_gateway.promotions.named("again")
        query(gateway.site.settings, "UPDATE promotion SET generation = 7 WHERE name = 'again'")
        with pytest.raises(NotPossible, match="changed meanwhile"):
            remote_gateway.promotions.demote(promotion)
