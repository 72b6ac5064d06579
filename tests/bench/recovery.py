"""Measures what the copy of the names and the scrub cost clients: the same gateway while each of
them works, and while it does not.

The copy has all changes before a run begins, on either side, so a run pays for its own ones only.
Nothing is drained meanwhile.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from gateway.common import clock
from gateway.service import reports
from tests.bench import load
from tests.bench.experiments import Experiment, flight, shape
from tests.bench.load import MIB
from tests.bench.names import CHANGES, WORKS
from tests.bench.rows import Measured, Row, Target
from tests.support.clisite import PROGRAM
from tests.support.gateway import Gateway
from tests.support.s3server import RcloneServer
from tests.support.waiting import until

EXPORT = "/checkpoints"
NAMES_SECONDS = 0.5
"""A tenth of the default: a run then pays for several segments."""
COUNT = 8000
SCRUBBED = 16
FILE_MIB = 64
HELD = "held.tmp"
"""A name that the drain leaves alone."""
COPIED_SECONDS = 120.0


class Site:
    """A gateway that copies its names, and has files that the scrub can read.

    Args:
        directory: to be made.
        stack: ends it.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        server = stack.enter_context(RcloneServer(directory / "s3"))
        self._gateway = Gateway(
            directory / "gateway",
            server,
            values={
                "drain": {"settle_seconds": 0.0},
                "recovery": {"names_seconds": NAMES_SECONDS},
            },
        )
        stack.enter_context(self._gateway)
        self._load("save", "--dir", "scrubbed", "--file", FILE_MIB * MIB, *flight(SCRUBBED, 4))
        self._gateway.until_drained(600.0)

    def names(self, is_copied: bool, _number: int) -> Sequence[float]:
        """Make, rename and remove names, while they are copied or not. Returns the rates."""
        options = ("--dir", HELD, "--apart", "--count", COUNT, *flight(16, 1))
        pid = self._gateway.pid("recovery")
        if not is_copied:
            os.kill(pid, signal.SIGSTOP)
        try:
            done = [self._load(work, *options, "--prefix", prefix) for work, prefix in CHANGES]
        finally:
            os.kill(pid, signal.SIGCONT)
        ended_ns = clock.now_ns()
        until(partial(self._is_copied, ended_ns), "all names are copied", COPIED_SECONDS)
        return [one.ops_per_second for one in done]

    def bytes(self, is_scrubbed: bool, _number: int) -> Sequence[float]:
        """Write and read, and make names, while the scrub reads other files or not."""
        place = ("--dir", HELD, "--file", FILE_MIB * MIB, *flight(8, 2))
        with self._scrubbing() if is_scrubbed else ExitStack():
            written = self._load("write", *place).mib_per_second
            read = self._load("read", *place).mib_per_second
            made = self._load("create", "--dir", HELD, "--count", COUNT // 4, *flight(16, 1))
            self._load("unlink", "--dir", HELD, "--count", COUNT // 4, *flight(16, 1))
            self._load("clear", *place)
        return [written, read, made.ops_per_second]

    @contextmanager
    def _scrubbing(self) -> Iterator[None]:
        """Have the scrub read all files, again and again."""
        command: list[str | Path] = [PROGRAM, "scrub", "--config", self._gateway.settings.source]
        ended = threading.Event()
        running: list[subprocess.Popen[bytes]] = []

        def scrub() -> None:
            while not ended.is_set():
                with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                    running[:] = [process]
                    process.wait()

        thread = threading.Thread(target=scrub)
        thread.start()
        try:
            until(lambda: bool(running), "the scrub")
            yield
        finally:
            ended.set()
            running[0].terminate()
            thread.join()

    def _is_copied(self, since_ns: int) -> bool:
        report = reports.of_names(self._gateway.settings)
        return report.waiting == 0 and (report.copied_ns or 0) >= since_ns

    def _load(self, work: str, *options: object) -> load.Load:
        return load.nfs(self._gateway.port, work, *options, export=EXPORT)


def experiments(site: Site) -> Iterator[Experiment]:
    """Compare the same gateway with and without each of them."""
    setting = f"{shape(16, 1)}, a segment each {NAMES_SECONDS} s"
    peer = "the same, names not copied"
    bounds = (Target(0.97), Target(0.97), None)
    rows = [
        Row(work, setting, peer, "op/s", bound) for work, bound in zip(WORKS, bounds, strict=True)
    ]
    yield Experiment(tuple(rows), partial(site.names, True), partial(site.names, False))
    setting = f"the scrub at its default rate, {SCRUBBED} files of {FILE_MIB} MiB"
    peer = "the same without a scrub"
    works = (("write 1 MiB, COMMIT", "MiB/s"), ("read 1 MiB", "MiB/s"), (WORKS[0], "op/s"))
    rows = [Row(work, setting, peer, unit, Target(0.95)) for work, unit in works]
    yield Experiment(
        tuple(rows), partial(site.bytes, True), partial(site.bytes, False), is_large=True
    )


def measure(directory: Path, pairs: int) -> Iterator[list[Measured]]:
    """Measure.

    Args:
        directory: on the disk to measure.
    """
    scratch = Path(tempfile.mkdtemp(dir=directory))
    try:
        with ExitStack() as stack:
            for experiment in experiments(Site(scratch, stack)):
                yield experiment.run(pairs)
    finally:
        shutil.rmtree(scratch)
