"""Random runs of a site whose drain and store are real, with policies, and what a plan shows."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.catalogue.store import catalogue_of
from gateway.catalogue.tracker import Follower
from gateway.common import clock
from gateway.db.engine import Database
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.facts import Plan, PlanInputs
from gateway.lifecycle.retention.planning import Planned, Planning
from gateway.lifecycle.retention.policy import DAY_NS, HOUR_NS
from tests.support.checkpoints.records import record
from tests.support.checkpoints.world import follow
from tests.support.drainsite import Site
from tests.support.volumes import query

RULE = {"name": "ours", "path": "{run}/c{step}", "files": ["a", "end"]}


class Saved(NamedTuple):
    """Random runs of a site."""

    durable: list[str]
    """Paths of checkpoints that the bucket has."""
    metrics: dict[bytes, float | None]
    """By path."""
    is_ordered: bool
    """Whether all times are in the order of the steps."""


def save(site: Site, draw: random.Random) -> Saved:
    """Save two runs in a random order, at random times. Some are not durable, or not complete."""
    site.values["checkpoints"] = {"rule": [RULE]}
    site.configure()
    steps = {run: draw.sample(range(1, 9), draw.randint(3, 7)) for run in "rs"}
    paths = [f"{run}/c{step}" for run, some in steps.items() for step in some]
    draw.shuffle(paths)
    late = draw.choice([0, 0, 1, 3])
    metrics: dict[bytes, float | None] = {}
    for at, path in enumerate(paths):
        if at == len(paths) - late:
            site.drain()
        metrics[path.encode()] = value = draw.choice([None, 0, 1, 2, 3, 4])
        for name in ("a", "end") if at < len(paths) - late or draw.random() < 0.7 else ("a",):
            site.write(f"{path}/{name}", b"12345")
        if value is not None:
            site.write(f"{path}/m", b'{"k": %d}' % value)
    if not late:
        site.drain()
    is_ordered = draw.random() < 0.5
    for path in paths:
        step = int(path.partition("c")[2])
        days = (9 - step) * 10 if is_ordered else draw.randint(0, 10) * 10
        ready_ns = clock.now_ns() - days * DAY_NS
        stored_ns = ready_ns + draw.choice([0, 0, HOUR_NS, 40 * DAY_NS])
        top = site.attr(path).ino
        for statement in (
            "UPDATE inode SET ctime_ns = :ns WHERE ino = :top OR parent = :top",
            "UPDATE inode SET ctime_ns = :ns"
            " WHERE ino IN (SELECT ino FROM dirent WHERE parent = :top)",
        ):
            query(site.settings, statement, ns=ready_ns, top=top)
        of = "UPDATE object SET stored_ns = :ns WHERE key LIKE :key"
        query(site.settings, of, ns=stored_ns, key=f"%/{path}/%")
    return Saved(paths[: len(paths) - late], metrics, is_ordered)


def govern(
    site: Site, draw: random.Random, saved: Saved, tables: Sequence[dict[str, Any]]
) -> clock.ClockReading:
    """Store policies, random pins, promotions, and a time. Returns what the clocks say."""
    now_ns = clock.now_ns()
    database = Database(site.settings.database_url)
    with database.writing() as session:
        for number, table in enumerate(tables):
            store.put(session, policy.of({"name": f"p{number}", **table}), "a person")
        if draw.random() < 0.5:
            row = clock.KnownTime(now_ns, "boot", 0)
            store.save_time(session, clock.TrustedTime(now_ns, 0, row))
    database.close()
    places = [*saved.durable, f"{saved.durable[0]}/a", "s"]
    for path in draw.sample(places, draw.choice([0, 0, 1, 2])):
        query(site.settings, "INSERT INTO pin VALUES (:i, '', 'me', 1)", i=site.attr(path).ino)
    for path in draw.sample(saved.durable, draw.choice([0, 0, 1, 2])):
        files = 2 + (saved.metrics[path.encode()] is not None)
        query(
            site.settings,
            "INSERT INTO promotion (name, state, ino, path, note, asked_by, asked_ns, top,"
            " generation, files, size) VALUES (:name, 'done', :ino, :path, '', 'me', 1, 0, 0,"
            " :files, 1)",
            name=path.replace("/", "-"),
            ino=site.attr(path).ino,
            path=path.encode(),
            files=files,
        )
    days, uptime_days = draw.choice([(-5, 1), (0, 0), (30, 30), (30, 31), (400, 1), (400, 400)])
    return clock.ClockReading(now_ns + days * DAY_NS, "boot", uptime_days * DAY_NS)


def looked(site: Site) -> tuple[PlanInputs, Planned]:
    """Follow, and plan. Returns the plan and what it is made of."""
    database = Database(site.settings.database_url)
    follow(Follower(site.settings, database, threading.Event()))
    record(site.settings)
    planned = Planning(site.settings, catalogue_of(site.settings, database)).plan()
    database.close()
    return planned.situation, planned


def wanted_of(plan: Plan) -> set[tuple[str, bytes, str]]:
    """Return what a plan shows: action, path and author of each."""
    deletions = {
        ("trash", deletion.checkpoint.path, ", ".join(deletion.policies))
        for deletion in plan.deletions
    }
    evictions = {
        ("evict", eviction.checkpoint.path, eviction.evict or "") for eviction in plan.evictions
    }
    moves = {
        ("transition", transition.checkpoint.path, transition.transition.policy)
        for transition in plan.transitions
        if transition.transition is not None
    }
    return deletions | evictions | moves
