"""A trash that is larger than its limit: what goes early, what stays, and what people are told."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gateway.cli.main import main
from gateway.common import clock
from gateway.lifecycle.trash.expiry import TOO_LARGE
from gateway.lifecycle.trash.rows import TrashRow
from tests.support.checkpoints.trashing import put, save, trash_of
from tests.support.checkpoints.world import World
from tests.support.t9.trash import expiry_of, with_values
from tests.support.t9.trash_log import REMOVED, logged
from tests.support.volumes import query

SIZE = len("a.distcp") + len(".metadata")
STAYS = "no newer checkpoint of its run is durable"


def trashed(world: World, count: int) -> list[str]:
    """Put checkpoints of one size each into the trash, for an hour and more. Returns their ids."""
    ids = []
    for step in range(1, count + 1):
        save(world, f"run/step-{step}")
        ids.append(put(world, trash_of(world), f"run/step-{step}"))
    query(world.settings, "UPDATE trash SET since_ns = since_ns - :ns", ns=4000 * clock.NS)
    return ids


def pinned_in(world: World, trash_id: str) -> str:
    """Pin what has an id in the trash. Returns the id."""
    [[ino]] = query(world.settings, "SELECT ino FROM trash WHERE id = :id", id=trash_id)
    query(
        world.settings,
        "INSERT INTO pin (ino, note, pinned_by, pinned_ns) VALUES (:ino, '', 'me', 1)",
        ino=ino,
    )
    return trash_id


def limited(world: World, max_bytes: int) -> None:
    with_values(world, retention={"trash_max_bytes": max_bytes})


def left(world: World, guard: Callable[[TrashRow], str | None] = lambda _entry: None) -> list[str]:
    """Return what is in the trash after a pass, the oldest first."""
    expiry_of(world, guard).run_once()
    return [entry.id for entry in trash_of(world).entries()]


def test_the_oldest_go_until_the_rest_is_within_the_limit(world: World) -> None:
    ids = trashed(world, 4)
    assert left(world) == ids
    limited(world, 4 * SIZE)
    assert left(world) == ids
    limited(world, 3 * SIZE - 1)
    assert left(world) == ids[2:]
    assert logged(world.settings) == [
        ("remove", "policy keep-3", TOO_LARGE, f"run/step-{step}", REMOVED) for step in (1, 2)
    ]
    limited(world, 1)
    assert left(world) == []


def test_what_is_young_is_not_removed_early(world: World) -> None:
    ids = trashed(world, 3)
    limited(world, 1)
    for trash_id, more_seconds in ((ids[0], 3000), (ids[2], 3000)):
        query(
            world.settings,
            "UPDATE trash SET since_ns = since_ns + :ns WHERE id = :id",
            ns=more_seconds * clock.NS,
            id=trash_id,
        )
    assert left(world) == [ids[0], ids[2]]
    with_values(world, retention={"trash_max_bytes": 1, "trash_short_seconds": 0.0})
    assert left(world) == []


def test_what_a_run_needs_or_a_person_wants_stays_and_younger_ones_go(world: World) -> None:
    ids = trashed(world, 5)
    needed, pinned = ids[0], pinned_in(world, ids[1])
    limited(world, 3 * SIZE)

    def guard(entry: TrashRow) -> str | None:
        return STAYS if entry.id == needed else None

    assert left(world, guard) == [needed, pinned, ids[4]]
    limited(world, 1)
    assert left(world, guard) == [needed, pinned]
    assert [entry.stays for entry in trash_of(world).entries()] == [STAYS, None]


def test_nothing_else_goes_for_what_is_open_or_due(world: World) -> None:
    save(world, "run/step-0")
    ino = world.attr("run/step-0/a.distcp").ino
    first = put(world, trash_of(world), "run/step-0")
    ids = [first, *trashed(world, 2)]
    limited(world, 2 * SIZE)
    query(world.settings, "UPDATE inode SET write_open = 1 WHERE ino = :ino", ino=ino)
    assert left(world) == ids
    # It is due. Its end is that of its grace.
    query(world.settings, "UPDATE trash SET expires_ns = 0 WHERE id = :id", id=first)
    assert left(world) == ids
    query(world.settings, "UPDATE inode SET write_open = 0 WHERE ino = :ino", ino=ino)
    assert left(world) == ids[1:]
    assert [row[2] for row in logged(world.settings) if row[4] == REMOVED] == ["grace is over"]


def test_nothing_goes_while_it_stops_or_its_disk_is_away(
    world: World,
) -> None:
    ids = trashed(world, 2)
    limited(world, 1)
    task = expiry_of(world)
    task._stop.set()
    task.run_once()
    assert [entry.id for entry in trash_of(world).entries()] == ids
    (world.settings.files_dir / "stamp.json").rename(world.settings.files_dir / "away")
    assert left(world) == ids


def test_what_is_being_removed_counts_no_more(world: World) -> None:
    ids = trashed(world, 2)
    query(world.settings, "UPDATE trash SET state = 'expiring' WHERE id = :id", id=ids[1])
    limited(world, SIZE)
    assert left(world) == ids[:1]


def test_people_are_told_what_goes_early(
    configured: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = configured
    ids = trashed(world, 4)
    pinned_in(world, ids[1])
    query(world.settings, "UPDATE trash SET stays = :why WHERE id = :id", why=STAYS, id=ids[0])
    world.namespace.close()

    def told(*words: str) -> str:
        main([words[0], "--config", str(world.settings.source), *words[1:]])
        return capsys.readouterr().out

    # Within the limit all of them have their whole time, whatever was said of them before.
    trash = json.loads(told("trash", "list", "--json"))["trash"]
    assert [entry["early"] or entry["stays"] for entry in trash] == [None] * 4
    assert "early" not in told("status") + told("trash", "list")
    monkeypatch.setenv("SPILLWAY_RETENTION_TRASH_MAX_BYTES", str(3 * SIZE))
    trash = json.loads(told("trash", "list", "--json"))["trash"]
    assert [entry["early"] for entry in trash] == [None, None, TOO_LARGE, None]
    assert [entry["stays"] for entry in trash] == [STAYS, None, None, None]
    lines = told("trash", "list")
    assert f"goes early: {TOO_LARGE}: restore it: spillway trash restore {ids[2]}" in lines
    status = told("status")
    more = f"{4 * SIZE} B are more than retention.trash_max_bytes, {3 * SIZE} B"
    assert f"{more}: the oldest 1 go early" in status
    assert "1 stay although they were to be removed" in status
