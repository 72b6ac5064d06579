"""A row that says only how far a save has come waits for the next transaction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.catalogue.display_state import Look
from gateway.catalogue.tracker import SAVE_SECONDS, WRITING_SECONDS
from gateway.common import clock
from tests.support.checkpoints.world import World, follow, rebuilt, rows_of
from tests.support.volumes import query


def test_a_save_that_goes_on_waits_for_the_next_transaction(world: World) -> None:
    follower = world.follower(writing_seconds=3600.0)
    follow(follower)

    def position() -> int:
        [(found,)] = query(world.settings, "SELECT position FROM reader WHERE name = 'catalogue'")
        return int(found)

    begun = position()
    world.write("job/step-1/__0_0.distcp", b"1")
    world.write("job/step-2/__0_0.distcp", b"1")
    follow(follower)
    assert rows_of(world.settings) == []
    assert position() == begun
    # What waits is looked at again: this is no checkpoint by the time that its row is written.
    world.rename("job/step-2/__0_0.distcp", "job/step-2/notes.txt")
    world.write("job/step-3/.metadata", b"1")
    world.write("job/step-3/__0_0.distcp", b"1")
    follow(follower)
    states = [(row.path, row.state) for row in rows_of(world.settings)]
    assert states == [(b"job/step-1", "writing"), (b"job/step-3", "complete")]
    assert position() > begun
    # The row of a complete checkpoint that becomes partial again is written at once.
    world.open("job/step-3/.metadata")
    follow(follower)
    assert world.state("job/step-3") == "writing"
    # A follower that does not wait writes what another one left when it ended.
    waited = world.follower(writing_seconds=0.0)
    world.write("job/step-1/__1_0.distcp", b"2")
    follow(waited)
    row = world.row("job/step-1")
    assert row is not None
    assert row.files == 2
    assert rows_of(world.settings) == rebuilt(world)


def test_a_row_waits_for_some_seconds_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    follower = world.follower(writing_seconds=WRITING_SECONDS)
    follow(follower)
    world.write("job/step-1/__0_0.distcp", b"1")
    follow(follower)
    # The time counts from the first look, however often the save continues meanwhile.
    now[0] += WRITING_SECONDS - 0.1
    world.write("job/step-1/__1_0.distcp", b"1")
    follow(follower)
    assert rows_of(world.settings) == []
    now[0] += 0.1
    assert now[0] < 1000.0 + SAVE_SECONDS, "the position need not be saved yet"
    follow(follower)
    assert [(row.state, row.files) for row in rows_of(world.settings)] == [("writing", 2)]


def test_rows_that_wait_are_dropped_when_everything_is_read_again(world: World) -> None:
    """A database of yesterday knows nothing of the journal that was followed."""
    follower = world.follower(writing_seconds=3600.0)
    follow(follower)
    for step in (1, 2):
        world.write(f"job/step-{step}/__0_0.distcp", b"1")
    follow(follower)
    assert rows_of(world.settings) == []
    world.remove("job/step-1/__0_0.distcp")
    world.remove("job/step-1")
    query(world.settings, "DELETE FROM reader")
    follow(follower)
    world.write("job/step-3/.metadata", b"1")
    world.write("job/step-3/__0_0.distcp", b"1")
    follow(follower)
    assert [row.path for row in rows_of(world.settings)] == [b"job/step-2", b"job/step-3"]
    assert rows_of(world.settings) == rebuilt(world)


def test_the_duties_hear_of_what_is_more_than_progress(world: World) -> None:
    told: list[Sequence[Look]] = []
    follower = world.follower()
    follower._news = told.append
    follow(follower)
    told.clear()
    shard = "job/step-1/__0_0.distcp"
    world.write(shard, b"1")
    follow(follower)
    assert world.state("job/step-1") == "writing"
    assert not told
    world.write("job/step-1/.metadata", b"1")
    follow(follower)
    [[complete]] = told
    assert not complete.is_of_durable
    world.drain(shard)
    world.drain("job/step-1/.metadata")
    follow(follower)
    assert world.state("job/step-1") == "durable"
    # A manifest is due when a checkpoint becomes durable, and must go when it is durable no more.
    assert told[-1][-1].is_of_durable
    world.open(shard)
    follow(follower)
    assert world.state("job/step-1") == "writing"
    assert told[-1][-1].is_of_durable
    world.close(shard, b"2")
    follow(follower)
    for name in (shard, "job/step-1/.metadata"):
        world.remove(name)
    world.remove("job/step-1")
    follow(follower)
    assert told[-1] == (), "a row that is gone tells nothing of what it was"
