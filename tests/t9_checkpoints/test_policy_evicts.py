"""A policy frees the local disk of durable checkpoints, through the real drain and a real store."""

from __future__ import annotations

import threading

import pytest

from gateway.catalogue.tracker import Follower
from gateway.common import clock
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.retention.policy import HOUR_NS
from gateway.lifecycle.trash.trash import Trash
from tests.support.checkpoints.keeping import Present
from tests.support.checkpoints.world import follow
from tests.support.drainsite import Site
from tests.support.namespace import Namespace
from tests.support.volumes import query

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")


def run_once(site: Site) -> list[tuple[str, str, str]]:
    """Have a pass of a new process, while no server runs. Returns the actions so far."""
    database = Database(site.settings.database_url)
    site.namespace.close()
    trash = Trash(site.settings, database)
    Applier(site.settings, database, threading.Event(), trash, Present()).run_once()
    site.namespace = Namespace(site.settings)
    rows = query(site.settings, "SELECT what, author, path, result FROM action ORDER BY id")
    return [(f"{what} by {by}", bytes(path).decode(), res) for what, by, path, res in rows]


def save_long_ago(site: Site) -> None:
    """Save two steps that a policy evicts by now. It has had a pass, without an action."""
    database = Database(site.settings.database_url)
    for step in (1, 2):
        for name in ("__0_0.distcp", ".metadata", "b"):
            site.write(f"run/step-{step}/{name}", b"12345" * 100)
    site.write("run/step-3/__0_0.distcp", b"not complete")
    site.drain()
    follow(Follower(site.settings, database, threading.Event()))
    table = {"name": "disk", "run": "run", "evict_after_hours": 6, "path": "run/step-*"}
    with database.reader() as connection, database.transaction(connection):
        session = Session(connection, database.dialect)
        store.put(session, policy.of(table), "a person")

    assert run_once(site) == []
    # The save is seven hours ago.
    ago_ns = 7 * HOUR_NS
    query(
        site.settings,
        "UPDATE checkpoint SET complete_ns = complete_ns - :ago, durable_ns = durable_ns - :ago",
        ago=ago_ns,
    )
    query(
        site.settings, "UPDATE checkpoint_record SET complete_ns = complete_ns - :ago", ago=ago_ns
    )
    query(site.settings, "UPDATE object SET stored_ns = stored_ns - :ago", ago=ago_ns)


def test_what_was_not_used_leaves_the_disk(site: Site) -> None:
    save_long_ago(site)
    # A file of the second step was read since.
    site.namespace.note_reads([(site.attr("run/step-2/b").ino, clock.now_ns())])
    assert run_once(site) == [
        ("evict by disk v1", "run/step-1", "3 files evicted"),
        ("evict by disk v1", "run/step-2", "2 files evicted"),
    ]
    rows = "SELECT ino FROM inode WHERE kind = 1 AND residency = 2"
    kept = {site.attr(f"run/{path}").ino for path in ("step-2/b", "step-3/__0_0.distcp")}
    assert {ino for (ino,) in query(site.settings, rows)} == kept
    # What has left is not recorded again.
    assert len(run_once(site)) == 2


def test_a_bucket_that_cannot_be_asked_is_the_result_of_an_action(site: Site) -> None:
    save_long_ago(site)
    site.settings.credentials_file.unlink()
    [(what, path, result)] = run_once(site)
    assert (what, path) == ("evict by disk v1", "run/step-1")
    assert result.startswith("failed: no credentials for bucket checkpoints: write ")
