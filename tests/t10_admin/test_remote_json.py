"""``--json`` from afar is ``--json`` on the gateway: the same documents, of the same form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from tests.support.checkpoints.keeping import catch_up, save
from tests.t10_admin.afar import Afar, afar

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afar]:
    with afar(tmp_path_factory.mktemp("json")) as made:
        with made.world() as world:
            save(world, *(f"jobs/a/step-{step}" for step in range(1, 7)))
            for run in ("far", "near"):
                save(world, *(f"runs/{run}/step-{step}" for step in range(1, 7)))
            for name in ("a", "e", "far", "near"):
                world.write(f"d/{name}", b"12345678")
            for name in ("a", "e"):
                world.drain(f"d/{name}")
            world.evict("d/e")
            for name in ("far", "near"):
                world.write(f"tree-{name}/below/f", b"1")
            catch_up(world)
        yield made


@pytest.fixture
def ask(gateway: Afar, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command with ``--json``, from afar or ``near``. Returns the one document that it
    prints."""

    def asked(
        *words: str, near: bool = False, status: int = 0, error: str = "", role: str = "admin"
    ) -> Any:
        verb, *rest = words
        far = [*gateway.options(role), *words]
        here = [verb, "--config", str(gateway.site.settings.source), *rest]
        capsys.readouterr()
        ended = main([*(here if near else far), "--json"])
        out, err = capsys.readouterr()
        assert ended == status, (words, out, err)
        assert error in err if error else err == "", (words, err)
        return json.loads(out) if out else None

    return asked


def form(found: Any) -> Any:
    """Return the names in a document, without its values."""
    if isinstance(found, list):
        return [form(one) for one in found]
    if isinstance(found, dict):
        return {name: form(value) for name, value in found.items()}
    return None


@pytest.mark.parametrize(
    "words",
    [
        "mkdir -p new/{}",
        "mkdir --owner 1000:2000 owned-{}",
        "chown 3000 owned-{}",
        "chmod 2770 owned-{}",
        "mv new/{} new/{}-moved",
        "mv new/{}-moved d",
        "rm -r d/{}-moved",
        "rm d/{}",
        "rm -rf tree-{} none-{}",
        "mkdir d/pinned-{}",
        "pin --note good d/pinned-{}",
        "unpin d/pinned-{}",
        "queue hold d/pinned-{}",
        "queue bump d/pinned-{}",
        "queue release d/pinned-{}",
        "queue retry d/pinned-{}",
        "export set /{} --path d",
        "export set /{} --squash all",
        "export remove /{}",
        "policy clock",
        "warm --wait d/a",
        "wait --durable d/a",
        "promote --no-wait --as {} jobs/a/step-6",
        "demote {} --yes --no-wait",
    ],
)
def test_a_change_tells_the_same_from_afar(ask: Ask, words: str) -> None:
    client = ["--client", "10.0.0.0/8 ro"] if words.endswith("--path d") else []
    far = ask(*words.format("far", "far").split(), *client)
    near = ask(*words.format("near", "near").split(), *client, near=True)
    assert form(far) == form(near)
    assert "far" in json.dumps(far) or "{}" not in words


def test_a_promotion_that_is_not_confirmed_is_told(ask: Ask) -> None:
    for near in (False, True):
        name = f"kept-{near}".lower()
        ask("promote", "--no-wait", "--as", name, "jobs/a/step-5", near=near)
    docs = [ask("demote", f"kept-{near}".lower(), near=near, status=1) for near in (False, True)]
    assert form(docs[0]) == form(docs[1])
    assert [one["removed"] for one in docs] == [False, False]
    [state] = {one["state"] for one in docs}
    assert state == "copying"


