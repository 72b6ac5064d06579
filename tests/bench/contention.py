"""Measures names while the drain works, and the drain while names change, with one database.

The drain uploads, moves and deletes thousands of small objects (``rclone serve s3`` on the same
machine, with its objects in memory). Meanwhile one client makes, renames and removes names, one
after the other. The peer is the same gateway with either of the two idle. The two also share the
processors. A row tells how many each of the two takes when it is alone: if 0.8 of their sum is more
than the machine has, no schedule gives both 0.8 of their speed.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from gateway.common.patterns import IncompleteNames
from gateway.db.engine import Database
from tests.bench import load
from tests.bench.experiments import Experiment
from tests.bench.names import CHANGES
from tests.bench.rows import Row, Target
from tests.support.gateway import Values
from tests.support.nfsserver import Server
from tests.support.processes import process
from tests.support.s3server import RcloneServer, credentials
from tests.support.stopping import stop_between_transactions
from tests.support.waiting import until

BUCKET = "bench"
IDLE = "the same, the other idle"
WORKS = ("create and close", "rename", "unlink")
FILES = {"k": 2500, "m": 150, "u": 450}
"""The files made for each run, by the prefix of their names. The next run keeps k, moves m and
unlinks u."""
NAMED = 60
ROUNDS = 3
NAMES = ("--dir", "names.tmp")
"""The client's directory. Its name is held, so the drain has no work from it."""
WIDE = ("--connections", 16)
DRAINED_SECONDS = 300.0
POLL_SECONDS = 0.02
SAID_MAX = 4000
S3_NICE = 10
COUNTING = 2
_COUNT = "while True: pass"

_WORK_LEFT = """
SELECT (SELECT count(*) FROM rekey) + (SELECT count(*) FROM tombstone)
    + (SELECT count(*) FROM inode i JOIN dirent d ON d.ino = i.ino
       JOIN dirent p ON p.ino = d.parent WHERE i.kind = 1 AND i.nlink > 0
       AND i.content_version > i.drained_version AND p.name <> :held)
"""


class _Bucket(RcloneServer):
    """An S3 server of low priority, because a real bucket does not use the gateway's processors."""

    def command(self) -> list[str]:
        return ["nice", "-n", str(S3_NICE), *super().command()]


class Processors:
    """Counts the processors that the machine uses from now on, and those of the S3 server."""

    def __init__(self, s3: RcloneServer) -> None:
        self._s3 = s3
        self._started = time.perf_counter()
        self._before = self._spent()

    def used(self) -> list[float]:
        """Return the mean number of busy processors so far, and how many the S3 server had."""
        seconds = time.perf_counter() - self._started
        pairs = zip(self._spent(), self._before, strict=True)
        return [(now - before) / seconds for now, before in pairs]

    def _spent(self) -> tuple[float, float]:
        words = Path("/proc/stat").read_text().splitlines()[0].split()
        user, nice, system, _idle, _iowait, irq, softirq = map(int, words[1:8])
        ticks = user + nice + system + irq + softirq
        return ticks / os.sysconf("SC_CLK_TCK"), self._s3.processor_seconds()


class Site:
    """A gateway, its drain, and the server that it drains to."""

    def __init__(
        self, server: Server, drain: subprocess.Popen[bytes], log: Path, s3: RcloneServer
    ) -> None:
        self._server = server
        self._drain = drain
        self._log = log
        self._s3 = s3
        self._database = Database(server.settings.database_url)
        self._runs = 0
        patterns = server.settings.drain.incomplete_patterns
        assert IncompleteNames(patterns).holds((), NAMES[1].encode()), (
            "the drain would send the names"
        )
        self._backlog()
        self._drained()

    def busy(self, _number: int) -> Sequence[float]:
        """Measure the names and the drain at the same time."""
        jobs = self._backlog()
        seconds = [0.0]
        watch = threading.Thread(target=lambda: seconds.insert(0, self._drained()))
        processors = Processors(self._s3)
        watch.start()
        rounds = []
        while watch.is_alive():
            done = self._round()
            if watch.is_alive():
                rounds.append(done)
        watch.join()
        busy = processors.used()
        if not rounds:
            raise RuntimeError("the drain had ended before one round of names: give it more files")
        return [*_summary(rounds[:ROUNDS]), jobs / seconds[0], *busy]

    def crowded(self, number: int) -> Sequence[float]:
        """Measure the same names beside processes that only count.

        The difference to ``idle`` is the cost of busy processors alone.
        """
        with ExitStack() as stack:
            for _ in range(COUNTING):
                counting = stack.enter_context(subprocess.Popen([sys.executable, "-c", _COUNT]))
                stack.callback(counting.kill)
            return self.idle(number)

    def idle(self, _number: int) -> Sequence[float]:
        """Measure the same names with nothing beside them."""
        return _summary([self._round() for _ in range(ROUNDS)])

    def apart(self, number: int) -> Sequence[float]:
        """Measure the same names, then the same work of the drain."""
        for_names = Processors(self._s3)
        names = self.idle(number)
        busy = for_names.used()
        jobs = self._backlog()
        for_drain = Processors(self._s3)
        rate = jobs / self._drained()
        return [*names, rate, *map(sum, zip(busy, for_drain.used(), strict=True))]

    def _backlog(self) -> int:
        """Make work for the drain, which is stopped meanwhile. Returns the number of objects."""
        stop_between_transactions(self._drain.pid, self._database)
        jobs = 0
        if self._runs:
            before = ("--dir", f"files{self._runs}", *WIDE)
            for work, prefix in (("rename", "m"), ("unlink", "u")):
                jobs += FILES[prefix]
                self._nfs(work, *before, "--prefix", prefix, "--count", FILES[prefix])
        self._runs += 1
        for prefix, count in FILES.items():
            jobs += count
            directory = ("--dir", f"files{self._runs}", *WIDE)
            self._nfs("create", *directory, "--prefix", prefix, "--count", count)
        self._server.until_idle()
        return jobs

    def _drained(self) -> float:
        """Let the drain continue. Returns the seconds until it has no work left."""
        started = time.perf_counter()
        self._drain.send_signal(signal.SIGCONT)
        deadline = started + DRAINED_SECONDS
        while left := self._work_left():
            if (status := self._drain.poll()) is not None:
                raise RuntimeError(f"the drain ended with status {status}: {self._said()}")
            if time.perf_counter() > deadline:
                raise RuntimeError(f"the drain has {left} objects left: {self._said()}")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - started

    def _said(self) -> str:
        """Return the end of the drain's log, which goes with the site."""
        return self._log.read_text()[-SAID_MAX:]

    def _work_left(self) -> int:
        with self._database.reader() as connection:
            return int(connection.execute(_SQL[self._database.dialect.name]).fetchone()[0])

    def _round(self) -> list[load.Load]:
        return [
            self._nfs(work, *NAMES, "--count", NAMED, "--prefix", prefix)
            for work, prefix in CHANGES
        ]

    def _nfs(self, work: str, *options: object) -> load.Load:
        return load.nfs(self._server.port, work, *options)


