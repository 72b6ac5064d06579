"""What leaves the trash is in the log: who removed it or took it back, why, and how that ended."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from gateway.cli import caller
from gateway.cli.main import main
from gateway.common import clock
from gateway.common.failpoints import TRASH_STEP
from gateway.lifecycle.trash import expiry
from tests.support.checkpoints.keeping import Bin, applier
from tests.support.checkpoints.trashing import put, save, trash_of
from tests.support.checkpoints.world import World
from tests.support.forking import context
from tests.support.namespace import Namespace
from tests.support.t9.trash import expiry_of, killed, with_values
from tests.support.t9.trash_log import REMOVED, logged
from tests.support.volumes import make_settings, make_volume, query

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")

PATH = "run/step-1"
FULL: dict[str, dict[str, object]] = {
    "cache": {"evict_from": 0.05},
    "space": {"slow_from": 0.1, "reserve_bytes": 1 << 50},
}


def test_the_end_of_a_grace_and_short_room_are_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "SHORT_SECONDS", 0.0)
    with_values(world, retention={"trash_seconds": 0.0})
    save(world, PATH)
    put(world, trash_of(world), PATH, by="two v1")
    assert logged(world.settings) == []
    expiry_of(world).run_once()
    with_values(world, **FULL, retention={"trash_short_seconds": 1000.0})
    save(world, "run/step-2")
    put(world, trash_of(world), "run/step-2", by="two v2")
    query(world.settings, "UPDATE trash SET since_ns = since_ns - :ns", ns=2000 * clock.NS)
    expiry_of(world).run_once()
    assert logged(world.settings) == [
        ("remove", "two v1", "grace is over", PATH, REMOVED),
        ("remove", "two v2", "room is short", "run/step-2", REMOVED),
    ]


def test_a_person_is_named(configured: World, capsys: pytest.CaptureFixture[str]) -> None:
    world = configured
    ids = []
    for step in (1, 2):
        save(world, f"run/step-{step}")
        ids.append(put(world, trash_of(world), f"run/step-{step}"))
    world.namespace.close()

    def run(*words: str) -> str:
        assert main([words[0], "--config", str(world.settings.source), *words[1:]]) == 0
        return capsys.readouterr().out

    run("trash", "restore", ids[0], "--to", "/checkpoints/run/step-9")
    run("trash", "empty", ids[1], "--yes")
    me = caller.name()
    back = "back at /checkpoints/run/step-9"
    assert logged(world.settings) == [
        ("undelete", me, "a person took it back", PATH, back),
        ("remove", me, "a person emptied the trash", "run/step-2", REMOVED),
    ]
    head, *rows = (re.split("  +", line) for line in run("policy", "log").splitlines())
    assert head == ["when", "what", "checkpoint", "result", "why", "by"]
    assert [row[1:] for row in rows] == [
        ["restored", f"/checkpoints/{PATH}", back, "a person took it back", me],
        ["removed for good", "/checkpoints/run/step-2", REMOVED, "a person emptied the trash", me],
    ]


CUT_OFF = {
    ("undelete", 1): "interrupted: it is still in the trash",
    ("undelete", 2): "interrupted: it is not in the trash any more",
    ("undelete", 3): f"back at /checkpoints/{PATH}",
    ("remove", 1): None,
    ("remove", 2): REMOVED,
    ("remove", 3): REMOVED,
}


@pytest.mark.parametrize(("what", "number"), CUT_OFF)
def test_what_a_kill_cuts_off_is_ended(what: str, number: int, tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data")
    make_volume(settings)
    world = World(settings, Namespace(settings))
    save(world, PATH)
    put(world, trash_of(world), PATH)
    world.end()
    world.namespace.close()
    armed = f"{TRASH_STEP.format(what=what)}.{number}"
    process = context.Process(target=killed, args=(settings, what, armed))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, armed
    [before] = logged(settings)
    assert (before[0], before[4] is None) == (what, number < 3)
    world = World(settings, Namespace(settings))
    # What is under way in another process is no business of retention.
    applier(world, Bin(world, tmp_path / "log")).run_once()
    assert logged(settings) == [before]
    trash_of(world).reconcile()
    assert logged(settings) == [(*before[:4], CUT_OFF[what, number])]
    if (what, number) == ("remove", 1):
        # The next pass removes what is left, under the same action.
        expiry_of(world).run_once()
        assert logged(settings) == [(*before[:4], REMOVED)]
        assert query(settings, "SELECT count(*) FROM trash") == [(0,)]
    world.end()
    world.namespace.close()
