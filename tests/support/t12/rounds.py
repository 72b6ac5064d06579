"""Rounds of total loss: a gateway works and its processes are killed, everything but the bucket is
deleted, and what a restore brings back is compared with the log of the job.

The processes are those of ``spillway up``, but for the NFS server: its part has a process with the
namespace, which is killed as well (``losing``).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import select

from gateway.common import clock
from gateway.config.settings import Settings
from gateway.db.compiled import Statement
from gateway.db.engine import Database
from gateway.db.statements import IS_REGULAR, inode
from gateway.lifecycle.retention import store as policies
from gateway.lifecycle.retention.policy import of
from gateway.objectstore.key_mapper import KeyMapper
from gateway.service import durability
from tests.support.drainsite import PREFIX, Site
from tests.support.owner import confirm
from tests.support.s3proxy import Act, Request
from tests.support.s3server import credentials
from tests.support.t12 import forked, losing, saves
from tests.support.t12.forked import Nursery
from tests.support.t12.process import is_log
from tests.support.t12.saves import Operation
from tests.support.volumes import query, status_of, write_settings
from tests.support.waiting import until

PROCESSES = ("drain", "recovery", "checkpoints", "cache")
WORK_SECONDS = (0.5, 2.5)
"""The range of the time for which the job works, from the first base of the names on."""
KILLS = (1, 5)
SECONDS = 60.0
_FILES = Statement(select(inode.c.ino).where(IS_REGULAR, inode.c.nlink > 0))
NAMES_SECONDS = 0.1
OF_FILES = tuple(f".spillway/{area}/" for area in ("promoted", "staging", "trash"))
"""Where objects of files are beside those at their paths."""
REQUEST_SECONDS = 10.0
"""The store has a small object after that, or its server is broken."""


class Plan(NamedTuple):
    """What one round does."""

    seed: int
    from_engine: str
    to_engine: str
    kills_restore: bool
    """Whether the restore is killed before it is repeated."""
    loses_answer: bool
    """Whether the answer to a segment of the names is lost before its process is killed."""
    has_policy: bool
    """Whether a policy that would delete checkpoints is approved shortly before the loss."""


def plan_of(seed: int, engine: str) -> Plan:
    """Return the plan of a seed, for a gateway on an engine."""
    draw = random.Random(f"plan {seed}")
    to_engine = engine
    if draw.random() < 0.4:
        to_engine = "postgres" if engine == "sqlite" else "sqlite"
    is_so = [draw.random() < share for share in (0.5, 0.3, 0.3)]
    return Plan(seed, engine, to_engine, *is_so)


class StoredObject(NamedTuple):
    """An object, as the bucket has it."""

    etag: str
    ino: int | None
    body: bytes


@dataclass
class Shown:
    """What status showed before the loss."""

    as_of_ns: int
    """The bucket has all names of this time."""
    before_ns: int
    after_ns: int
    """Status was asked between these two times."""
    durable: set[int] = field(default_factory=set)
    """Inodes whose present version the bucket had."""


class LosingGateway:
    """The gateway that is lost.

    Args:
        site: whose namespace nothing has open.
        nursery: forks its processes.
        plan: of the round.
        log: of its job.
    """

    def __init__(self, site: Site, nursery: Nursery, plan: Plan, log: Path) -> None:
        self._site = site
        self._nursery = nursery
        self._plan = plan
        self._log = log
        self._draw = random.Random(f"work {plan.seed}")
        self._pids: dict[str, int] = {}
        self._starts = 0

    def run(self) -> Shown:
        """Work, with kills, until everything is killed at once. Returns what status showed."""
        for name in ("server", *PROCESSES):
            self._start(name)
        try:
            until(self._is_based, "a base of the names", SECONDS)
            for _ in range(self._draw.randint(*KILLS)):
                self._pass(self._draw.uniform(*WORK_SECONDS) / KILLS[1])
                victim = self._draw.choice(["server", *PROCESSES])
                if victim == "recovery" and self._plan.loses_answer:
                    self._lose_answer()
                self._kill(victim)
                self._start(victim)
            self._pass(self._draw.uniform(*WORK_SECONDS))
            if self._plan.has_policy:
                # Otherwise it would delete what the job's log knows nothing of.
                self._kill("checkpoints")
                _approve_policy(self._site.settings)
            return self._shown()
        finally:
            self._kill_all()

    def _is_based(self) -> bool:
        self._require()
        return status_of(self._site.settings)["names"]["base_age_seconds"] is not None

    def _pass(self, seconds: float) -> None:
        """Let the processes work for some time, and require that they do."""
        end = time.monotonic() + seconds
        until(lambda: self._require() or time.monotonic() > end, "the work", SECONDS)

    def _require(self) -> bool:
        """Raise AssertionError if a process ended by itself. Returns False."""
        for name, pid in self._pids.items():
            assert not self._nursery.has_ended(pid), f"{name}: {self._site.output.read_text()}"
        return False

    def _start(self, name: str) -> None:
        self._starts += 1
        config = str(self._site.settings.source)
        if name == "server":
            arguments = (config, str(self._log), f"{self._plan.seed} {self._starts}")
            pid = self._nursery.start(losing.serve, self._site.output, *arguments)
        else:
            pid = self._nursery.start(forked.process, self._site.output, name, config)
        self._pids[name] = pid

    def _kill(self, name: str) -> None:
        pid = self._pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        self._nursery.wait(pid)

    def _kill_all(self) -> None:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        for name in list(self._pids):
            self._kill(name)

    def _lose_answer(self) -> None:
        fault = self._site.proxy.inject(is_log, Act.HOLD_ANSWER)
        fault.wait()
        fault.discard()

    def _shown(self) -> Shown:
        settings = self._site.settings
        before_ns = clock.now_ns()
        age = status_of(settings)["names"]["age_seconds"]
        durable = set(_durable(settings))
        as_of_ns = 0 if age is None else before_ns - int(age * clock.NS)
        return Shown(as_of_ns, before_ns, clock.now_ns(), durable)


def _approve_policy(settings: Settings) -> None:
    policy = of({"name": "short", "path": "run/*", "keep_newest": 1, "approve": "automatic"})
    with closing(Database(settings.database_url)) as database, database.writing() as session:
        policies.put(session, policy, "a person")
        policies._approve_versions(session, ["short v1"], "a person")


def _durable(settings: Settings) -> Iterator[int]:
    """Yield the inodes of files that the bucket has, as ``spillway wait --durable`` says."""
    with closing(Database(settings.database_url)) as database, database.reading() as session:
        keys = KeyMapper(session, settings.bucket.prefix)
        for (ino,) in session.all(_FILES):
            if durability._is_durable(session, keys, ino):
                yield ino


def stored(site: Site) -> dict[str, StoredObject]:
    """Return the objects of files in the bucket, by key."""
    found = {}
    for page in site.client.get_paginator("list_objects_v2").paginate(Bucket=site.bucket):
        for entry in page.get("Contents", []):
            key = entry["Key"]
            below = key.removeprefix(f"{PREFIX}/")
            if below.startswith(".spillway/") and not below.startswith(OF_FILES):
                continue
            answer = site.client.get_object(Bucket=site.bucket, Key=key)
            metadata = {name.lower(): value for name, value in answer["Metadata"].items()}
            ino = int(metadata["ino"]) if "ino" in metadata else None
            found[below] = StoredObject(entry["ETag"], ino, answer["Body"].read())
    return found


class Restoring:
    """The gateway that a restore makes, in a directory of its own.

    Args:
        lost: the gateway that is gone.
        nursery: forks its processes.
        plan: of the round.
        directory: for its data.
        database_url: of an empty database.
    """

    def __init__(
        self, lost: Site, nursery: Nursery, plan: Plan, directory: Path, database_url: str
    ) -> None:
        values = {**lost.values, "namespace": {"url": database_url}}
        self.settings = write_settings(directory / "data", values)
        self.settings.credentials_file.touch(0o600)
        self.settings.credentials_file.write_text(credentials())
        self.output = directory / "restore.log"
        self._nursery = nursery
        self._plan = plan
        self._draw = random.Random(f"restore {plan.seed}")

    def restore(self) -> dict[str, Any]:
        """Restore, in some rounds after a restore that was killed. Returns what it printed."""
        kills = self._draw.randint(1, 3) if self._plan.kills_restore else 0
        for _ in range(kills):
            if self._draw.random() < 0.5:
                status, said = self._restore(f"reconcile.{self._draw.randint(1, 12)}")
            else:
                status, said = self._restore("", self._draw.uniform(0.0, 1.0))
            if status != -signal.SIGKILL:
                break
        else:
            status, said = self._restore("")
        assert status in (0, 1), self.output.read_text()
        found: dict[str, Any] = json.loads(said[said.index("{") :])
        return found

    def _restore(self, failpoint: str, killed_after: float | None = None) -> tuple[int, str]:
        said = self.output.with_suffix(".json")
        said.unlink(missing_ok=True)
        arguments = ("restore", "--json", "--is-gone", "--config", str(self.settings.source))
        pid = self._nursery.start(forked.command, said, failpoint, *arguments)
        timer = threading.Timer(killed_after or 0.0, _kill, (pid,))
        if killed_after is not None:
            timer.start()
        status = self._nursery.wait(pid)
        timer.cancel()
        # It may have been killed before it had an output.
        text = said.read_text() if said.exists() else ""
        with self.output.open("a") as output:
            output.write(f"{failpoint or killed_after}: {status}\n{text}\n")
        return status, text

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run its processes meanwhile, but for the server of names."""
        confirm(self.settings)
        config = str(self.settings.source)
        pids = [
            self._nursery.start(forked.process, self.output, name, config) for name in PROCESSES
        ]
        try:
            yield
        finally:
            for pid in pids:
                _kill(pid)
                self._nursery.wait(pid)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Loss(NamedTuple):
    """What is compared at the end of a round."""

    operations: list[Operation]
    shown: Shown
    objects: dict[str, StoredObject]
    """What the bucket had at the loss."""
    unsettled: set[int]
    """Inodes of files of which only the lost database knew that they had objects, or might get one:
    they were deleted while the drain sent them."""