_HELD = NAMES[1].encode().hex()
_SQL = {
    "sqlite": _WORK_LEFT.replace(":held", f"x'{_HELD}'"),
    "postgresql": _WORK_LEFT.replace(":held", rf"'\x{_HELD}'::bytea"),
}


def _summary(rounds: Sequence[Sequence[load.Load]]) -> list[float]:
    """Return the median rate of each work, and the longest latency of all."""
    rates = [
        statistics.median(done.ops_per_second for done in work)
        for work in zip(*rounds, strict=True)
    ]
    return [*rates, max(done.max_ms for dones in rounds for done in dones)]


def experiment(engine: str, site: Site) -> Experiment:
    """Compare names and drain at once with each of them alone.

    Args:
        engine: its name in the report.
    """
    setting = f"{engine}, {sum(FILES.values()):,} files drained meanwhile"
    names = [Row(work, setting, IDLE, "op/s", Target(0.8)) for work in WORKS]
    longest = Row(
        "longest of these", setting, IDLE, "ms", Target(50, at_most=True), counts="difference"
    )
    drain = Row("the drain meanwhile", setting, IDLE, "objects/s", Target(0.8))
    alone = "each alone, added"
    processors = Row("processors", setting, alone, "busy")
    of_s3 = Row("of these the S3 server", setting, alone, "busy")
    return Experiment((*names, longest, drain, processors, of_s3), site.busy, site.apart)


def crowd(engine: str, site: Site) -> Experiment:
    """Compare the same names with busy and with idle processors, while the drain is idle."""
    setting = f"{engine}, {COUNTING} processes that only count"
    names = [Row(work, setting, IDLE, "op/s") for work in WORKS]
    longest = Row("longest of these", setting, IDLE, "ms", counts="difference")
    return Experiment((*names, longest), site.crowded, site.idle)


@contextmanager
def site(directory: Path, url: str = "") -> Iterator[Site]:
    """Run a gateway in a new directory.

    Args:
        url: of an empty database; empty for SQLite.
    """
    directory.mkdir()
    # The objects are in memory, so they take nothing of the gateway's disk.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as store, _Bucket(Path(store) / "s3") as s3:
        s3.client().create_bucket(Bucket=BUCKET)
        values: Values = {
            "namespace": {"url": url},
            "bucket": {"name": BUCKET, "endpoint_url": s3.url},
            # The drain is stopped between runs and must not lose its lease meanwhile.
            "drain": {"settle_seconds": 0.0, "poll_seconds": 0.1, "lease_seconds": 3600.0},
        }
        home = directory / "gateway"
        home.mkdir()
        with Server("spillway", home, home / "ganesha.log", values) as server:
            server.settings.credentials_file.touch(0o600)
            server.settings.credentials_file.write_text(credentials())
            log = home / "drain.log"
            with _draining(server, log) as drain:
                yield Site(server, drain, log, s3)


@contextmanager
def _draining(server: Server, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    settings = server.settings
    report = settings.run_dir / "drain.json"
    with process("drain", settings, log) as started:
        until(partial(_says, report, '"reachable"'), f"the drain; its log: {log}")
        yield started


def _says(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()
