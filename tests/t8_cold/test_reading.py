"""Absent files come back, whatever is read first, and once however many read."""

from __future__ import annotations

import os
import random
import threading
from functools import partial
from itertools import pairwise

import pytest

from gateway.cache.fetch_scheduler import FetchScheduler, Step
from gateway.cache.rows import AbsentFileRow
from gateway.common import clock
from gateway.rpc.frames import Op
from tests.support.drainsite import MIB
from tests.support.s3proxy import Act
from tests.support.t8.site import BLOCK_BYTES, ColdSite
from tests.support.waiting import until


def test_a_file_comes_back_in_any_order_of_reads(site: ColdSite) -> None:
    ino, data = site.cold_file(61 * MIB + 5)
    offsets = list(range(0, len(data), BLOCK_BYTES))
    random.Random(7).shuffle(offsets)
    with site.hydrating() as hydrator:
        site.control.want(ino, *offsets)
        site.finish(hydrator)
    assert site.is_resident(ino)
    assert site.bytes_of(ino) == data
    assert site.fetched_bytes() == len(data)
    assert site.rows("SELECT 1 FROM present_blocks") == []
    report = site.cache_report()
    assert report["counters"]["files_arrived"] == 1
    assert report["counters"]["fetched_bytes"] == len(data)
    assert report["damaged"] == []


def test_the_wanted_block_comes_first(site: ColdSite) -> None:
    ino, data = site.cold_file(40 * MIB)
    site.configure("cache", workers=1)
    site.hydrate(ino, data, 24 * MIB)
    first = site.gets()[0].headers["range"]
    assert first.startswith(f"bytes={24 * MIB}-")
    assert site.control.of(Op.PRESENT)[0].offset == 24 * MIB


