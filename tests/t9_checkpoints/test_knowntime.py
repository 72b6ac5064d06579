"""Ages are counted to a time that is known to have passed, whatever the clock says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.common import clock
from gateway.common.clock import ClockReading, Completions
from gateway.common.types import FIRST_NS
from gateway.config.settings import Settings
from gateway.lifecycle.retention.policy import DAY_NS
from tests.support.checkpoints.keeping import Bin, applier, catch_up, planned, put, save, shown
from tests.support.checkpoints.world import World
from tests.support.namespace import Namespace
from tests.support.t9.knowntime import read_at
from tests.support.t9.retention import made, with_share, world
from tests.support.volumes import query

__all__ = ["made", "world"]


def test_a_clock_that_jumps_a_year_makes_nothing_old(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query(world.settings, "DELETE FROM policy")
    put(world, {"name": "aged", "delete_after_days": 30})
    trash = Bin(world, tmp_path / "log")
    read_at(monkeypatch, 0, 1)
    applier(world, trash).run_once()
    read_at(monkeypatch, 365, 1.01)
    assert shown(world) == set()
    assert planned(world).time.ahead_ns > 364 * DAY_NS
    applier(world, trash).run_once()
    applier(world, trash).run_once()
    assert trash.log() == []
    # The time that really passes counts, and so does a machine that was off.
    read_at(monkeypatch, 365 + 29, 30)
    assert shown(world) == set()
    read_at(monkeypatch, 365 + 31, 32)
    assert len(shown(world)) == 4
    read_at(monkeypatch, 31, 32)
    assert len(shown(world)) == 4
    applier(world, trash).run_once()
    assert len(trash.log()) == 4


@pytest.mark.parametrize(
    ("known", "read", "newest", "now", "ahead"),
    [
        # Days: (known, boot, uptime), (clock, boot, uptime), newest; known time, ahead.
        (None, (100, "a", 1), None, 100, 0),
        (None, (100, "a", 1), 99.5, 100, 0),
        (None, (100, "a", 1), 60, 60, 40),
        (None, (100, "a", 1), 130, 100, 0),
        ((100, "a", 1), (105, "a", 6), 0, 105, 0),
        ((100, "a", 1), (105.25, "a", 6), 0, 105.25, 0),
        ((100, "a", 1), (101, "a", 1.25), 0, 100.5, 0),
        ((100, "a", 1), (465, "a", 2), 0, 101, 364),
        ((100, "a", 1), (50, "a", 2), 0, 50, 0),
        ((100, "a", 1), (100.5, "b", 0), 0, 100.5, 0),
        ((100, "a", 1), (107, "b", 0.5), 0, 100.5, 6.5),
        ((100, "a", 1), (90, "b", 0), 0, 90, 0),
    ],
)
def test_the_known_time(
    known: tuple[float, str, float] | None,
    read: tuple[float, str, float],
    newest: float | None,
    now: float,
    ahead: float,
) -> None:
    def moment(one: tuple[float, str, float]) -> tuple[int, str, int]:
        return FIRST_NS + int(one[0] * DAY_NS), one[1], int(one[2] * DAY_NS)

    row = None if known is None else clock.KnownTime(*moment(known))
    newest_ns = None if newest is None else FIRST_NS + int(newest * DAY_NS)
    time = clock.trusted_time(ClockReading(*moment(read)), row, Completions(last_ns=newest_ns))
    assert ((time.now_ns - FIRST_NS) / DAY_NS, time.ahead_ns / DAY_NS) == (now, ahead)
    # A clock that went back is compared with what was known before.
    is_back = row is not None and time.now_ns < row.known_ns
    assert time.row == (row if is_back else (time.now_ns, read[1], int(read[2] * DAY_NS)))


@pytest.mark.parametrize(
    ("stored", "first", "last", "known"),
    [
        # Days: what was stored, the first and the last completion, of a clock at day 400; then what
        # is known.
        (-18_262, None, None, 400),
        (-1, 399.5, 399.5, 400),
        (-1, 300, 399.5, 400),
        (-1, 300, 390, 390),
        (10, 300, 390, 301),
        (10, 5, 390, 11),
        # All saves were made while the clock was ahead.
        (10, 500, 500, 400),
    ],
)
def test_a_stored_time_that_cannot_be_right_is_repaired(
    stored: float, first: float | None, last: float | None, known: float
) -> None:
    def ns(days: float) -> int:
        return FIRST_NS + int(days * DAY_NS)

    row = clock.KnownTime(ns(stored), "boot", 0)
    times = Completions(None if first is None else ns(first), None if last is None else ns(last))
    read = ClockReading(ns(400), "boot", DAY_NS)
    time = clock.trusted_time(read, row, times)
    assert (time.now_ns - FIRST_NS) / DAY_NS == known
    assert time.row.known_ns <= read.clock_ns
    is_repaired = stored < 0 or (first or 0) > stored
    assert time.is_repaired == is_repaired
    # It is stored at once, although the machine has not run for long since.
    assert clock.is_due(row, time)
    at_once = clock.trusted_time(read._replace(uptime_ns=1), row, times)
    assert clock.is_due(row, at_once) == is_repaired


def test_a_first_policy_before_anything_is_complete_knows_what_time_it_is(
    made: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(with_share(made), Namespace(made))
    world.write("run/step-1/__0_0.distcp", b"12345")
    put(world, {"name": "aged", "delete_after_days": 30})
    catch_up(world)
    trash = Bin(world, tmp_path / "log")
    read_at(monkeypatch, 0, 1)
    applier(world, trash).run_once()
    [(known_ns,)] = query(world.settings, "SELECT known_ns FROM known_time")
    assert known_ns > clock.now_ns() - DAY_NS
    # A save before the clock was set tells no time either.
    save(world, "run/step-2")
    catch_up(world)
    query(world.settings, "UPDATE checkpoint SET complete_ns = 5, durable_ns = 5 WHERE step = 2")
    query(world.settings, "DELETE FROM known_time")
    assert planned(world).time.now_ns > clock.now_ns() - DAY_NS
    query(world.settings, "UPDATE checkpoint SET complete_ns = NULL WHERE step = 2")
    # An earlier release has stored the beginning of 1970.
    query(world.settings, "INSERT INTO known_time VALUES (1, 5, 'boot', 0)")
    save(world, *(f"run/step-{step}" for step in range(3, 7)))
    catch_up(world)
    applier(world, trash).run_once()
    assert planned(world).time.ahead_ns == 0
    read_at(monkeypatch, 31, 32)
    assert len(shown(world)) == 3
    world.end()
    world.namespace.close()