def configure(site: Site) -> None:
    """Make a gateway ready for a round."""
    site.namespace.close()
    site.configure("recovery", names_seconds=NAMES_SECONDS)
    # The disk of the tests may be full of other things.
    site.configure("cache", evict_from=1.0)
    site.configure("space", slow_from=0.999, reserve_bytes=0)


def _under_way(site: Site) -> list[Request]:
    """Return the requests that the store has not answered."""
    held = {id(request) for fault in site.proxy.faults for request in fault.held}
    late = time.monotonic() - REQUEST_SECONDS
    return [
        request
        for request in site.proxy.operations()
        if request.status is None and id(request) not in held and request.time > late
    ]


def lose(site: Site, nursery: Nursery, plan: Plan, directory: Path) -> Loss:
    """Let a gateway work, and lose it. A database that has a server is left to the caller."""
    configure(site)
    log = directory / "job.log"
    shown = LosingGateway(site, nursery, plan, log).run()
    until(lambda: not _under_way(site), "the last requests", SECONDS)
    objects = stored(site)
    rows = query(
        site.settings,
        "SELECT ino FROM upload UNION SELECT ino FROM indeterminate_write"
        " UNION SELECT ino FROM tombstone WHERE deleted_ns > :as_of",
        as_of=shown.as_of_ns,
    )
    shutil.rmtree(site.settings.data_dir)
    return Loss(saves.read(log), shown, objects, {ino for (ino,) in rows})
