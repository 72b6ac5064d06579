"""What clients wait for is requested first, whatever else waits, also for the drain."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.common import clock
from gateway.common.process import start_ticks
from gateway.drain import worker
from gateway.drain.send.upload import SMALL_BYTES
from gateway.rpc.frames import Op
from tests.support.s3proxy import Act
from tests.support.t8.site import BLOCK_BYTES, ColdSite
from tests.support.volumes import make_settings
from tests.support.waiting import until

WARMED = 28
WORKERS = 16
PLACES = 2 * WORKERS + 16
FEWER = (WORKERS + 8) // 2
"""The places of the drain, which has eight threads for chores."""


def warm(site: ColdSite, inos: list[int]) -> None:
    """Ask for files as `spillway warm` does."""
    values = ", ".join(f"({ino}, {clock.now_ns()})" for ino in inos)
    site.rows(f"INSERT INTO warm_request VALUES {values} RETURNING 1")


def places_of(site: ColdSite, key: str) -> list[int]:
    """Return the places of the requests for an object among all requests for bytes."""
    return [n for n, request in enumerate(site.gets()) if request.key.endswith(f"/{key}")]


@pytest.mark.alone
def test_a_wanted_range_is_the_next_one_beside_a_warm_with_a_rate(site: ColdSite) -> None:
    files = {f"warm-{number:02}": os.urandom(BLOCK_BYTES) for number in range(WARMED)}
    wanted = [f"wanted-{number}" for number in range(3)]
    inos = site.cold(files | {name: os.urandom(BLOCK_BYTES) for name in wanted})
    # A request has its turn each second, so a busy machine leaves the order as it is.
    site.configure("cache", workers=WORKERS, bytes_per_second=BLOCK_BYTES)
    warm(site, inos[:WARMED])
    with site.hydrating():
        until(lambda: len(site.gets()) >= 2, "the warm")

        def come(name: str, ino: int) -> None:
            before = len(site.gets())
            site.control.want(ino, 0)
            site.control.wait(Op.PRESENT, ino)
            # One request may have been on its way already.
            assert places_of(site, name)[0] <= before + 1, name

        for name, ino in zip(wanted, inos[WARMED:], strict=True):
            assert places_of(site, name) == []
            come(name, ino)
        # Of the first files that are warmed, most wait for the rate, in any order. A client wants
        # one of them too.
        number = next(n for n in range(WORKERS) if not places_of(site, f"warm-{n:02}"))
        come(f"warm-{number:02}", inos[number])
        assert len(site.gets()) < WARMED


@pytest.mark.alone
def test_two_hundred_small_files_are_warmed_in_a_few_seconds(site: ColdSite) -> None:
    inos = site.cold({f"f{number:03}": os.urandom(1000) for number in range(200)})
    site.configure("cache", workers=WORKERS)
    warm(site, inos)
    gets = site.proxy.inject(lambda r: "range" in r.headers, Act.HOLD, 1e9)
    with site.hydrating() as hydrator:
        # All are found before the first has come.
        until(lambda: len(hydrator._scheduler) == len(inos), "the finding of all files")
        began = clock.monotonic_seconds()
        gets.release()
        until(lambda: not site.rows("SELECT 1 FROM warm_request"), "the arrival of all files")
        # It takes a second on an idle machine. A look a second for as many files as threads takes
        # twelve.
        assert clock.monotonic_seconds() - began < 5.0
        site.finish(hydrator)


def at_once(site: ColdSite) -> Any:
    """Return how many requests the drain may have under way."""
    return site.report().get("requests_at_once")


def uploaded(site: ColdSite) -> int:
    return int(site.report()["counters"]["uploads"])


def test_the_drain_gives_way_to_reads_that_clients_wait_for(site: ColdSite) -> None:
    ino, data = site.cold_file(2 * BLOCK_BYTES)
    # An upload that is held for longer would time out, and the drain would take fewer places.
    site.values["bucket"]["read_timeout_seconds"] = 120.0
    site.configure(workers=WORKERS, part_concurrency=1)
    reads = site.proxy.inject(lambda r: "range" in r.headers, Act.HOLD, 1e9)
    uploads = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD, 1e9)
    with site.process(), site.hydrating() as hydrator:
        until(lambda: at_once(site) == PLACES, "the first report of the drain")
        site.control.want(ino, 0)
        until(lambda: at_once(site) == FEWER, "the drain to give way")
        for number in range(3 * PLACES):
            # Each is too large for a batch, whose files take one place together.
            site.write(f"new-{number:03}", os.urandom(SMALL_BYTES + 1))
        until(lambda: len(uploads.held) == FEWER, "the uploads that may be under way")
        before = uploaded(site)
        uploads.release()
        until(lambda: uploaded(site) > before + PLACES, "uploads while the client waits")
        assert len(uploads.held) == FEWER
        assert reads.held
        reads.release()
        site.finish(hydrator)
        until(lambda: at_once(site) == PLACES, "all places of the drain")
        until(site.is_clean, "the end of the drain")
    assert site.bytes_of(ino) == data


def report(waiting: int = 1, age_seconds: float = 0.0, **more: Any) -> str:
    """Return a report of a hydrator that is this process."""
    me = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
    written_ns = clock.now_ns() - int(age_seconds * clock.NS)
    return json.dumps({**me, "time_ns": written_ns, "waiting_files": waiting, **more})


@pytest.mark.parametrize(
    ("text", "is_waiting"),
    [
        (partial(report), True),
        (partial(report, waiting=0), False),
        (partial(report, age_seconds=60.0), False),
        (partial(report, age_seconds=-60.0), False),  # the clock was set back since
        (partial(report, start_ticks=1), False),  # of a process that has ended
        (partial(report, waiting_files=None), False),
        (partial(report, time_ns="x"), False),
        (lambda: "{", False),
        (None, False),
    ],
)
def test_only_a_fresh_report_of_a_living_hydrator_counts(
    tmp_path: Path, text: Callable[[], str] | None, is_waiting: bool
) -> None:
    settings = make_settings(tmp_path / "data", {"bucket": {"name": "b"}})
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    if text is not None:
        (settings.run_dir / "cache.json").write_text(text())
    assert worker.are_wanted(settings) is is_waiting