def test_policies_tell_the_same(ask: Ask, tmp_path: Path) -> None:
    for near in (False, True):
        name = "near" if near else "far"
        text = f'[[policy]]\nname = "{name}"\nrun = "none"\nkeep_newest = 1\n'
        (tmp_path / f"{name}.toml").write_text(text)
    docs: list[list[Any]] = []
    for near, name in ((False, "far"), (True, "near")):
        file = str(tmp_path / f"{name}.toml")
        lines = (
            ("policy", "set", file), ("policy", "set", file), ("policy", "disable", name),
            ("policy", "disable", name), ("policy", "enable", name), ("policy", "show", name),
            ("policy", "show", name, "--version", "1"), ("policy", "remove", name),
        )  # fmt: skip
        docs.append([ask(*line, near=near) for line in lines])
    assert form(docs[0]) == form(docs[1])
    [first], [second], off, still, on, *_ = docs[0]
    assert [one["changed"] for one in (first, second, off, still, on)] == [
        *(True, False, True, False, True)
    ]
    assert ask("policy", "remove", "far", status=2, error="there is no policy far") is None


def test_a_plan_that_is_approved_is_told(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "policies.toml"
    approvals = []
    for near, run in ((False, "far"), (True, "near")):
        rule = f'name = "few"\nrun = "runs/{run}"\nkeep_newest = 1\nwait_hours = 0\n'
        file.write_text(f"[[policy]]\n{rule}")
        ask("policy", "set", str(file), near=True)
        asked = ask("policy", "plan", near=near)["asked"]
        approvals.append(ask("policy", "approve", asked["plan"], near=near))
        assert approvals[-1]["plan"] == asked["plan"]
        assert approvals[-1]["approved_ns"] > 0
    assert form(approvals[0]) == form(approvals[1])
    ask("policy", "remove", "few", near=True)


def test_the_trash_tells_the_same(ask: Ask, gateway: Afar) -> None:
    back, gone = [], []
    for near, step in ((False, 1), (True, 2)):
        path = f"checkpoints/{gateway.ino(f'a/step-{step}')}?force=true"
        trashed = gateway.ask("DELETE", path)["id"]
        told = ask("undelete", trashed, near=near)
        assert told == {"id": trashed, "path": f"/checkpoints/jobs/a/step-{step}"}
        back.append(told)
        trashed = gateway.ask("DELETE", path)["id"]
        assert ask("trash", "empty", trashed, near=near, status=2, error="add --yes") is None
        gone.append(ask("trash", "empty", trashed, "--yes", near=near))
        assert gone[-1] == [{"id": trashed, "removed": True, "failures": []}]


def test_tokens_tell_the_same(ask: Ask) -> None:
    ended = []
    for near in (False, True):
        made = ask("token", "create", "--role", "viewer", "--name", "x", near=near)
        ended.append(ask("token", "revoke", made["id"], near=near))
        assert (ended[-1]["id"], ended[-1]["state"]) == (made["id"], "revoked")
    assert form(ended[0]) == form(ended[1])
    assert ask("token", "revoke", "none", status=2, error="there is no such token") is None
    words = ("token", "add", "--name", "x", "0123456789ab", "x")
    assert ask(*words, status=2, error="runs on the gateway only") is None


def test_jobs_are_told(ask: Ask) -> None:
    begun = ask("warm", "d/e")
    assert (begun["waited"], begun["error"]) == (False, None)
    ended = ask("jobs", "cancel", begun["job"])
    assert (ended["id"], ended["kind"]) == (begun["job"], "warm")
    assert form(ended) == form(ask("jobs", "list")[0])
    assert ask("jobs", "cancel", "none", status=2, error="there is no job none") is None


def test_what_is_refused_is_no_json(ask: Ask) -> None:
    needs = "needs the role"
    assert ask("pin", "d", role="viewer", status=2, error=needs) is None
    assert ask("mkdir", "new/none/x", status=1, error="no such file") == []
    assert ask("mkdir", "made", "new/none/x", status=1, error="no such file")[0]["path"] == "made"
    assert ask("export", "remove", "/none", status=2, error="no export /none") is None
