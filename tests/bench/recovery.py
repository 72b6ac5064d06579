"""Measures what the copy of the names and the scrub cost clients: the same gateway while each of
them works, and while it does not.

The copy has all changes before a run begins, on either side, so a run pays for its own ones only.
Nothing is drained meanwhile. Stopped is the whole process that copies names and scrubs.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gateway.common import clock
from gateway.service import reports
from tests.bench import load
from tests.bench.experiments import Experiment, flight, shape
from tests.bench.load import MIB
from tests.bench.names import CHANGES, WORKS
from tests.bench.rows import Measured, Row, Target
from tests.support.gateway import Gateway
from tests.support.s3server import RcloneServer
from tests.support.waiting import until

EXPORT = "/checkpoints"
NAMES_SECONDS = 2.0
"""Less than half of the default: each run pays for some segments."""
COUNT = 20_000
SCRUBBED = 16
ALWAYS_DAYS = 1e-9
"""A pass of the scrub is due as soon as the one before has ended."""
SCRUB_COUNT = 8000
WRITTEN = 32
FILE_MIB = 64
HELD = "held.tmp"
"""A name that the drain leaves alone."""
COPIED_SECONDS = 120.0
SCRUBBED_SECONDS = 600.0
"""The scrub begins some minutes after the start of the gateway."""


class Site:
    """A gateway that copies its names, and has files that the scrub can read.

    Args:
        directory: to be made.
        stack: ends it.
        values: of its configuration.
    """

    def __init__(self, directory: Path, stack: ExitStack, values: dict[str, Any]) -> None:
        server = stack.enter_context(RcloneServer(directory / "s3"))
        self._gateway = Gateway(
            directory / "gateway",
            server,
            values={"drain": {"settle_seconds": 0.0}, **values},
        )
        stack.enter_context(self._gateway)
        self._load("save", "--dir", "scrubbed", "--file", FILE_MIB * MIB, *flight(SCRUBBED, 4))
        self._gateway.until_drained(600.0)

    def names(self, is_copied: bool, _number: int) -> Sequence[float]:
        """Make, rename and remove names, while they are copied or not. Returns the rates."""
        options = ("--dir", HELD, "--apart", "--count", COUNT, *flight(16, 1))
        with self._recovery(is_copied):
            done = [self._load(work, *options, "--prefix", prefix) for work, prefix in CHANGES]
        ended_ns = clock.now_ns()
        until(partial(self._is_copied, ended_ns), "all names are copied", COPIED_SECONDS)
        return [one.ops_per_second for one in done]

    def bytes(self, is_scrubbed: bool, _number: int) -> Sequence[float]:
        """Write and read, and make names, while the scrub reads other files or not."""
        place = ("--dir", HELD, "--file", FILE_MIB * MIB, *flight(WRITTEN, 2))
        names = ("--dir", HELD, "--count", SCRUB_COUNT, *flight(16, 1))
        with self._recovery(is_scrubbed):
            before = self._read_bytes()
            written = self._load("write", *place).mib_per_second
            read = self._load("read", *place).mib_per_second
            made = self._load("create", *names)
            if is_scrubbed and self._read_bytes() == before:
                raise AssertionError("the scrub read nothing meanwhile")
        self._load("unlink", *names)
        self._load("clear", *place)
        return [written, read, made.ops_per_second]

    @contextmanager
    def _recovery(self, works: bool) -> Iterator[None]:
        """Let the process that copies names and scrubs work meanwhile, or not."""
        pid = self._gateway.pid("recovery")
        if not works:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def wait_for_scrub(self) -> None:
        """Wait until the scrub has read all files once."""
        size = SCRUBBED * FILE_MIB * MIB
        until(lambda: self._read_bytes() > size, "the scrub", SCRUBBED_SECONDS)

    def _read_bytes(self) -> int:
        """Return how many bytes that process has read from the disk."""
        text = Path(f"/proc/{self._gateway.pid('recovery')}/io").read_text()
        return int(dict(line.split(": ") for line in text.splitlines())["read_bytes"])

    def _is_copied(self, since_ns: int) -> bool:
        report = reports.of_names(self._gateway.settings)
        return report.waiting == 0 and (report.copied_ns or 0) >= since_ns

    def _load(self, work: str, *options: object) -> load.Load:
        return load.nfs(self._gateway.port, work, *options, export=EXPORT)


def copying(site: Site) -> Experiment:
    """Compare a gateway that copies its names with itself."""
    setting = f"{shape(16, 1)}, a segment each {NAMES_SECONDS:g} s"
    peer = "the same, names not copied"
    bounds = (Target(0.97), Target(0.97), None)
    rows = [
        Row(work, setting, peer, "op/s", bound) for work, bound in zip(WORKS, bounds, strict=True)
    ]
    return Experiment(tuple(rows), partial(site.names, True), partial(site.names, False))


def scrubbing(site: Site) -> Experiment:
    """Compare a gateway that scrubs with itself."""
    site.wait_for_scrub()
    setting = f"the scrub at its default rate, {SCRUBBED} files of {FILE_MIB} MiB"
    peer = "the same without a scrub"
    works = (("write 1 MiB, COMMIT", "MiB/s"), ("read 1 MiB", "MiB/s"), (WORKS[0], "op/s"))
    rows = [Row(work, setting, peer, unit, Target(0.95)) for work, unit in works]
    return Experiment(
        tuple(rows), partial(site.bytes, True), partial(site.bytes, False), is_large=True
    )


EXPERIMENTS = (
    (copying, {"recovery": {"names_seconds": NAMES_SECONDS}}),
    (scrubbing, {"scrub": {"local_days": ALWAYS_DAYS}}),
)


def measure(directory: Path, pairs: int) -> Iterator[list[Measured]]:
    """Measure.

    Args:
        directory: on the disk to measure.
    """
    scratch = Path(tempfile.mkdtemp(dir=directory))
    try:
        for make, values in EXPERIMENTS:
            with ExitStack() as stack:
                yield make(Site(scratch / make.__name__, stack, values)).run(pairs)
    finally:
        shutil.rmtree(scratch)
