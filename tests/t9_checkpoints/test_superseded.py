"""What a policy deletes as soon as a newer checkpoint is in the bucket is not uploaded."""

from __future__ import annotations

import threading
from typing import Any

from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.tracker import Follower
from gateway.common.errors import TrashRefused
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.lifecycle.retention import planner, policy, store
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.retention.approval import Consent
from gateway.lifecycle.retention.facts import PlanCheckpoint, PlanInputs
from gateway.lifecycle.retention.keep_rules import soon, superseded
from tests.support.checkpoints.keeping import Present
from tests.support.checkpoints.records import record
from tests.support.checkpoints.world import follow
from tests.support.drainsite import Site
from tests.support.t9.planner import NOW_NS, Said, checkpoint, metric, policies
from tests.support.waiting import until

SAVED = (
    checkpoint(1, 100),
    checkpoint(2, 200, CheckpointState.COMPLETE),
    checkpoint(3, 300, CheckpointState.COMPLETE),
    checkpoint(4, 400, CheckpointState.COMPLETE),
    checkpoint(5, 500, CheckpointState.WRITING),
)
NEWEST = {"keep_newest": 1}
APPROVED = Consent(versions=frozenset({"p0 v1", "p1 v2"}))


def found(
    *tables: dict[str, Any],
    saved: tuple[PlanCheckpoint, ...] = SAVED,
    said: Said = Said(),  # noqa: B008
    is_made: bool = True,
    share: float = 1.0,
) -> set[int]:
    situation = PlanInputs(saved, policies(*tables), said, NOW_NS, is_made)
    return set(superseded(situation, planner.plan(soon(situation), metric), APPROVED, share))


def test_what_would_be_deleted_at_once_is_superseded() -> None:
    assert found(NEWEST) == {2, 3}
    # Every other step stays, so it is uploaded.
    assert found({**NEWEST, "keep_every_steps": 200}) == {3}
    # An older one is wanted for a while beside the newer one.
    assert found({**NEWEST, "wait_hours": 1}) == set()
    assert found(NEWEST, {"wait_hours": 1, "keep_newest": 1}) == set()
    assert found() == found(NEWEST, is_made=False) == set()
    assert found(NEWEST, said=Said(frozenset({2}), frozenset({b"r/c3"}))) == set()
    # What was begun is uploaded to its end, so that something becomes durable.
    begun = tuple(
        plan_checkpoint._replace(state=str(CheckpointState.DRAINING))
        if plan_checkpoint.ino in (2, 3)
        else plan_checkpoint
        for plan_checkpoint in SAVED
    )
    assert found(NEWEST, saved=begun) == {2}
    # The newest complete one is uploaded, whatever policies say.
    assert found({"delete_after_days": 1}) == {2, 3}
    assert found(NEWEST, saved=SAVED[3:]) == set()
    # So many deletions are asked about: until then all are uploaded.
    many = tuple(checkpoint(ino, ino, CheckpointState.COMPLETE) for ino in range(1, 20))
    assert found(NEWEST, saved=many) == set(range(1, 19))
    assert found(NEWEST, saved=many, share=0.5) == set()
    # A few are held, also where more stay only if a person agrees.
    assert found(NEWEST, saved=many[:5], share=0.5) == {1, 2, 3, 4}
    # None is while no person has agreed to the policy.
    situation = PlanInputs(SAVED, policies(NEWEST), Said(), NOW_NS, True)
    then = planner.plan(soon(situation), metric)
    assert superseded(situation, then, Consent(), 1.0) == frozenset()


class Refusing:
    """A trash that takes nothing, so that what is superseded stays."""

    def put(self, ino: int, path: bytes, evidence: str, by: str, reason: str) -> str:
        raise TrashRefused(f"{path!r} stays")


def test_only_the_newest_is_uploaded_until_the_policy_changes(site: Site) -> None:
    database = Database(site.settings.database_url)
    follower = Follower(site.settings, database, threading.Event())

    def plan(*tables: dict[str, Any]) -> None:
        """Store policies, and do one pass of the task."""
        with database.reader() as connection, database.transaction(connection):
            session = Session(connection, database.dialect)
            for table in tables:
                said = {"name": "p", "run": "*", "approve": "automatic", **table}
                store.put(session, policy.of(said), "a person")
        follow(follower)
        record(site.settings)
        own = Database(site.settings.database_url)
        Applier(site.settings, own, threading.Event(), Refusing(), Present()).run_once()

    for step in (100, 200, 300):
        for name in ("__0_0.distcp", ".metadata"):
            site.write(f"job/step-{step}/{name}", b"%d" % step)
    plan({**NEWEST, "wait_hours": 0})
    site.drain()
    assert set(site.objects()) == {"job/step-300/__0_0.distcp", "job/step-300/.metadata"}
    assert {request.key for request in site.proxy.operations("PUT")} == {
        f"team/run/{key}" for key in site.objects()
    }
    # One more pass, after which the newer one is durable, holds the others still.
    plan()
    site.drain()
    assert len(site.objects()) == 2
    # A policy that keeps them gives them back to the drain, which is told by the journal.
    with site.draining():
        until(lambda: site.report().get("state") == "running", "the drain has read everything")
        plan({"keep_newest": 3})
        until(lambda: len(site.objects()) == 6, "all are in the bucket")
    assert site.rows("SELECT * FROM superseded") == []
    database.close()
