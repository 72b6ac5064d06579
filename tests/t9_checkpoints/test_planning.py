"""What a plan of retention reads: its rows on both engines, metrics, and the time that it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.catalogue.store import catalogue_of
from gateway.common import clock
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import InodeTable
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.approval import AskedDeletions, Consent
from gateway.lifecycle.retention.facts import Current, Decision, Fate
from gateway.lifecycle.retention.planning import Planning
from tests.support.checkpoints.keeping import (
    Bin,
    applier,
    catch_up,
    planned,
    put,
    shown,
)
from tests.support.checkpoints.world import World
from tests.support.namespace import Namespace
from tests.support.t9.planner import checkpoint
from tests.support.t9.retention import made, world
from tests.support.volumes import query

__all__ = ["made", "world"]


def test_rows_on_both_engines(settings: Settings) -> None:
    database = Database(settings.database_url)
    step = checkpoint(1, 5)
    decision = Decision(step, Fate.DELETE, "why", ("a v1",), step)
    asked = AskedDeletions("plan", [decision], "why")
    automatic = {"name": "b", "run": "*", "keep_newest": 1, "approve": "automatic"}
    others = [
        Current(policy.of(automatic), 7),
        Current(policy.of({**automatic, "approve": "first"}), 8),
    ]

    def consent(session: Session) -> Consent:
        return store.consent(session, others)

    def writing(act: Callable[[Session], object]) -> Any:
        with database.reader() as connection, database.transaction(connection):
            return act(Session(connection, database.dialect))

    read = policy.of({"name": "a", "run": "*", "keep_newest": 1})
    assert writing(lambda session: store.put(session, read, "me")).version == 1
    assert writing(lambda session: store.put(session, read, "me")) is None
    assert [str(one) for one in writing(store.current)] == ["a v1"]
    assert writing(lambda session: store.switch(session, "a", False, "me")).version == 2
    assert writing(store.current) == []
    assert writing(lambda session: store.remove(session, "a", "me")).document is None
    assert [one.version for one in writing(store.history)] == [1, 2, 3]
    first = writing(lambda session: store.begin(session, "trash", step, "me", "why", "e1"))
    writing(lambda session: store.begin(session, "trash", step, "me", "why", "e1"))
    writing(lambda session: store.end(session, first, "done"))
    assert [one.result for one in writing(lambda session: store.actions(session, 5))] == [
        None,
        "done",
    ]
    assert [one.path for one in writing(store.unfinished)] == [b"r/c1"]
    writing(lambda session: store.ask(session, asked, frozenset({decision.token})))
    assert writing(consent).tokens == frozenset()
    assert not writing(lambda session: store.approve(session, "other", "me"))
    assert writing(lambda session: store.approve(session, "plan", "me"))
    assert writing(consent) == ({decision.token}, {"a v1", "b v7"})
    # A second approval of the same versions changes nothing of the first.
    assert writing(lambda session: store.approve(session, asked, "another"))
    versions = "SELECT name, version, author FROM policy_approval"
    assert query(settings, versions) == [("a", 1, "me")]
    writing(lambda session: store.ask(session, None, frozenset()))
    assert writing(store.approvals) == []
    known = clock.KnownTime(7, "boot", 5)
    trusted_time = clock.TrustedTime(7, 0, known)
    for _ in range(2):
        writing(lambda session: store.save_time(session, trusted_time))
    assert writing(store.known_time) == known
    # Actions that ended are forgotten after a while, by the time that is known to have passed.
    assert len(writing(lambda session: store.actions(session, 5))) == 2
    later_ns = clock.now_ns() + store.ACTIONS_KEPT_NS
    writing(lambda session: store.save_time(session, trusted_time._replace(now_ns=later_ns)))
    assert [one.result for one in writing(lambda session: store.actions(session, 5))] == [None]
    assert Planning(settings, catalogue_of(settings, database)).plan().plan.decisions == []
    database.close()


# Metrics.


def test_metrics_are_read_once_and_kept_when_evicted(world: World, tmp_path: Path) -> None:
    best = {"number": 1, "file": "eval/m.json", "key": "eval.loss", "best": "min"}
    query(world.settings, "DELETE FROM policy")
    texts = [b'{"eval": {"loss": 3}}', b'{"eval.loss": 1.5}', b'{"eval": 2}', b"{", None]
    texts += [b'{"eval.loss": %s}' % (400 * b"9")]
    world.write("run/step-6/.metadata", b"1")
    for step, text in enumerate(texts, 1):
        if text is not None:
            world.write(f"run/step-{step}/eval/m.json", text)
            world.drain(f"run/step-{step}/eval/m.json")
    put(world, {"name": "best", "keep_best": best})
    catch_up(world)

    def reasons(found: Any) -> dict[int, str]:
        return {decision.checkpoint.step: decision.why for decision in found.plan.decisions}

    found = reasons(planned(world))
    assert shown(world) == {b"run/step-1"}
    assert found[2].startswith("it is among the best 1 by eval.loss (1.5)")
    assert "m.json has no number eval.loss" in found[3]
    assert "m.json is no JSON" in found[4]
    assert "m.json is missing" in found[5]
    assert "m.json has no number eval.loss" in found[6]
    world.evict("run/step-1/eval/m.json")
    assert "is evicted, so it cannot be read now" in reasons(planned(world))[1]
    assert shown(world) == set()
    applier(world, Bin(world, tmp_path / "log")).run_once()
    assert query(world.settings, "SELECT count(*) FROM warm_request") == [(1,)]


# The time that it takes.

CHECKPOINTS = 10_000
PLAN_SECONDS = 2.0
"""Seconds of the processor: other tests run beside this one."""
_REST = ", ".join(column.name for column in InodeTable.__table__.columns if column.name != "ino")
INODES = f"""
INSERT INTO inode (ino, {_REST})
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < :n - 1)
SELECT n + 1000000, {_REST} FROM numbers, inode WHERE ino = 2
"""
ROWS = """
INSERT INTO checkpoint (ino, parent, path, run, step, rule, extent, state, reason, files, size,
  dirty_files, dirty_size, complete_ns, durable_ns, due_ns, evidence, grade)
