"""The plan that is shown is done, whole, once, and only while it is still right."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.common.errors import TrashRefused
from gateway.common.failpoints import RETENTION_ACTION
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.retention import applier as applier_module
from gateway.lifecycle.retention.applier import PAUSE_SECONDS
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import data_files, identity
from gateway.namespace.data_files import Stamp
from tests.support.checkpoints.keeping import (
    Bin,
    actions,
    applier,
    catch_up,
    paths,
    planned,
    put,
    save,
    shown,
)
from tests.support.checkpoints.world import World
from tests.support.forking import context
from tests.support.namespace import Namespace
from tests.support.t9 import retention as shared
from tests.support.t9.retention import live, with_share
from tests.support.volumes import query

made = shared.made
world = shared.world

SECONDS = 30.0


def test_the_plan_that_is_shown_is_done(world: World, tmp_path: Path) -> None:
    wanted = {f"run/step-{n}".encode() for n in (1, 2, 3)}
    assert shown(world) == wanted
    trash = Bin(world, tmp_path / "log")
    task = applier(world, trash)
    assert task.run_once() >= applier_module.PASS_SECONDS
    assert {text.encode() for text in trash.log()} == wanted
    assert {what for what, _result in actions(world)} == {"trash"}
    rows = query(world.settings, "SELECT author, reason, began_ns, finished_ns, result FROM action")
    for author, reason, began_ns, finished_ns, result in rows:
        assert author == "two v1"
        assert "not among the newest 2" in reason
        assert "step 5 is newer and durable" in reason
        assert began_ns <= finished_ns
        assert result.startswith("in the trash as t")
    # The catalogue still has the rows: what is not there any more is not deleted again.
    assert shown(world) == wanted
    applier(world, trash).run_once()
    assert len(trash.log()) == len(actions(world)) == 3
    catch_up(world)
    assert shown(world) == set()
    assert paths(world) == {b"run/step-4", b"run/step-5"}
    # Saves come every second: the next plan is not made before its time.
    put(world, {"name": "two", "keep_newest": 1})
    assert shown(world) == {b"run/step-4"}
    assert 0 < task.run_once() <= applier_module.PASS_SECONDS
    assert len(actions(world)) == 3


def overwrite(world: World) -> None:
    world.write("run/step-5/.metadata", b"newer")


def forget(world: World) -> None:
    query(world.settings, "DELETE FROM catalogue")


def change_policy(world: World) -> None:
    put(world, {"name": "two", "keep_newest": 3})


def change_all(world: World) -> None:
    for step in (1, 2, 3):
        world.write(f"run/step-{step}/other", b"1")


def open_all(world: World) -> None:
    for step in (1, 2, 3):
        world.open(f"run/step-{step}/__0_0.distcp")


def move_all(world: World) -> None:
    for step in (1, 2, 3):
        world.rename(f"run/step-{step}", f"other/step-{step}")


def lose_newest(world: World) -> None:
    for name in (".metadata", "__0_0.distcp"):
        world.remove(f"run/step-5/{name}")


def undrain(world: World) -> None:
    query(world.settings, "UPDATE inode SET drained_version = 0 WHERE kind = 1")


def pin_all(world: World) -> None:
    query(world.settings, "INSERT INTO pin SELECT ino, '', 'a person', 1 FROM checkpoint")


def link_all(world: World) -> None:
    for step in (1, 2, 3):
        target = b"step-%d/.metadata" % step
        world.namespace.symlink(ROOT_CRED, world.directory("run"), b"l%d" % step, target, SetAttr())


def name_all(world: World) -> None:
    world.write("run/latest", b"step-1 step-2 step-3")


def write_tracker(world: World) -> None:
    world.open("run/latest")


def unsettle_newest(world: World) -> None:
    query(world.settings, "UPDATE checkpoint SET grade = 'marked' WHERE step = 5")


def break_newest(world: World) -> None:
    """Let the catalogue find that a member is gone."""
    world.remove("run/step-5/.metadata")
    query(world.settings, "UPDATE checkpoint SET state = 'broken' WHERE step = 5")


def number_again(world: World) -> None:
    query(world.settings, "UPDATE checkpoint_record SET completion = completion + 9")


@pytest.mark.parametrize(
    "happens",
    [
        *(overwrite, forget, change_policy, change_all, open_all, move_all, lose_newest),
        *(undrain, pin_all, link_all, name_all, write_tracker, unsettle_newest, break_newest),
        number_again,
    ],
    ids=lambda happens: happens.__name__,
)
def test_what_happens_after_the_plan_stops_it(
    happens: Callable[[World], None],
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trash = Bin(world, tmp_path / "log")
    task = applier(world, trash)
    real = identity.require_surroundings

    def then(settings: Settings) -> None:
        real(settings)
        happens(world)

    # The plan is made, and this is the last thing before its deletions.
    monkeypatch.setattr(identity, "require_surroundings", then)
    task.run_once()
    assert trash.log() == []
    assert actions(world) == []


def test_other_data_files_or_an_older_database_delete_nothing(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stamp = data_files.read(world.settings.files_dir)
    assert stamp is not None
    later = Stamp(stamp.fs_id, stamp.gateway, (stamp.marks[-1] + 7,), stamp.directory)
    data_files.write(world.settings.files_dir, later)
    trash = Bin(world, tmp_path / "log")
    assert shown(world)
    applier(world, trash).run_once()
    assert trash.log() == []
    assert actions(world) == []
    assert "nothing is deleted, evicted or moved now" in caplog.text
    assert "restored from a backup" in caplog.text


def test_a_refusal_is_recorded_and_not_repeated_at_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise TrashRefused("it is not as expected")

    task = applier(world, Bin(world, tmp_path / "log", meanwhile=refuse))
    task.run_once()
    assert actions(world) == 3 * [("trash", "refused: it is not as expected")]
    monkeypatch.setattr(applier_module, "PASS_SECONDS", 0.0)
    monkeypatch.setattr(applier_module, "PAUSE_RATIO", 0)
    monkeypatch.setattr(task, "_next_at", 0.0)
    task.run_once()
    assert len(actions(world)) == 3
    assert PAUSE_SECONDS > 60


def test_a_stop_ends_it_between_two_actions(world: World, tmp_path: Path) -> None:
    stop = threading.Event()
    trash = Bin(world, tmp_path / "log", meanwhile=stop.set)
    applier(world, trash, stop).run_once()
    assert len(trash.log()) == 1
    assert len(actions(world)) == 1


# Kills.


def test_a_kill_between_any_two_steps_repeats_harmlessly(made: Settings) -> None:
    made = with_share(made)
    world = World(made, Namespace(made))
    save(world, *(f"a/step-{step}" for step in range(4)), "b/step-1", "b/step-2", "b/step-3")
    save(world, "a/step-4", "c/step-1", durable=False)
    put(world, {"name": "one", "keep_newest": 1})
    put(world, {"name": "all", "run": "b", "keep_every_steps": 2})
    catch_up(world)
    before, wanted = paths(world), shown(world)
    assert wanted
    world.end()
    world.namespace.close()
    points = [f"{RETENTION_ACTION.format(when=when)}.1" for when in ("begun", "done", "ended")]
    for armed in [*points * len(wanted), ""]:
        process = context.Process(target=live, args=(made, armed))
        process.start()
        process.join(SECONDS)
        assert process.exitcode in (0, -signal.SIGKILL)
        if process.exitcode == 0:
            break
    assert process.exitcode == 0
    entries = Trash(made, Database(made.database_url)).entries()
    assert sorted(entry.path for entry in entries) == sorted(wanted)
    assert {entry.deleted_by for entry in entries} <= {"one v1", "all v1, one v1"}
    assert all("is newer and durable" in entry.reason for entry in entries)
    results = [result for _what, result in query(made, "SELECT what, result FROM action")]
    assert len(results) > len(wanted), "no kill left an action"
    assert any("still there" in result for result in results)
    assert any("not at its path any more" in result for result in results)
    world = World(made, Namespace(made))
    catch_up(world)
    assert paths(world) == before - wanted
    assert shown(world) == set()
    world.end()
    world.namespace.close()


# The share.


def test_a_plan_over_the_share_waits_for_a_person(world: World, tmp_path: Path) -> None:
    trash = Bin(world, tmp_path / "log")
    save(world, *(f"run/step-{step}" for step in range(6, 13)))
    catch_up(world)
    plan = planned(world)
    assert plan.asked is not None
    assert plan.admitted == []
    assert len(plan.plan.deletions) == 10
    applier(world, trash).run_once()
    applier(world, trash).run_once()
    assert trash.log() == []
    asked = "SELECT plan, checkpoints, approved_ns, author FROM approval"
    assert query(world.settings, asked) == [(plan.asked.plan, 10, None, None)]
    # An approval is of exactly these deletions. One more goes its usual way.
    query(world.settings, "UPDATE approval SET approved_ns = 1, author = 'a person'")
    save(world, "run/step-13")
    catch_up(world)
    assert len(shown(world)) == 11
    applier(world, trash).run_once()
    assert len(trash.log()) == 11
    catch_up(world)
    # What was approved is forgotten when it is done.
    save(world, "run/step-14")
    catch_up(world)
    applier(world, trash).run_once()
    assert query(world.settings, asked) == []
