"""Measures what the catalogue costs a save: the same gateway while its process runs, and while that
is stopped.

The gateway has 10,000 durable checkpoints of 64 files, with their manifests and receipts, and a
policy whose plan deletes most of them and waits for a person. Nothing is drained while saves are
measured. The stopped process resumes between two runs and reads what it missed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench import drain, load
from tests.bench.experiments import Experiment
from tests.bench.load import MIB
from tests.bench.manyfiles import RUNS, fill
from tests.bench.rows import Measured, Row, Target
from tests.support.gateway import Gateway
from tests.support.s3server import RcloneServer
from tests.support.waiting import until

PEER = "while it is stopped"
COST = "the catalogue's processor"
MEMORY = "peak memory of the catalogue's process"
CHECKPOINTS = 10_000
FILES = 64
BESIDE = f"beside {CHECKPOINTS:,} checkpoints of {FILES} files"
POLICY = """
[[policy]]
name = "newest"
run = "run*"
keep_newest = 10
wait_hours = 0
"""
FILLED_SECONDS = 1800.0
CALM_SECONDS = 10.0
QUIET_SECONDS = 2.0
"""What follows from the rows of a save has ended if the catalogue uses no processor for so long."""


class Saves(NamedTuple):
    """Saves of one run: how many, and the shards of each."""

    name: str
    times: int
    ranks: int
    mib: int

    def __str__(self) -> str:
        times = "a save" if self.times == 1 else f"{self.times} saves"
        return f"{times} of {self.ranks} x {self.mib} MiB"


LOADS = (Saves("large", 2, 8, 64), Saves("small", 8, 64, 1))


class Site:
    """A gateway that recognises the saves.

    Args:
        directory: to be made.
        stack: ends it.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        server = stack.enter_context(RcloneServer(directory / "s3"))
        rules: list[dict[str, object]] = [
            {"name": saves.name, "path": f"{saves.name}_{{step}}", "files": saves.ranks}
            for saves in LOADS
        ]
        rules.append({"name": "filled", "path": "{run}/step-{step}", "files": FILES})
        self._gateway = Gateway(
            directory / "gateway",
            server,
            # What is saved waits, so that the drain has no part in the result.
            values={
                "drain": {"settle_seconds": 7200.0},
                "checkpoints": {"rule": rules, "quiet_seconds": 0.0},
            },
        )
        self._database = self._gateway.data_dir / "namespace.db"
        fill(self._database, CHECKPOINTS // RUNS, FILES)
        stack.enter_context(self._gateway)
        durable = "checkpoint WHERE state = 'durable'"
        until(lambda: self._has(durable, CHECKPOINTS), "all are known", FILLED_SECONDS)
        written = "manifest WHERE etag IS NOT NULL"
        until(lambda: self._has(written, CHECKPOINTS), "all manifests", FILLED_SECONDS)
        until(lambda: self._is_calm(CALM_SECONDS), "the catalogue has nothing to do", 300.0)
        self.rebuilt_mib = self._peak_mib()
        policies = directory / "policies.toml"
        policies.write_text(POLICY)
        self._gateway.spillway("policy", "set", str(policies))
        until(lambda: self._has("approval", 1), "the plan asks", 300.0)
        until(lambda: self._is_calm(CALM_SECONDS), "the catalogue has nothing to do", 300.0)
        self.planned_mib = self._peak_mib()
        self._steps = 0

    def save(self, saves: Saves, is_followed: bool, _number: int) -> Sequence[float]:
        """Save. Returns MiB/s, and the milliseconds of processor time of the catalogue for each
        save until it has all of them, and what follows from that is done."""
        pid = self._gateway.pid("checkpoints")
        used = drain.family_seconds(pid)
        if not is_followed:
            os.kill(pid, signal.SIGSTOP)
        try:
            seconds = sum(self._one(saves) for _ in range(saves.times))
        finally:
            os.kill(pid, signal.SIGCONT)
        known = "checkpoint WHERE state = 'complete'"
        until(lambda: self._has(known, self._steps), "the catalogue has every save", 120.0)
        until(lambda: self._is_calm(QUIET_SECONDS), "the catalogue has nothing to do", 120.0)
        milliseconds = (drain.family_seconds(pid) - used) * 1e3 / saves.times
        return [saves.times * saves.ranks * saves.mib / seconds, milliseconds]

    def _one(self, saves: Saves) -> float:
        self._steps += 1
        options = ("--dir", f"{saves.name}_{self._steps}", "--file", saves.mib * MIB)
        flight = ("--connections", saves.ranks, "--depth", 4)
        return load.nfs(
            self._gateway.port, "save", *options, *flight, export="/checkpoints"
        ).seconds

    def _has(self, rows: str, count: int) -> bool:
        """Return whether there are so many rows."""
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as connection:
            [(found,)] = connection.execute(f"SELECT count(*) FROM {rows}").fetchall()
        return bool(found == count)

    def _is_calm(self, seconds: float) -> bool:
        """Return whether the catalogue hardly uses the processor for so long."""
        pid = self._gateway.pid("checkpoints")
        used = drain.family_seconds(pid)
        time.sleep(seconds)
        return drain.family_seconds(pid) - used < 0.05 * seconds

    def _peak_mib(self) -> float:
        """Return the peak of the resident memory of the catalogue's process."""
        status = Path(f"/proc/{self._gateway.pid('checkpoints')}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure(directory: Path, pairs: int) -> Iterator[list[Measured]]:
    """Measure.

    Args:
        directory: on the disk to measure.
    """
    scratch = Path(tempfile.mkdtemp(dir=directory))
    try:
        with ExitStack() as stack:
            site = Site(scratch, stack)
            setting = f"{BESIDE}, after a plan"
            peak = Row(MEMORY, setting, "after the rebuild", "MiB", None, "ours")
            yield [Measured(peak, (site.planned_mib,), (site.rebuilt_mib,))]
            for saves in LOADS:
                rows = (
                    Row(f"{saves} {BESIDE}", "the catalogue follows", PEER, "MiB/s", Target(0.97)),
                    Row(COST, "until it has nothing to do", PEER, "ms/save", None, "ours"),
                )
                ours, peer = (
                    partial(site.save, saves, is_followed) for is_followed in (True, False)
                )
                yield Experiment(rows, ours, peer, is_large=True).run(pairs)
    finally:
        shutil.rmtree(scratch)
