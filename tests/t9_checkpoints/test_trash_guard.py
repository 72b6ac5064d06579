"""What is in the trash goes for good only if its run has a newer durable checkpoint then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gateway.catalogue.facts import NOT_MADE
from gateway.catalogue.store import Catalogue
from gateway.cli.main import main
from gateway.common import clock
from gateway.common.errors import StoreUnavailable
from gateway.db.engine import Database
from gateway.lifecycle.retention.facts import PlanCheckpoint
from gateway.lifecycle.retention.guard import NEWER_CHANGED, NONE_LEFT, NOT_KNOWN, DeletionGuard
from gateway.lifecycle.trash import expiry
from gateway.lifecycle.trash.expiry import Expiry
from gateway.lifecycle.trash.rows import TrashRow
from gateway.processes.checkpoints import _reason_against
from tests.support.checkpoints.keeping import Present, catch_up
from tests.support.checkpoints.trashing import put, save, trash_of
from tests.support.checkpoints.world import World
from tests.support.t9.trash import expiry_of, with_values
from tests.support.volumes import query

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")


@pytest.fixture
def guard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[TrashRow], str | None]]:
    """The deletion guard of a namespace in which no grace lasts."""
    monkeypatch.setattr(expiry, "PASS_SECONDS", 0.0)
    with_values(world, retention={"trash_seconds": 0.0})
    database = Database(world.settings.database_url)
    made = DeletionGuard(world.settings, database, Present())
    yield lambda entry: _reason_against(made, entry)
    database.close()


def save_durably(world: World, path: str) -> None:
    save(world, path)
    for name in ("a.distcp", ".metadata"):
        world.drain(f"{path}/{name}")


def left(world: World, task: Expiry) -> list[tuple[bytes, str | None]]:
    """Return path and reason of what stays in the trash after a pass."""
    task.run_once()
    return [
        (entry.path, entry.stays) for entry in trash_of(world).entries() if entry.rotated is None
    ]


def test_a_checkpoint_stays_when_the_newer_ones_are_gone(
    world: World, guard: Callable[[TrashRow], str | None]
) -> None:
    task = expiry_of(world, guard)
    for step in (1, 2):
        save_durably(world, f"run/step-{step}")
    put(world, trash_of(world), "run/step-1")
    # A client removes the one that it was deleted for. The catalogue does not know that yet.
    for name in ("a.distcp", ".metadata"):
        world.remove(f"run/step-2/{name}")
    world.remove("run/step-2")
    assert left(world, task) == [(b"run/step-1", NONE_LEFT)]
    catch_up(world)
    assert left(world, task) == [(b"run/step-1", NONE_LEFT)]
    # A newer one that is not durable does not count, nor one of another run.
    save(world, "run/step-3")
    save_durably(world, "other/step-4")
    catch_up(world)
    assert left(world, task) == [(b"run/step-1", NONE_LEFT)]
    for name in ("a.distcp", ".metadata"):
        world.drain(f"run/step-3/{name}")
    catch_up(world)
    # It is written into, which the catalogue does not know yet.
    world.write("run/step-3/a.distcp", b"newer bytes")
    assert left(world, task) == [(b"run/step-1", NEWER_CHANGED)]
    world.drain("run/step-3/a.distcp")
    catch_up(world)
    query(world.settings, "DELETE FROM catalogue")
    assert left(world, task) == [(b"run/step-1", NOT_MADE)]
    catch_up(world)
    assert left(world, task) == []


def test_what_is_not_known_stays_and_what_has_begun_goes(
    world: World, guard: Callable[[TrashRow], str | None]
) -> None:
    task = expiry_of(world, guard)
    for step in (1, 2, 3):
        save_durably(world, f"run/step-{step}")
    save(world, "alone/step-1")
    for path in ("run/step-1", "run/step-2", "alone/step-1"):
        put(world, trash_of(world), path)
    # A row of an earlier release, and one that was lost: a new one knows no path.
    query(world.settings, "UPDATE trash SET complete_ns = NULL WHERE path = :p", p=b"run/step-1")
    query(world.settings, "DELETE FROM trash WHERE path = :p", p=b"run/step-2")
    # Its removal has begun.
    query(world.settings, "UPDATE trash SET state = 'expiring' WHERE run = :r", r=b"alone")
    assert left(world, task) == [(b"", NOT_KNOWN)]


@pytest.mark.parametrize(
    "happens",
    [
        "UPDATE checkpoint SET grade = 'marked'",
        "UPDATE checkpoint SET grade = NULL",
        "UPDATE checkpoint SET size = 1",
        "UPDATE checkpoint SET state = 'broken'",
        "UPDATE checkpoint_record SET completion = NULL",
        # It was saved before the one in the trash, whatever its step and its time are.
        "UPDATE checkpoint_record SET completion = 100 - completion",
    ],
)
def test_one_that_may_not_be_whole_or_is_older_ends_no_grace(
    happens: str, world: World, guard: Callable[[TrashRow], str | None]
) -> None:
    task = expiry_of(world, guard)
    for step in (1, 2):
        save_durably(world, f"run/step-{step}")
    put(world, trash_of(world), "run/step-1")
    query(world.settings, happens)
    [(path, why)] = left(world, task)
    assert path == b"run/step-1"
    assert why in (NONE_LEFT, NOT_KNOWN)


class Lost:
    """A bucket that lost an object, or (why is None) that does not answer."""

    def __init__(self, why: str | None) -> None:
        self._why = why

    def differs(self, catalogue: Catalogue, one: PlanCheckpoint) -> str:
        if self._why is None:
            raise StoreUnavailable("no answer")
        return self._why


@pytest.mark.parametrize("why", ["the bucket lost x", None])
def test_what_the_bucket_does_not_have_ends_no_grace(
    why: str | None, world: World, guard: Callable[[TrashRow], str | None]
) -> None:
    asks = DeletionGuard(world.settings, Database(world.settings.database_url), Lost(why))
    task = expiry_of(world, lambda entry: _reason_against(asks, entry))
    for step in (1, 2):
        save_durably(world, f"run/step-{step}")
    put(world, trash_of(world), "run/step-1")
    [(_path, told)] = left(world, task)
    assert told is not None
    assert (why or "the bucket cannot be asked for the newer one: no answer") in told


@pytest.mark.parametrize(
    ("step", "seconds", "goes"),
    [
        *((2, 0, True), (3, 0, False), (4, 0, False), (2, 9, False), (2, None, True)),
        *((3, None, False), (None, 0, True), (None, 9, False), (None, None, False)),
        # The clock was not set then.
        *((None, -1_795_000_000, False), (2, -1_795_000_000, True)),
    ],
)
def test_one_without_a_record_is_older_only_by_all_that_is_known(
    step: int | None,
    seconds: int | None,
    goes: bool,
    world: World,
    guard: Callable[[TrashRow], str | None],
) -> None:
    save_durably(world, "run/step-3")
    catch_up(world)
    row = world.row("run/step-3")
    assert row is not None
    now_ns = row.complete_ns or 0
    at_ns = None if seconds is None else now_ns + (seconds - 5) * clock.NS
    entry = TrashRow(
        "t1", 10**6, b"run/x", b"run", step, 2, 8, 0, 1, 1, 1, "me", "why", "kept", at_ns
    )
    assert (guard(entry) is None) == goes


def test_people_are_told_what_stays(configured: World, capsys: pytest.CaptureFixture[str]) -> None:
    world = configured
    save(world, "run/step-1")
    trashed = put(world, trash_of(world), "run/step-1")
    query(world.settings, "UPDATE trash SET expires_ns = 0")
    catch_up(world)
    database = Database(world.settings.database_url)
    made = DeletionGuard(world.settings, database, Present())
    task = expiry_of(world, lambda entry: _reason_against(made, entry))
    assert task.run_once() == expiry.PASS_SECONDS
    file = str(world.settings.source)
    assert main(["trash", "--config", file, "list"]) == 0
    _head, row, why = capsys.readouterr().out.splitlines()
    assert row.split()[3] == "stays" and row.split()[5] == "/checkpoints/run/step-1:"
    restore = f"restore it: spillway trash restore {trashed}"
    assert why.startswith(f"{trashed} stays: {NONE_LEFT}: {restore}")
    main(["status", "--config", file])
    assert "1 stay although they were to be removed: spillway trash list" in capsys.readouterr().out
    world.namespace.close()
    assert main(["trash", "--config", file, "empty", trashed, "--yes"]) == 0
    assert query(world.settings, "SELECT count(*) FROM trash") == [(0,)]
    database.close()
