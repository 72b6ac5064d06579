"""`spillway checkpoint list`, and its line in `spillway status`."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from gateway.catalogue.display_state import CATALOGUED, EXPIRED, MEANING
from gateway.catalogue.facts import Grade
from gateway.catalogue.unrecognised import LOOK_SECONDS, UnrecognisedSurvey
from gateway.cli import checkpoints
from gateway.cli.main import main
from gateway.common import clock
from gateway.common.models import from_json
from gateway.config import datadir
from gateway.db.engine import Database
from gateway.service import checkpoints as control
from gateway.service.checkpoints import CatalogueStatus
from tests.support.checkpoints.layouts import tensors
from tests.support.checkpoints.trashing import put, trash_of
from tests.support.checkpoints.world import World, follow
from tests.support.volumes import query, status_of


def run(configured: World, *words: str) -> int:
    return main(["checkpoint", "list", "--config", str(configured.settings.source), *words])


def listed(
    configured: World, capsys: pytest.CaptureFixture[str], *words: str
) -> list[dict[str, Any]]:
    assert run(configured, "--json", *words) == 0
    entries: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["checkpoints"]
    return entries


def test_it_lists_runs_and_steps_in_the_order_of_numbers(
    configured: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("job/step-9", "job/step-100", "job/last", "other/step-1"):
        configured.write(f"{path}/.metadata", b"12345")
    configured.write("job/step-1000/__0_0.distcp", b"x")
    configured.write("we\nird/step-2/.metadata", b"1")
    configured.drain("job/step-9/.metadata")
    follow(configured.follower())
    entries = listed(configured, capsys)
    assert [(entry["run"], entry["step"], entry["state"]) for entry in entries] == [
        ("job", 9, "durable"),
        ("job", 100, "complete"),
        ("job", 1000, "writing"),
        ("job", None, "complete"),
        ("other", 1, "complete"),
        ("we%0Aird", 2, "complete"),
    ]
    assert entries[0]["path"] == "/checkpoints/job/step-9"
    assert (entries[0]["files"], entries[0]["size_bytes"], entries[0]["dirty_bytes"]) == (1, 5, 0)
    assert entries[2]["age_seconds"] is None
    assert entries[2]["reason"] == ".metadata is missing"
    for name in ("job", "/checkpoints/job", "job/"):
        assert {entry["run"] for entry in listed(configured, capsys, name)} == {"job"}
    assert run(configured) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("job: durable: step 9 (")
    assert lines[1].split() == ["step", "state", "grade", "size", "files", "age", "checkpoint"]
    assert lines[4].split() == [
        *("1000", "writing", "-", "1", "B", "1", "file", "-", "step-1000:"),
        *(".metadata", "is", "missing"),
    ]
    assert run(configured, "missing") == 1
    assert capsys.readouterr().out == "there are no checkpoints of this run\n"


def test_numbers_in_the_names_of_runs_count_as_numbers(
    configured: World, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["2", "10", "run-2", "run-02b", "run-10", "run-10/a", "run-x"]
    for name in sorted(names):
        configured.write(f"{name}/step-1/.metadata", b"12345")
    follow(configured.follower())
    assert [entry["run"] for entry in listed(configured, capsys)] == names
    assert run(configured) == 0
    lines = capsys.readouterr().out.splitlines()
    # What the grades mean comes last.
    assert [line.split(":")[0] for line in lines if not line.startswith(" ")][:7] == names


def test_what_was_moved_is_archived_and_what_is_in_the_trash_expired(
    configured: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2, 3, 4):
        configured.write(f"run/step-{step}/.metadata", b"12345")
    for step in (1, 2):
        configured.drain(f"run/step-{step}/.metadata")
    # An object of step 3 was moved before the file was written again.
    configured.drain("run/step-3/.metadata")
    for step in (2, 3):
        ino = configured.attr(f"run/step-{step}/.metadata").ino
        query(configured.settings, f"UPDATE object SET storage_class = 'X' WHERE ino = {ino}")
    configured.write("run/step-3/.metadata", b"newer")
    trashed = put(configured, trash_of(configured), "run/step-4")
    follow(configured.follower())
    entries = listed(configured, capsys, "run")
    assert [(entry["step"], entry["state"], entry["storage_class"]) for entry in entries] == [
        (1, "durable", None),
        (2, "archived", "X"),
        (3, "complete", "X"),
        (4, "expired", None),
    ]
    assert entries[3].keys() == entries[0].keys()
    assert (entries[3]["path"], entries[3]["size_bytes"]) == ("/checkpoints/run/step-4", 5)
    assert run(configured, "run") == 0
    [last] = [line for line in capsys.readouterr().out.splitlines() if "expired" in line]
    assert last.split()[:2] == ["4", "expired"]
    assert last.endswith(f"step-4: in the trash: spillway trash restore {trashed}")


def test_lists_and_counts_have_the_states_that_are_shown(world: World) -> None:
    """They are made in SQL, on both engines."""
    for step in (1, 2):
        world.write(f"run/step-{step}/.metadata", b"12345")
        world.drain(f"run/step-{step}/.metadata")
    ino = world.attr("run/step-2/.metadata").ino
    query(world.settings, f"UPDATE object SET storage_class = 'X' WHERE ino = {ino}")
    follow(world.follower())
    database = Database(world.settings.database_url)
    try:
        with database.reading() as session:
            for state, steps in (("durable", [1]), ("archived", [2]), ("complete", [])):
                wanted = control.ListFilter(state=state)
                rows = control.page(session, world.settings, 9, wanted=wanted)
                assert [(row.model.step, row.model.state) for row in rows] == [
                    (step, state) for step in steps
                ]
            counts = control.gather(world.settings, session).checkpoints
    finally:
        database.close()
    assert {state: count for state, count in counts.items() if count} == {
        "durable": 1,
        "archived": 1,
    }


def graded(world: World, grades: list[str | None], broken: str) -> None:
    """Save steps of a run, of these grades. One of them has lost members since."""
    for step, _grade in enumerate(grades, 1):
        world.write(f"run/step-{step}/.metadata", b"12345")
    follow(world.follower())
    for step, grade in enumerate(grades, 1):
        query(
            world.settings,
            "UPDATE checkpoint SET grade = :grade WHERE step = :step",
            grade=grade,
            step=step,
        )
    query(
        world.settings,
        "UPDATE checkpoint SET state = 'broken', reason = '2 of 5 files are gone', grade = NULL,"
        " complete_ns = NULL WHERE path = :path",
        path=broken.encode(),
    )


def test_it_says_what_shows_that_a_checkpoint_is_complete_and_what_is_broken(
    configured: World, capsys: pytest.CaptureFixture[str]
) -> None:
    graded(configured, ["listed", "alike", "marked", "listed"], "run/step-4")
    entries = listed(configured, capsys)
    assert [(entry["grade"], entry["state"]) for entry in entries] == [
        ("listed", "complete"),
        ("alike", "complete"),
        ("marked", "complete"),
        (None, "broken"),
    ]
    assert [entry["step"] for entry in listed(configured, capsys, "--state", "broken")] == [4]
    assert run(configured) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split()[:3] == ["3", "complete", "marked"]
    assert lines[5].split()[:3] == ["4", "broken", "-"]
    assert lines[5].endswith("step-4: 2 of 5 files are gone")
    assert lines[6:] == [f"{word}: {MEANING[word]}" for word in ("broken", "marked")]
    assert run(configured, "--text", "step-1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    file = str(configured.settings.source)
    paths = [f"/checkpoints/run/step-{step}" for step in (2, 4)]
    assert main(["checkpoint", "show", "--config", file, *paths]) == 0
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"grade alike: {MEANING['alike']}" in said
    assert f"state broken: {MEANING['broken']}" in said
    assert "grade None" in said
    assert main(["checkpoint", "show", "--config", file, "--json", paths[1]]) == 0
    [facts] = json.loads(capsys.readouterr().out)
    assert (facts["state"], facts["grade"]) == ("broken", None)


def test_directories_of_tensors_that_no_rule_knows_are_listed(
    configured: World, capsys: pytest.CaptureFixture[str]
) -> None:
    configured.write("run/step-1/.metadata", b"1")
    configured.write("run/step-1/more/x.pt", b"1")
    assert run(configured, "--unrecognised") == 0
    assert capsys.readouterr().out == "every file of tensors belongs to a checkpoint\n"
    for path in ("ours/alpha/rank0.pt", "ours/alpha/rank1.pt", "ours/alpha/notes", "top.npz"):
        configured.write(path, b"12345")
    configured.write("run/m-step-1.pt", tensors())
    assert run(configured, "--unrecognised") == 0
    assert capsys.readouterr().out.splitlines() == [
        "files  size  directory                first file",
        "    1   5 B  /checkpoints             top.npz",
        "    2  10 B  /checkpoints/ours/alpha  rank0.pt",
        "no rule knows these: say what they are with [[checkpoints.rule]]",
    ]
    assert run(configured, "--unrecognised", "--json") == 0
    found = json.loads(capsys.readouterr().out)["unrecognised"]
    assert [(entry["path"], entry["files"]) for entry in found] == [
        ("/checkpoints", 1),
        ("/checkpoints/ours/alpha", 2),
    ]


def test_the_status_counts_such_directories_once_an_hour(
    configured: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> list[str]:
        facts = control.gather(configured.settings, session)
        return [text for label, text in checkpoints.lines(facts) if label == "unrecognised"]

    database = Database(configured.settings.database_url)
    survey = UnrecognisedSurvey(configured.settings, database, threading.Event())
    with database.reading() as session:
        assert shown() == [], "nobody has looked"
        assert LOOK_SECONDS - 60 < survey.run_once() <= LOOK_SECONDS
        assert shown() == []
        configured.write("ours/alpha/model.data-00000-of-00002", b"1")
        configured.write("ours/alpha/model.index", b"1")
        configured.write("theirs/rank0.pt", b"1")
        survey.run_once()
        assert shown() == [], "it was looked at just now"
        later = clock.monotonic_seconds() + LOOK_SECONDS
        monkeypatch.setattr(clock, "monotonic_seconds", lambda: later)
        survey.run_once()
        [text] = shown()
        assert text.startswith(
            "2 directories with files of tensors that no rule knows, first ours/alpha"
        )
    database.close()


@pytest.mark.parametrize(
    ("age_seconds", "rules", "is_read"),
    [(60.0, None, False), (LOOK_SECONDS, None, True), (-60.0, None, True), (60.0, "other", True)],
)
def test_a_restart_does_not_read_all_names_again(
    age_seconds: float, rules: str | None, is_read: bool, configured: World
) -> None:
    """The last report counts for an hour, unless the clock went back or the rules are others."""
    database = Database(configured.settings.database_url)
    UnrecognisedSurvey(configured.settings, database, threading.Event()).run_once()
    path = configured.settings.run_dir / datadir.UNRECOGNISED
    report = json.loads(path.read_text())
    report["time_ns"] = clock.now_ns() - int(age_seconds * clock.NS)
    report["rules"] = rules or report["rules"]
    path.write_text(json.dumps(report))
    configured.write("theirs/rank0.pt", b"1")
    left_seconds = UnrecognisedSurvey(configured.settings, database, threading.Event()).run_once()
    database.close()
    assert (json.loads(path.read_text())["directories"] == 1) is is_read
    assert is_read or left_seconds <= LOOK_SECONDS - age_seconds


def test_each_state_and_grade_is_explained() -> None:
    assert MEANING.keys() == {*CATALOGUED, EXPIRED, *Grade}


def test_it_says_that_nobody_has_looked_yet(
    configured: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(configured) == 0
    assert "was not looked at as a whole yet" in capsys.readouterr().out
    follow(configured.follower())
    assert run(configured) == 0
    assert capsys.readouterr().out == "there are no checkpoints\n"


def test_the_line_of_the_status(configured: World) -> None:
    assert checkpoints.line(catalogue_of(configured)) == ("catalogue", "none")
    configured.write("a/step-1/.metadata", b"1")
    configured.write("b/step-1/__0_0.distcp", b"1")
    configured.write("b/step-2/.metadata", b"1")
    follow(configured.follower())
    text = "2 runs: 1 writing, 2 complete"
    assert checkpoints.line(catalogue_of(configured)) == ("catalogue", text)


def catalogue_of(world: World) -> CatalogueStatus:
    return from_json(CatalogueStatus, status_of(world.settings)["catalogue"])
