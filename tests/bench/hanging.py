"""Compares names and warm reads beside 300 READs that wait for a bucket that hangs with the same
work without them."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.bench import load
from tests.bench.cold import Files, Site
from tests.bench.experiments import Experiment, flight
from tests.bench.rows import Measured, Row, Target
from tests.support.gateway import resident_mib
from tests.support.s3proxy import Act

WAITING = Files(10, 30)
"""Each connection has 30 READs of 1 MiB in flight. 24 READs are parked, the others are delayed."""
DEPTH = 30
WARM = Files(1, 512)
PASSES = 6
"""One reading of the warm file takes a quarter of a second, in which a stall decides the row."""
NAMES = 3000
SETTLED_SECONDS = 4.0
"""Clients ask again after pauses that double, from 0.1 s on. A bucket hangs for longer."""
PEER = "without waiting READs"


def measure(directory: Path, pairs: int) -> Iterator[list[Measured]]:
    """Measure.

    Args:
        directory: on the disk to measure.
    """
    scratch = Path(tempfile.mkdtemp(dir=directory))
    try:
        with ExitStack() as stack:
            site = Site(scratch, stack, through_proxy=True)
            for files in (WAITING, WARM):
                site.make(files)
            pid = site.gateway.pid("ganesha")
            before_mib = resident_mib(pid)
            work: tuple[tuple[str, str, Callable[[], float]], ...] = (
                ("warm read of " + WARM.name, "MiB/s", partial(warm, site)),
                ("create and close", "op/s", partial(created, site)),
            )
            for name, unit, run in work:
                row = Row(name, "beside 300 READs that wait", PEER, unit, Target(0.9))
                alone = partial(without, run)
                yield Experiment((row,), partial(beside, site, run), alone).run(pairs)
            row = Row("memory of ganesha", "after 300 READs waited", "before", "MiB", None, "ours")
            yield [Measured(row, (resident_mib(pid),), (before_mib,))]
    finally:
        shutil.rmtree(scratch)


def warm(site: Site) -> float:
    """Read a file several times from the page cache. Returns MiB/s over all of them."""
    return statistics.harmonic_mean(site.warm(WARM, 0)[0] for _ in range(PASSES))


def created(site: Site) -> float:
    """Make names, and remove them. Returns the names that were made in a second."""
    options = ("--dir", "names", "--count", NAMES, *flight(4, 4))
    done = site.run("create", *options).ops_per_second
    site.run("unlink", *options)
    return done


def without(run: Callable[[], float], _number: int) -> Sequence[float]:
    return [run()]


def beside(site: Site, run: Callable[[], float], _number: int) -> Sequence[float]:
    with waiting(site):
        return [run()]


@contextmanager
def waiting(site: Site) -> Iterator[None]:
    """Let READs wait for evicted files meanwhile. All of them must end well afterwards."""
    site.gateway.evict(WAITING.directory)
    held = site.proxy.inject(lambda r: "range" in r.headers, Act.HOLD, float("inf"))
    found: list[load.Load] = []
    files = ("--dir", WAITING.directory, "--file", WAITING.mib * load.MIB)
    options = (*files, *flight(WAITING.number, DEPTH))
    reader = threading.Thread(target=lambda: found.append(site.run("read", *options)))
    reader.start()
    held.wait()
    time.sleep(SETTLED_SECONDS)
    try:
        yield
    finally:
        held.release()
        reader.join()
    [done] = found
    assert done.errors == done.lost_leases == 0
    assert done.ops == WAITING.number * DEPTH
