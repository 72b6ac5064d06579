"""The trash: what goes in and out, what is refused, when it is removed, and kills in between."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.common import clock
from gateway.common.errors import NotFound, TrashRefused
from gateway.common.failpoints import TRASH_STEP
from gateway.common.types import GATEWAY_CRED, ROOT_CRED, SetAttr
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO, TRASH_INO
from gateway.lifecycle.trash import expiry
from gateway.lifecycle.trash.trash import UNKNOWN
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from tests.support.checkpoints.trashing import NamespaceControlSocket, put, save, trash_of
from tests.support.checkpoints.world import World, follow, rebuilt, rows_of
from tests.support.forking import context
from tests.support.namespace import Namespace
from tests.support.ports import free_port
from tests.support.t9.trash import (
    DAY_NS,
    PATH,
    RUN,
    expiry_of,
    killed,
    names,
    reserved,
    with_values,
)
from tests.support.volumes import make_settings, make_volume, query, write_settings

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")


def test_a_checkpoint_goes_comes_back_and_is_removed(world: World) -> None:
    trash = trash_of(world)
    save(world, PATH, "deep/b.distcp")
    save(world, "run/step-2")
    ino = world.attr(PATH).ino
    world.drain(f"{PATH}/a.distcp")
    trashed = put(world, trash, PATH)
    with pytest.raises(NotFound):
        world.namespace.lookup(world.directory(RUN), b"step-1")
    [entry] = trash.entries()
    assert (entry.id, entry.ino, entry.path) == (trashed, ino, PATH.encode())
    assert (entry.run, entry.step, entry.files, entry.state) == (b"run", 1, 3, "kept")
    assert (entry.deleted_by, entry.expires_ns - entry.since_ns) == ("policy keep-3", 7 * DAY_NS)
    # Its files are no backlog: a.distcp was drained, the two others take their bytes on the disk.
    takes = trash.totals(trash.entries())[trashed]
    assert (takes.dirty_files, takes.stored) == (2, len("a.distcp"))
    assert entry.dirty_used == takes.dirty_size == len("deep/b.distcp") + len(".metadata")
    assert world.namespace.dirty_bytes() == len("a.distcp") + len(".metadata")
    follow(world.follower())
    assert (
        [row.path for row in rows_of(world.settings)]
        == [b"run/step-2"]
        == [row.path for row in rebuilt(world)]
    )
    # Back, at another path too, and the catalogue knows it again.
    assert trash.undelete(trashed, [b"run", b"step-7"], by="me") == b"run/step-7"
    assert trash.entries() == [] and names(world, TRASH_INO) == []
    follow(world.follower())
    row = world.row("run/step-7")
    assert row is not None and (row.ino, row.step, row.state) == (ino, 7, "complete")
    assert put(world, trash, "run/step-7") == trashed
    trash.remove(trash.entries()[0], by="me", reason="why")
    assert trash.entries() == [] and names(world, TRASH_INO) == []
    assert query(world.settings, "SELECT count(*) FROM trash") == [(0,)]
    keys = query(world.settings, "SELECT key FROM tombstone")
    assert keys == [(f"{PATH}/a.distcp",)]
    assert query(world.settings, "SELECT count(*) FROM object") == [(0,)]


def test_a_single_file_goes_and_is_removed(world: World) -> None:
    rule = {"name": "ours", "path": "{run}/step-{step}.pt", "files": 1}
    with_values(world, checkpoints={"rule": [rule]})
    world.write("run/step-5.pt", b"1")
    trash = trash_of(world)
    put(world, trash, "run/step-5.pt")
    assert names(world, world.directory(RUN)) == []
    trash.remove(trash.entries()[0], by="me", reason="why")
    assert names(world, TRASH_INO) == [] and trash.entries() == []


def test_an_undelete_replaces_nothing(world: World) -> None:
    made: list[str] = []
    trash = trash_of(world, lambda: [world.directory(path) for path in made])
    save(world, PATH)
    trashed = put(world, trash, PATH)
    with pytest.raises(TrashRefused, match="not in the trash"):
        trash.undelete("t1", by="me")
    with pytest.raises(TrashRefused, match="no directory /checkpoints/no: make it"):
        trash.undelete(trashed, [b"no", b"where"], by="me")
    with pytest.raises(TrashRefused, match="reserved"):
        trash.undelete(trashed, [b".spillway", b"x"], by="me")
    # An empty directory that a client makes in the last moment: rename(2) would replace it.
    made.append(PATH)
    with pytest.raises(TrashRefused, match="taken"):
        trash.undelete(trashed, by="me")
    with pytest.raises(TrashRefused, match="there already"):
        trash.undelete(trashed, by="me")
    made.clear()
    world.namespace.remove(ROOT_CRED, *world.split(PATH))
    assert trash.undelete(trashed, by="me") == PATH.encode()


def test_the_clock_ends_no_grace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    trash, task = trash_of(world), expiry_of(world)
    save(world, PATH)
    put(world, trash, PATH)
    honest_clock, honest_uptime = clock.now_ns, clock.uptime_ns
    monkeypatch.setattr(clock, "now_ns", lambda: honest_clock() + 400 * DAY_NS)
    assert task.run_once() == expiry.PASS_SECONDS
    # After a start of the machine, an hour of the jump counts, whatever the clock says.
    monkeypatch.setattr(clock, "now_ns", lambda: honest_clock() + 800 * DAY_NS)
    monkeypatch.setattr(clock, "boot_id", lambda: "another")
    monkeypatch.setattr(clock, "uptime_ns", lambda: 0)
    before_ns = trash.now_ns()
    trash.tick(trash.entries())
    task.run_once()
    assert len(trash.entries()) == 1
    assert trash.now_ns() - before_ns < clock.NS
    assert trash.now_ns() - trash.entries()[0].since_ns < 2 * 3600 * clock.NS
    # What has passed for certain ends it: also a clock that stands still.
    monkeypatch.setattr(clock, "now_ns", honest_clock)
    monkeypatch.setattr(clock, "uptime_ns", lambda: 7 * DAY_NS - 3 * 3600 * clock.NS)
    task.run_once()
    assert len(trash.entries()) == 1
    monkeypatch.setattr(clock, "uptime_ns", lambda: honest_uptime() + 7 * DAY_NS)
    assert task.run_once() == expiry.PASS_SECONDS
    assert trash.entries() == [] and names(world, TRASH_INO) == []


def test_without_grace_it_goes_in_the_next_pass(world: World) -> None:
    with_values(world, retention={"trash_seconds": 0.0})
    save(world, PATH)
    ino = world.attr(f"{PATH}/a.distcp").ino
    put(world, trash_of(world), PATH)
    # Earlier versions left a file with another name to clients.
    query(world.settings, "UPDATE inode SET reserved = 0 WHERE ino = :ino", ino=ino)
    world.namespace.link(ROOT_CRED, ino, ROOT_INO, b"another name")
    # A client that has a file open for writing, by its other name, keeps it.
    attr = world.namespace.open_write(ino)
    task = expiry_of(world)
    task.run_once()
    assert len(names(world, TRASH_INO)) == 1
    world.opened["x"] = attr
    world.close("x", b"1")
    task.run_once()
    assert names(world, TRASH_INO) == []


def test_room_is_given_back_when_it_is_short(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "SHORT_SECONDS", 0.0)
    full: dict[str, dict[str, object]] = {
        "cache": {"evict_from": 0.05},
        "space": {"slow_from": 0.1, "reserve_bytes": 1 << 50},
    }
    with_values(world, **full, retention={"trash_short_seconds": 1000.0})
    trash = trash_of(world)
    for step in (1, 2, 3):
        save(world, f"run/step-{step}")
    for name in ("a.distcp", ".metadata"):
        world.drain(f"run/step-1/{name}")
    clean, dirty, young = (put(world, trash, f"run/step-{step}") for step in (1, 2, 3))
    task = expiry_of(world)
    task.run_once()
    assert [entry.id for entry in trash.entries()] == [clean, dirty, young]
    # The clean one is the evictor's. Of the others, the one that is old enough goes.
    for one in (clean, dirty):
        query(
            world.settings,
            "UPDATE trash SET since_ns = since_ns - :ns WHERE id = :id",
            ns=2000 * clock.NS,
            id=one,
        )
    monkeypatch.setattr(expiry, "SHORT_SECONDS", 1e9)
    task.run_once()
    assert len(trash.entries()) == 3
    monkeypatch.setattr(expiry, "SHORT_SECONDS", 0.0)
    task.run_once()
    assert [entry.id for entry in trash.entries()] == [clean, young]


def test_rows_say_what_is_in_the_trash(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    trash = trash_of(world)
    save(world, PATH)
    trashed = put(world, trash, PATH)
    query(world.settings, "DELETE FROM trash")
    # What a promotion builds there is none of ours.
    world.namespace.mkdir(GATEWAY_CRED, TRASH_INO, b"promotion-5", SetAttr(mode=0o755))
    trash.reconcile()
    [entry] = trash.entries()
    assert (entry.id, entry.reason) == (trashed, UNKNOWN)
    with pytest.raises(TrashRefused, match="not known"):
        trash.undelete(trashed, by="me")
    assert trash.undelete(trashed, PATH.encode().split(b"/"), by="me")
    # What a put that failed leaves is given back at once, and what one that was killed leaves is.
    follow(world.follower())
    row = world.row(PATH)
    assert row is not None
    later = trash_of(world, lambda: os.sched_yield())
    monkeypatch.setattr(
        NamespaceControlSocket, "run", lambda self, requests: (_ for _ in ()).throw(KeyError())
    )
    with pytest.raises(KeyError):
        later.put(row.ino, row.path, row.evidence, "policy", "why")
    monkeypatch.undo()
    assert query(world.settings, "SELECT state FROM trash") == []
    assert reserved(world) == 6, "the five and what a promotion builds"
    save(world, "run/step-2")
    put(world, trash, "run/step-2")
    query(world.settings, "UPDATE trash SET state = 'putting'")
    assert trash.entries() == []
    trash.reconcile()
    assert [trash_row.state for trash_row in trash.entries()] == ["kept"]
    world.namespace.remove(GATEWAY_CRED, TRASH_INO, b"promotion-5")


# What is done, the step of it, and after how many steps of that kind it is killed.
STEPS = [
    *(("put", "put", n) for n in (1, 2, 3, 4)),
    *(("put", "mark", n) for n in (1, 2, 3)),
    *(("undelete", "undelete", n) for n in (1, 2, 3)),
    *(("undelete", "mark", n) for n in (1, 2, 3, 4)),
    ("remove", "remove", 1),
]
AWAY = [("put", "put", 3), ("put", "put", 4), ("undelete", "undelete", 1)]


def test_kills_at_each_step(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data")
    make_volume(settings)
    for what, step, number in STEPS:
        world = World(settings, Namespace(settings))
        trash = trash_of(world)
        if not names(world, ROOT_INO).count(b"run"):
            save(world, PATH, "deep/b.distcp")
        elif what == "put" and trash.entries():
            trash.undelete(trash.entries()[0].id, by="me")
        if what != "put" and not trash.entries():
            put(world, trash, PATH)
        follow(world.follower())
        world.namespace.close()
        armed = f"{TRASH_STEP.format(what=step)}.{number}"
        process = context.Process(target=killed, args=(settings, what, armed))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, armed
        assert fsck.check(Database(settings.database_url), DataFiles(settings.files_dir)) == []
        world.namespace = Namespace(settings)
        trash = trash_of(world)
        trash.reconcile()
        is_back = names(world, world.directory(RUN)) == [b"step-1"]
        inside = names(world, TRASH_INO)
        states = [entry.state for entry in trash.entries()]
        if what == "remove":
            # The next pass removes what is left.
            assert (is_back, states) == (False, ["expiring"])
            with pytest.raises(TrashRefused, match="too late"):
                trash.undelete(inside[0].decode(), by="me")
            expiry_of(world).run_once()
            assert names(world, TRASH_INO) == [] == trash.entries()
        else:
            assert is_back == (not inside) == (states != ["kept"]), armed
            assert is_back == ((what, step, number) not in AWAY), armed
            assert reserved(world) == (5 if is_back else 10), armed
        world.end()
        world.namespace.close()
    assert fsck.check(Database(settings.database_url), DataFiles(settings.files_dir)) == []


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = write_settings(tmp_path, {"nfs": {"port": free_port()}})
    make_volume(settings)
    world = World(settings, Namespace(settings))
    ids = []
    for _ in range(2):
        save(world, PATH)
        ids.append(put(world, trash_of(world), PATH, by="evil\x1b[2J"))
    world.end()
    world.namespace.close()

    def run(*words: str) -> tuple[int, str]:
        status = main([words[0], "--config", str(settings.source), *words[1:]])
        said = capsys.readouterr()
        return status, said.out + said.err

    status, said = run("trash", "list")
    head, *rows = said.splitlines()
    assert re.split("  +", head)[-1] == "path, by whom, and why"
    assert status == 0 and len(rows) == 2 and "\x1b" not in said
    assert all(f"  /checkpoints/{PATH}: evil" in row for row in rows)
    assert all(row.endswith(": it is not among the newest 3") for row in rows)
    status, said = run("trash", "restore", f"/checkpoints/{PATH}")
    assert status == 1 and f"2 times: name one: {ids[0]}, {ids[1]}" in said
    assert run("trash", "restore", "t9")[0] == 1
    status, said = run("trash", "restore", ids[0], "--to", "/checkpoints/new")
    assert status == 0 and said.startswith("/checkpoints/new: it is back\n") and "pin PATH" in said
    assert [run("trash", "empty", *words)[0] for words in ((), ("--all", "t9"), ("t9",))] == [2] * 3
    status, said = run("trash", "empty", ids[1])
    assert status == 2 and "add --yes" in said
    status, said = run("trash", "empty", "--all", "--yes")
    assert status == 0 and f"{ids[1]}: removed for good" in said
    assert run("trash", "list") == (0, "the trash is empty\n")