def test_sixteen_readers_cost_one_transfer(site: ColdSite) -> None:
    ino, data = site.cold_file(48 * MIB)
    with site.hydrating() as hydrator:

        def read(number: int) -> None:
            order = list(range(0, len(data), BLOCK_BYTES))
            random.Random(number).shuffle(order)
            for offset in order:
                site.control.want(ino, offset)

        readers = [threading.Thread(target=read, args=(number,)) for number in range(16)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        site.finish(hydrator)
    assert site.bytes_of(ino) == data
    assert site.fetched_bytes() <= 1.05 * len(data)


def test_what_clients_wait_for_comes_before_the_rest_of_other_files(site: ColdSite) -> None:
    """Two files are asked for while a third one is fetched as a whole, by one thread."""
    files = {name: os.urandom(40 * MIB) for name in "abc"}
    a, b, c = site.cold(files)
    site.configure("cache", workers=1)
    asked = threading.Event()

    def more(_told: object) -> None:
        if not asked.is_set():
            asked.set()
            site.control.want(b, 0)
            site.control.want(c, 20 * MIB)

    site.control.on_present = more
    with site.hydrating() as hydrator:
        site.control.want(a, 0)
        site.finish(hydrator)
    keys = [request.key.rpartition("/")[2] for request in site.gets()]
    assert keys[0] == "a"
    # At the most one more range of the first file was under way.
    assert {"b", "c"} <= set(keys[1:4])


def test_nothing_is_fetched_beside_the_first_block_of_a_reader(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cache.hydration.START_SECONDS", 60.0)
    f, g = site.cold({name: os.urandom(24 * MIB) for name in ("f", "g")})
    held = site.proxy.inject(lambda r: "range" in r.headers, Act.HOLD)
    with site.hydrating() as hydrator:
        site.control.want(f, 0)
        held.wait()
        # What another client waits for is fetched, also by threads that have nothing else to do.
        for number, offset in enumerate((0, 20 * MIB), start=1):
            site.control.want(g, offset)
            until(partial(is_present, site, g, offset), "the block of the other file")
            assert len(site.gets()) == 1 + number
        held.release()
        site.control.wait(Op.PRESENT, f)
        site.finish(hydrator)


def is_present(site: ColdSite, ino: int, offset: int) -> bool:
    """Return whether the server was told of a block."""
    return any(message.offset == offset for message in site.control.of(Op.PRESENT, ino))


def test_holes_are_not_fetched(site: ColdSite) -> None:
    """A block of zeros is known by its digest; runs of zeros in others are not written."""
    size = 32 * MIB
    data = bytearray(size)
    data[0:9] = b"beginning"
    data[13 * MIB : 13 * MIB + 9] = b"in middle"
    ino = site.cold({"f": bytes(data)})[0]
    site.hydrate(ino, bytes(data))
    assert site.fetched_bytes() == 2 * BLOCK_BYTES
    path = site.namespace.files.path(ino, site.namespace.getattr(ino).epoch)
    assert path.stat().st_blocks * 512 <= 4 * 64 * 1024


def test_a_file_of_zeros_arrives_without_a_request(site: ColdSite) -> None:
    ino = site.cold({"f": bytes(20 * MIB)})[0]
    with site.hydrating() as hydrator:
        site.control.want(ino, 0)
        site.finish(hydrator)
    assert site.is_resident(ino)
    assert site.gets() == []


def test_a_warmed_file_comes_back_without_a_reader(site: ColdSite) -> None:
    ino, data = site.cold_file(9 * MIB)
    site.rows(f"INSERT INTO warm_request VALUES ({ino}, {clock.now_ns()}) RETURNING 1")
    with site.hydrating() as hydrator:
        site.arrive(ino)
        site.finish(hydrator)
    assert site.bytes_of(ino) == data
    assert site.rows("SELECT 1 FROM warm_request") == []
    assert site.control.of(Op.PRESENT) == []


def test_siblings_follow_a_reader_in_the_order_of_names(site: ColdSite) -> None:
    files = {f"ckpt/shard-{number}": os.urandom(MIB) for number in range(6)}
    inos = site.cold(files)
    with site.hydrating() as hydrator:
        site.control.want(inos[1], 0)
        site.arrive(inos[1])
        site.control.want(inos[2], 0)
        for ino in inos[3:]:
            site.arrive(ino)
        site.finish(hydrator)
    assert not site.is_resident(inos[0])
    keys = [request.key.rpartition("/")[2] for request in site.gets()]
    assert sorted(keys) == [f"shard-{number}" for number in range(1, 6)]


def test_read_ahead_can_be_off(site: ColdSite) -> None:
    files = {f"ckpt/shard-{number}": os.urandom(MIB) for number in range(4)}
    inos = site.cold(files)
    site.configure("cache", read_ahead=False)
    with site.hydrating() as hydrator:
        for ino in inos[:2]:
            site.control.want(ino, 0)
            site.arrive(ino)
        hydrator._prefetcher.find()
        assert len(hydrator._scheduler) == 0 or not site.gets()[2:]
    assert not site.is_resident(inos[2])


@pytest.mark.alone
def test_the_rates_hold(site: ColdSite) -> None:
    """The bytes of answers count. The first range passes at once; the next waits until it is
    paid."""
    ino, data = site.cold_file(32 * MIB)
    site.configure("cache", bytes_per_second=16 * MIB)
    site.hydrate(ino, data)
    first, second = sorted(request.time for request in site.gets())
    assert second - first >= 0.5


@pytest.mark.alone
def test_requests_are_spaced(site: ColdSite) -> None:
    inos = site.cold({f"f{number}": os.urandom(1000) for number in range(6)})
    site.configure("cache", requests_per_second=5)
    with site.hydrating() as hydrator:
        for ino in inos:
            site.control.want(ino, 0)
        site.finish(hydrator)
    times = sorted(request.time for request in site.gets())
    assert len(times) == 6
    assert times[-1] - times[0] >= 4 / 5
    assert min(after - before for before, after in pairwise(times)) > 0.05


def test_the_server_goes_and_comes_back(site: ColdSite) -> None:
    """What it forgot is asked again, and is told again without a fetch."""
    ino, data = site.cold_file(24 * MIB)
    hold = site.proxy.inject(
        lambda r: r.headers.get("range", "").startswith(f"bytes={16 * MIB}-"), Act.HOLD
    )
    with site.hydrating():
        site.control.want(ino, 0)
        site.control.wait(Op.PRESENT, ino, 4)
        site.control.__exit__()
        site.control.told.clear()
        with site.control:
            site.control.want(ino, 0)
            site.control.wait(Op.PRESENT, ino)
            assert site.control.of(Op.PRESENT, ino)[0].offset == 0
            hold.release()
            site.arrive(ino)
    assert site.bytes_of(ino) == data
    assert site.fetched_bytes() == len(data)


@pytest.mark.alone
def test_sigterm_ends_it_soon(site: ColdSite) -> None:
    """Even while the bucket hangs; what has come is in the durable map."""
    ino, _ = site.cold_file(40 * MIB)
    site.proxy.inject(
        lambda r: r.headers.get("range", "").startswith(f"bytes={16 * MIB}-"), Act.HOLD, 99
    )
    with site.control, site.process("cache") as process:
        site.control.want(ino, 0)
        until(
            lambda: 12 * MIB in (message.offset for message in site.control.of(Op.PRESENT)),
            "block 3",
        )
        began = clock.monotonic_seconds()
        process.terminate()
        assert process.wait(20) == 0
        assert clock.monotonic_seconds() - began < 5.5
    assert {0, 1, 2, 3} <= set(site.durable(ino))
    assert site.cache_report()["state"] == "stopped"


def test_a_file_that_is_evicted_as_it_arrives_is_fetched_again(site: ColdSite) -> None:
    """What a client asks for between the arrival and the end of the hydration is not lost."""
    ino, data = site.cold_file(3 * MIB)
    with site.hydrating() as hydrator:
        find = hydrator._recovery._rows.find
        evicted: list[int] = []

        def finding(ino: int) -> AbsentFileRow | None:
            row = find(ino)
            if row is None and not evicted:
                evicted.append(site.evict(ino).epoch)
                site.control.want(ino, 0)
                until(lambda: hydrator._scheduler.get(ino).asks, "the request")  # type: ignore[union-attr]
            return row

        hydrator._recovery._rows.find = finding  # type: ignore[method-assign]
        site.control.want(ino, 0)
        until(lambda: len(site.control.of(Op.ARRIVED, ino)) == 2, "the second arrival")
        site.finish(hydrator)
    assert evicted
    assert site.bytes_of(ino) == data


def test_nothing_is_done_while_no_file_is_fetched(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle hydrator has as many threads as a busy one, and none of them wakes up."""
    chosen: list[int] = []
    honest = FetchScheduler.choose

    def choosing(self: FetchScheduler, for_clients: bool = False) -> Step | None:
        chosen.append(len(self))
        return honest(self, for_clients)

    monkeypatch.setattr(FetchScheduler, "choose", choosing)
    ino, data = site.cold_file(MIB)
    with site.hydrating() as hydrator:
        site.control.want(ino, 0)
        site.finish(hydrator)
        began, rounds = len(chosen), hydrator.rounds
        until(lambda: hydrator.rounds >= rounds + 3, "three looks for files")
        assert chosen[began:].count(0) <= 2 * (site.settings.cache.workers + 1)
    assert site.bytes_of(ino) == data