SELECT ino, 2, CAST('run-' || (ino % 100) || '/step-' || ino AS blob),
  CAST('run-' || (ino % 100) AS blob), ino, 'dcp', 1, 'durable', NULL, 64, 64000000, 0, 0,
  :now - (1010000 - ino) * 600000000000, :now - (1010000 - ino) * 600000000000, NULL, 'e' || ino,
  'listed'
FROM inode WHERE ino >= 1000000
"""
RECORDS = """
INSERT INTO checkpoint_record
SELECT ino, run, rule, step, extent, 'listed', ino, complete_ns, durable_ns, files, size, evidence,
  '', NULL
FROM checkpoint WHERE ino >= 1000000
"""


def test_ten_thousand_checkpoints_are_planned_in_two_seconds(made: Settings) -> None:
    world = World(made, Namespace(made))
    catch_up(world)
    query(made, INODES, n=CHECKPOINTS)
    query(made, ROWS, now=clock.now_ns())
    query(made, RECORDS)
    put(world, {"name": "newest", "keep_newest": 10, "keep_every_steps": 1000})
    put(world, {"name": "aged", "run": "run-*", "delete_after_days": 30, "path": "*/step-*"})
    put(world, {"name": "thin", "thin": [{"older_than_days": 1, "one_per_hours": 240}]})
    started, processor = clock.monotonic_seconds(), time.process_time()
    plan = planned(world)
    seconds, processor = clock.monotonic_seconds() - started, time.process_time() - processor
    print(
        f"{CHECKPOINTS} checkpoints are planned in {seconds:.2f} s, {processor:.2f} s of them work"
    )
    assert len(plan.plan.decisions) == CHECKPOINTS
    assert plan.asked is not None
    assert len(plan.asked.deletions) > CHECKPOINTS // 2
    assert processor < PLAN_SECONDS
    world.namespace.close()


def test_a_plan_knows_links_and_the_share_of_bytes(world: World) -> None:
    assert shown(world) == {b"run/step-%d" % step for step in (1, 2, 3)}
    top = world.directory("run")
    world.namespace.symlink(ROOT_CRED, top, b"best", b"step-2", SetAttr())
    assert shown(world) == {b"run/step-1", b"run/step-3"}
    query(world.settings, "UPDATE checkpoint SET size = 3 * size WHERE step = 1")
    assert shown(world) == {b"run/step-3"}
    settings = world.settings
    world.settings = replace(
        settings, retention=replace(settings.retention, min_replacement_share=0.3)
    )
    assert shown(world) == {b"run/step-1", b"run/step-3"}
    # Without policies no directory is read.
    query(world.settings, "DELETE FROM policy")
    assert planned(world).situation.referred == {}
