"""Measures a gateway that is governed: lists and pages while clients save, and NFS while the admin
API is asked.

The gateway has a million files in ten thousand checkpoints of a hundred runs, and some thousand
that wait. The admin API's own database has what it keeps of a month. The first rows have the p95 of
the time of each list call, and of the first answer of each page. The last rows compare the NFS
server while a client of the admin API asks without a pause with the same server while there is
none. That client has a low priority, because a real one is on another machine. The admin API takes
its share of the processor (``admin.busy_share``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from gateway.config.settings import AdminSettings
from tests.bench import drain, load
from tests.bench.experiments import Experiment
from tests.bench.load import MIB
from tests.bench.manyfiles import DIRTY, RUNS, fill, fill_store
from tests.bench.rows import Measured, Row, Target
from tests.bench.scale import percentile
from tests.support.gateway import Gateway
from tests.support.ports import free_port
from tests.support.s3server import RcloneServer, die_with_parent
from tests.support.waiting import background, until

CLIENTS = 16
ASKED = 20
"""Calls of each path."""
PACE_SECONDS = 1.0
"""The time from one call to the next, as of people who look at pages. What asks without a pause on
a busy machine waits for its share (``admin.busy_share``)."""
LIST = Target(100.0, at_most=True)
PAGE = Target(300.0, at_most=True)
NFS = Target(0.95)
KNOWN_SECONDS = 1200.0
CREATED = 32_000
CALM_SECONDS = 10.0
SPENT_SECONDS = 8.0
"""The client asks for this long before its effect is measured."""
POLICIES = """
[[policy]]
name = "newest"
run = "run00*"
keep_newest = 90
keep_every_steps = 10
[[policy]]
name = "old"
run = "run0*"
delete_after_days = 300
"""
DIRECTORY = "/checkpoints/run007/step-7"
"""The path for requests that want one."""
PAGES = (
    *("/", "/checkpoints", "/checkpoints/list", "/checkpoints/list?run=run007&sort=run&order=up"),
    *("/checkpoints/{ino}", "/checkpoints/{ino}/fate", "/checkpoints/{ino}/delete"),
    *("/checkpoints/{ino}/promote", "/checkpoints/{ino}/pin"),
    *(
        "/files?path=/checkpoints",
        f"/files?path={DIRECTORY}",
        f"/files?path={DIRECTORY}/rank-00000",
    ),
    *("/queue", "/policies"),
    *("/policies/plan", "/policies/new", "/policy/newest", "/policy/newest/history"),
    *("/policies/plan/summary", "/policies/log", "/policy/newest/remove"),
    "/policies/preview?version=1&name=newest&run=run00*&keep_newest=50",
    *("/promotions", "/trash", "/trash/empty", "/exports", "/jobs", "/audit", "/settings"),
    *("/exports/new", "/exports/preview?name=/data&path=data&clients=127.0.0.1"),
    *("/login", "/settings/tokens", "/live/history?seconds=2678400"),
)
MORE_LISTS = (
    *("/api/v1/checkpoints?run=run007", "/api/v1/checkpoints?sort=-complete"),
    *("/api/v1/checkpoints?text=step-77", "/api/v1/queue?path=/checkpoints/waiting"),
)
HAMMER = """
import sys, httpx
base, token, *paths = sys.stdin.read().split()
client = httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=60)
while True:
    for path in paths:
        client.get(path).raise_for_status()
        print("a", end="", flush=True)
