"""What must not end a grace: another machine, a second deletion, a pin, a lost record."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gateway.common import clock
from gateway.common.clock import ElapsedTime
from gateway.common.errors import TrashRefused, UserError
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import adopt, data_files
from gateway.namespace.data_files import DataFiles
from gateway.processes import checkpoints as process
from gateway.rpc import control
from gateway.rpc.frames import RpcReply
from tests.support.checkpoints.trashing import NamespaceControlSocket, put, save, trash_of
from tests.support.checkpoints.world import World, follow
from tests.support.namespace import Namespace
from tests.support.t9.trash import DAY_NS, expiry_of, with_values
from tests.support.volumes import query

PATH = "run/step-1"


@pytest.mark.parametrize(
    ("uptime_days", "clock_days", "passed_ns"),
    [
        (300, 0.5, DAY_NS // 2),
        (300, -5, 0),
        (2, 10, 2 * DAY_NS + clock.OFF_MAX_NS),
        (2, 2, 2 * DAY_NS),
        (0, 400, clock.OFF_MAX_NS),
    ],
)
def test_a_machine_that_ran_before_the_stored_moment_ends_no_grace(
    monkeypatch: pytest.MonkeyPatch, uptime_days: float, clock_days: float, passed_ns: int
) -> None:
    stored = ElapsedTime(7, "here", 5 * DAY_NS, 1000 * DAY_NS)
    monkeypatch.setattr(clock, "boot_id", lambda: "there")
    monkeypatch.setattr(clock, "uptime_ns", lambda: int(uptime_days * DAY_NS))
    monkeypatch.setattr(clock, "now_ns", lambda: int((1000 + clock_days) * DAY_NS))
    time = clock.elapsed_time(clock.reading(), stored)
    assert time.elapsed_ns == 7 + passed_ns


def test_what_was_deleted_a_second_time_has_a_grace_of_its_own(world: World) -> None:
    with_values(world, retention={"trash_seconds": 0.0})
    trash = trash_of(world)
    save(world, PATH)
    trashed = put(world, trash, PATH)
    [seen] = trash.entries()
    trash.undelete(trashed, by="me")
    assert put(world, trash, PATH) == trashed
    with pytest.raises(TrashRefused, match="not in the trash any more"):
        trash.remove(seen, by="me", reason="why")
    [entry] = trash.entries()
    assert (entry.ino, entry.state) == (seen.ino, "kept")
    trash.remove(entry, by="me", reason="why")
    assert trash.entries() == []


def test_what_is_pinned_or_being_copied_stays_in_the_trash(world: World) -> None:
    with_values(world, retention={"trash_seconds": 0.0})
    trash, task = trash_of(world), expiry_of(world)
    save(world, PATH)
    save(world, "run/step-2")
    inside, whole = (put(world, trash, f"run/step-{step}") for step in (1, 2))
    inos = {entry.id: entry.ino for entry in trash.entries()}
    [(child, *_)] = query(
        world.settings,
        "SELECT ino FROM dirent WHERE parent = :top AND name = :name",
        top=inos[inside],
        name=b"a.distcp",
    )
    query(world.settings, "INSERT INTO pin VALUES (:ino, '', 'me', 1)", ino=child)
    query(
        world.settings,
        "INSERT INTO promotion (name, state, ino, path, note, asked_by, asked_ns, top, generation,"
        " files, size) VALUES ('best', 'copying', :ino, :path, '', 'me', 1, 0, 0, 2, 2)",
        ino=inos[whole],
        path=b"run/step-2",
    )
    assert task.run_once() > 1
    assert [entry.id for entry in trash.entries()] == [inside, whole]
    query(world.settings, "UPDATE promotion SET state = 'done'")
    task.run_once()
    assert [entry.id for entry in trash.entries()] == [inside]
    query(world.settings, "DELETE FROM pin")
    task.run_once()
    assert trash.entries() == []


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EACCES, errno.EBUSY, errno.EIO, errno.EAGAIN])
def test_a_refusal_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    trash: Trash = trash_of(world)
    save(world, PATH)
    monkeypatch.setattr(
        NamespaceControlSocket, "run", lambda self, requests: [RpcReply(code, None)]
    )
    with pytest.raises(TrashRefused):
        put(world, trash, PATH)
    assert query(world.settings, "SELECT state FROM trash") == []
    assert query(world.settings, "SELECT count(*) FROM inode WHERE reserved = 1") == [(5,)]


def age(settings: Settings) -> None:
    """Make the database older than the data files."""
    query(settings, "UPDATE volume SET mark = 0")


def replace_the_disk(settings: Settings) -> None:
    """Only the stamp tells that the database is the older one. A new disk has none."""
    (settings.files_dir / data_files.NAME).unlink()


@pytest.mark.parametrize("how", [age, replace_the_disk])
def test_an_older_database_ends_no_grace(
    configured: World, monkeypatch: pytest.MonkeyPatch, how: Callable[[Settings], None]
) -> None:
    world = configured
    trash = trash_of(world)
    honest_ns = clock.uptime_ns()
    monkeypatch.setattr(clock, "uptime_ns", lambda: honest_ns)
    for step in (1, 2):
        save(world, f"run/step-{step}")
        put(world, trash, f"run/step-{step}")
        monkeypatch.setattr(clock, "uptime_ns", lambda: honest_ns + 5 * DAY_NS)
    [removing, _kept] = trash.entries()
    query(world.settings, "UPDATE trash SET state = 'expiring' WHERE id = :id", id=removing.id)
    files = DataFiles(world.settings.files_dir)
    world.namespace.close()
    for is_older in (False, True):
        if is_older:
            how(world.settings)
        database = Database(world.settings.database_url)
        adopt.adopt_files(database, files)
        database.close()
        states = query(world.settings, "SELECT state FROM trash ORDER BY since_ns")
        assert states == [("kept" if is_older else "expiring",), ("kept",)]
        # The backup was made weeks ago, on this start of the machine.
        monkeypatch.setattr(clock, "uptime_ns", lambda: honest_ns + 30 * DAY_NS)
        left_ns = [entry.expires_ns - trash.now_ns() for entry in trash.entries()]
        assert [ns >= 7 * DAY_NS for ns in left_ns] == 2 * [is_older]
    world.namespace = Namespace(world.settings)
    task = expiry_of(world)
    task.run_once()
    assert len(trash.entries()) == 2
    monkeypatch.setattr(clock, "uptime_ns", lambda: honest_ns + (30 + 13) * DAY_NS)
    task._tick_at = 0.0
    task.run_once()
    assert trash.entries() == []


def test_retention_waits_for_a_server_as_other_duties_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lock of the trash meanwhile, for which people wait."""
    save(world, PATH)
    follow(world.follower())
    row = world.row(PATH)
    assert row is not None
    monkeypatch.setattr(control, "BACKGROUND_SECONDS", 0.2)
    tasks = process._tasks(world.settings, threading.Event())
    trash: Any = next(task._trash for task in tasks if isinstance(task, Applier))
    started = clock.monotonic_seconds()
    with datadir.locked(world.settings, datadir.COMMAND), pytest.raises(UserError):
        trash.put(row.ino, row.path, row.evidence, "policy", "why")
    assert clock.monotonic_seconds() - started < 10
    trash._database.close()
