"""Measures what the catalogue costs a save: the same gateway while its process runs, and while that
is stopped.

Nothing is drained meanwhile. The stopped process resumes between two runs and reads what it missed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench import drain, load
from tests.bench.experiments import Experiment
from tests.bench.load import MIB
from tests.bench.rows import Measured, Row, Target
from tests.support.gateway import Gateway
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer
from tests.support.waiting import until

BUCKET = "bench"
PEER = "while it is stopped"
COST = "the catalogue's processor"


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

    Parameters: directory, to be made; stack, which ends it.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        server = stack.enter_context(RcloneServer(directory / "s3"))
        server.client().create_bucket(Bucket=BUCKET)
        rules = [
            {"name": one.name, "path": f"{one.name}_{{step}}", "files": one.ranks} for one in LOADS
        ]
        self._gateway = stack.enter_context(
            Gateway(
                directory / "gateway",
                bucket=BUCKET,
                endpoint_url=server.url,
                access_key_id=ACCESS_KEY,
                secret_access_key=SECRET_KEY,
                values={"drain": {"settle_seconds": 3600.0}, "checkpoints": {"rule": rules}},
            )
        )
        self._steps = 0

    def save(self, saves: Saves, is_followed: bool, _number: int) -> Sequence[float]:
        """Save. Returns MiB/s, and the milliseconds of processor time of the catalogue for each
        save until it has all of them."""
        pid = self._gateway.pid("checkpoints")
        used = drain.family_seconds(pid)
        if not is_followed:
            os.kill(pid, signal.SIGSTOP)
        try:
            seconds = sum(self._one(saves) for _ in range(saves.times))
        finally:
            os.kill(pid, signal.SIGCONT)
        until(self._is_known, "the catalogue has every save", 120.0)
        milliseconds = (drain.family_seconds(pid) - used) * 1e3 / saves.times
        return [saves.times * saves.ranks * saves.mib / seconds, milliseconds]

    def _one(self, saves: Saves) -> float:
        self._steps += 1
        options = ("--dir", f"{saves.name}_{self._steps}", "--file", saves.mib * MIB)
        flight = ("--connections", saves.ranks, "--depth", 4)
        return load.nfs(
            self._gateway.port, "save", *options, *flight, export="/checkpoints"
        ).seconds

    def _is_known(self) -> bool:
        shown = json.loads(self._gateway.spillway("checkpoints", "--json").stdout)
        states = [one["state"] for one in shown["checkpoints"]]
        return states.count("complete") == self._steps


def measure(directory: Path, pairs: int) -> Iterator[list[Measured]]:
    """Measure. Parameters: directory, on the disk to measure."""
    scratch = Path(tempfile.mkdtemp(dir=directory))
    try:
        with ExitStack() as stack:
            site = Site(scratch, stack)
            for saves in LOADS:
                rows = (
                    Row(f"{saves}", "the catalogue follows", PEER, "MiB/s", Target(0.97)),
                    Row(COST, "until it knows them", PEER, "ms/save", None, "ours"),
                )
                ours, peer = (
                    partial(site.save, saves, is_followed) for is_followed in (True, False)
                )
                yield Experiment(rows, ours, peer, is_large=True).run(pairs)
    finally:
        shutil.rmtree(scratch)
