"""Cold reads leave the room to writers that the evictor makes, for some seconds."""

from __future__ import annotations

import pytest

from gateway.cache import hydrator as hydrator_module
from gateway.cache.eviction import DiskSpace
from gateway.common import clock
from gateway.config.settings import Settings
from gateway.rpc.frames import Op
from tests.support.t8.site import BLOCK_BYTES, ColdSite
from tests.support.waiting import until

CALM, CROWDED = DiskSpace(100, 74, 60, 90), DiskSpace(100, 76, 60, 90)
"""Disks on which files are evicted from 60 on and writers are slowed from 90 on."""


@pytest.mark.parametrize(
    ("disk", "is_nearly_slow"),
    [
        (CALM, False),
        (CROWDED, True),
        # Nothing is evicted, so nothing is worth a wait.
        (DiskSpace(100, 99, 100, 90), False),
        (DiskSpace(100, 99, 90, 90), False),
    ],
)
def test_from_half_way_to_the_mark_of_writers_on(disk: DiskSpace, is_nearly_slow: bool) -> None:
    assert disk.is_nearly_slow == is_nearly_slow


def test_what_clients_wait_for_waits_while_writers_need_the_room(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = [CROWDED]
    monkeypatch.setattr(hydrator_module, "look", lambda _settings: disk[0])
    monkeypatch.setattr(hydrator_module, "GIVE_WAY_SECONDS", 3600.0)
    ino, data = site.cold_file(2 * BLOCK_BYTES)
    with site.hydrating() as hydrator:
        until(lambda: hydrator._scheduler.gives_way, "a crowded disk")
        site.control.want(ino, 0)
        until(lambda: hydrator._scheduler.get(ino), "the hydration")
        rounds = hydrator.rounds
        until(lambda: hydrator.rounds > rounds + 1, "two more looks at the disk")
        assert site.gets() == []
        disk[0] = CALM  # the evictor has made room
        site.control.wait(Op.PRESENT, ino)
        # Of a disk above the watermark, only what a client waits for is taken.
        assert len(site.gets()) == 1
        site.control.want(ino, BLOCK_BYTES)
        site.arrive(ino)
    assert site.bytes_of(ino) == data


def test_each_request_is_followed_by_a_look_at_the_disk(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fast readers fill a small disk between two of the regular looks."""
    looks: list[DiskSpace] = []

    def look(_settings: Settings) -> DiskSpace:
        looks.append(CALM if not looks else CROWDED)
        return looks[-1]

    monkeypatch.setattr(hydrator_module, "look", look)
    monkeypatch.setattr(hydrator_module, "FIND_SECONDS", 3600.0)
    monkeypatch.setattr(hydrator_module, "GIVE_WAY_SECONDS", 3600.0)
    ino, data = site.cold_file(BLOCK_BYTES)
    with site.hydrating() as hydrator:
        until(lambda: looks, "the look at the start")
        site.control.want(ino, 0)
        site.arrive(ino)
        until(lambda: hydrator._scheduler.gives_way, "a look after the request")
    assert site.bytes_of(ino) == data


def test_a_disk_of_which_nothing_can_be_evicted_stops_no_client(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hydrator_module, "look", lambda _settings: CROWDED)
    monkeypatch.setattr(hydrator_module, "GIVE_WAY_SECONDS", 2.0)
    ino, data = site.cold_file(BLOCK_BYTES)
    with site.hydrating() as hydrator:
        until(lambda: hydrator._scheduler.gives_way, "a crowded disk")
        began = clock.monotonic_seconds()
        site.control.want(ino, 0)
        site.arrive(ino)
        assert clock.monotonic_seconds() - began < 20.0
    assert site.bytes_of(ino) == data