"""


class Size(NamedTuple):
    """The size of the namespace."""

    checkpoints: int
    files: int
    """The files of each checkpoint."""

    def __str__(self) -> str:
        return f"{self.checkpoints * self.files:,} files, {self.checkpoints:,} checkpoints"


FULL = Size(10_000, 100)


class Site:
    """A gateway with many checkpoints, and a client of its admin API.

    Args:
        directory: to be made.
        stack: ends it.
    """

    def __init__(self, directory: Path, stack: ExitStack, size: Size) -> None:
        self.size = size
        server = stack.enter_context(RcloneServer(directory / "s3"))
        rule = {"name": "governed", "path": "{run}/step-{step}", "files": size.files}
        port = free_port()
        gateway = Gateway(
            directory / "gateway",
            server,
            values={
                "checkpoints": {"rule": [rule], "quiet_seconds": 0.0},
                "admin": {"enabled": True, "port": port, "busy_share": AdminSettings.busy_share},
                # What is saved meanwhile waits, so that the drain has no part in the result.
                "drain": {"settle_seconds": 7200.0},
            },
        )
        fill(gateway.data_dir / "namespace.db", size.checkpoints // RUNS, size.files)
        policies = directory / "policies.toml"
        policies.write_text(POLICIES)
        gateway.spillway("policy", "set", str(policies))
        made = gateway.spillway("token", "create", "--role", "admin", "--json").stdout
        self.token: str = json.loads(made)["token"]
        fill_store(gateway.data_dir / "admin.db")
        self.gateway = stack.enter_context(gateway)
        self.url = f"http://127.0.0.1:{port}"
        headers = {"Authorization": f"Bearer {self.token}"}
        self.http = stack.enter_context(
            httpx.Client(base_url=self.url, headers=headers, timeout=60.0)
        )
        gateway.until_said("listening on", 1)
        until(self._is_known, "the catalogue has every checkpoint", KNOWN_SECONDS)
        until(self._is_calm, "the catalogue has read the journal", KNOWN_SECONDS)

    def _is_calm(self) -> bool:
        pid = self.gateway.pid("checkpoints")
        used = drain.family_seconds(pid)
        time.sleep(CALM_SECONDS)
        return drain.family_seconds(pid) - used < 0.05 * CALM_SECONDS

    def _is_known(self) -> bool:
        counts = self.ask("/api/v1/status")["catalogue"]["checkpoints"]
        time.sleep(1)
        return bool(counts["durable"] == self.size.checkpoints)

    def ask(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def lists(self) -> list[str]:
        """Return the paths of the API's calls that read and need no more than a path."""
        found = []
        for path, methods in sorted(self.ask("/api/v1/openapi.json")["paths"].items()):
            if "get" not in methods or "{" in path or "events" in path:
                continue
            parameters = methods["get"].get("parameters", ())
            needed = {parameter["name"] for parameter in parameters if parameter.get("required")}
            if needed <= {"path"}:
                found.append(f"{path}?path={DIRECTORY}" if needed else path)
        return [*found, *MORE_LISTS]

    def pages(self) -> list[str]:
        """Return the addresses of the pages."""
        ino = self.ask("/api/v1/checkpoints?limit=1")["items"][0]["ino"]
        return [page.format(ino=ino) for page in PAGES]

    def milliseconds(self, path: str) -> float:
        """Return the time of one answer."""
        started = time.perf_counter()
        self.http.get(path).raise_for_status()
        return (time.perf_counter() - started) * 1e3

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Have clients save without a pause meanwhile. What is saved is removed."""

        def save(stop: threading.Event) -> None:
            while not stop.is_set():
                self._save(8)

        with background(save):
            yield

    def _save(self, mib: int) -> float:
        """Save and remove. Returns MiB/s of the save."""
        of = ("--dir", "saved", "--connections", CLIENTS, "--depth", 4)
        saved = load.nfs(self.gateway.port, "save", *of, "--file", mib * MIB, export="/checkpoints")
        load.nfs(self.gateway.port, "clear", *of, export="/checkpoints")
        return saved.mib_per_second

    def work(self, _number: int) -> Sequence[float]:
        """Save, and make files. Returns MiB/s and creates per second.

        The first save is not measured: it takes longer after a pause, which only the work beside
        the client of the admin API has.
        """
        self._save(32)
        rate = self._save(32)
        of = ("--dir", "made", "--connections", CLIENTS, "--depth", 4, "--count", CREATED)
        made = load.nfs(self.gateway.port, "create", *of, export="/checkpoints")
        load.nfs(self.gateway.port, "unlink", *of, export="/checkpoints")
        return rate, made.ops_per_second


class Hammer:
    """A client of the admin API that never pauses.

    Args:
        paths: that it asks for.
    """

    def __init__(self, site: Site, paths: Sequence[str]) -> None:
        self._site = site
        self._said = "\n".join([site.url, site.token, *paths])
        self.rates: list[float] = []
        """Requests per second of each alternation."""

    def work(self, number: int) -> Sequence[float]:
        """Do the work of the site meanwhile."""
        with subprocess.Popen(
            ["nice", "-n", "19", sys.executable, "-c", HAMMER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(self._said.encode())
            process.stdin.close()
            process.stdout.read(1)
            # What the admin API has saved up is spent first.
            time.sleep(SPENT_SECONDS)
            os.set_blocking(process.stdout.fileno(), False)
            process.stdout.read()
            os.set_blocking(process.stdout.fileno(), True)
            started = time.perf_counter()
            work = self._site.work(number)
            seconds = time.perf_counter() - started
            process.kill()
            self.rates.append(len(process.stdout.read()) / seconds)
        return work


def answers(site: Site, paths: Mapping[str, Target]) -> list[Measured]:
    """Measure the time of each answer.

    Args:
        paths: paths with their targets in milliseconds.
    """
    for path in paths:
        site.milliseconds(path)  # what is compiled or read once is not part of the measurement
    # This comes first: what asks without a pause spends what the admin API has saved up.
    with site.saving():
        busy = _p95s(site, paths, PACE_SECONDS)
    idle = _p95s(site, paths, 0.0)
    setting = f"p95 while {CLIENTS} clients save"
    return [
        Measured(
            Row(path, setting, "while none saves", "ms", target, "ours"),
            (busy[path],),
            (idle[path],),
        )
        for path, target in paths.items()
    ]


def _p95s(site: Site, paths: Mapping[str, Target], pace_seconds: float) -> dict[str, float]:
    found: dict[str, list[float]] = {path: [] for path in paths}
    for _ in range(ASKED):
        for path, each in found.items():
            each.append(site.milliseconds(path))
            time.sleep(max(0.0, pace_seconds - each[-1] / 1e3))
    return {path: percentile(each, 0.95) for path, each in found.items()}


def beside(site: Site, paths: Sequence[str], pairs: int) -> list[Measured]:
    """Compare the NFS server while the admin API is asked with itself while it is not."""
    hammer = Hammer(site, paths)
    setting, peer = "a client of the admin API asks", "no such client"
    rows = (
        Row(f"a save of {CLIENTS} x 32 MiB", setting, peer, "MiB/s", NFS),
        Row("create and close", f"{setting}, {CLIENTS} connections x 4", peer, "op/s", NFS),
    )
    measured = Experiment(rows, hammer.work, site.work, is_large=True).run(pairs)
    asked = Row("requests that it was answered", setting, peer, "requests/s", None, "ours")
    return [*measured, Measured(asked, tuple(hammer.rates), (0.0,))]


def measure(directory: Path, pairs: int, size: Size = FULL) -> Iterator[list[Measured]]:
    """Measure.

    Args:
        directory: on the disk to measure.
    """
    with tempfile.TemporaryDirectory(dir=directory.absolute()) as scratch, ExitStack() as stack:
        site = Site(Path(scratch), stack, size)
        lists, pages = site.lists(), site.pages()
        yield answers(site, dict.fromkeys(lists, LIST) | dict.fromkeys(pages, PAGE))
        yield beside(site, [*lists, *pages], pairs)
        assert site.ask("/api/v1/queue?limit=1")["items"], f"{DIRTY} files wait"
