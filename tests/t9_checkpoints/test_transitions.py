"""Policies move the objects of old checkpoints to another storage class, in a real store."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from gateway.catalogue.manifest_writer import Manifests
from gateway.catalogue.store import catalogue_of
from gateway.catalogue.tracker import Follower
from gateway.common import clock, failpoints
from gateway.config import settings as settings_module
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.retention.planning import Planning
from gateway.lifecycle.retention.transitions import Transitions
from gateway.lifecycle.trash.trash import Trash
from tests.support import drain as drains
from tests.support.checkpoints.keeping import Present
from tests.support.checkpoints.records import record
from tests.support.checkpoints.world import World, follow
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.namespace import Namespace
from tests.support.s3proxy import Act, S3Proxy
from tests.support.s3server import MotoServer, Server, die_with_parent
from tests.support.volumes import query
from tests.support.waiting import until

COLD = {"name": "cold", "run": "run", "storage_class": "STANDARD_IA", "transition_after_days": 0}
CLASS = "STANDARD_IA"
DATA = {"__0_0.distcp": os.urandom(5 * MIB + 1), "__1_0.distcp": b"second", ".metadata": b"all"}
numbers = count(1)
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["gateway.drain.worker"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with MotoServer(tmp_path_factory.mktemp("s3")) as made:
        yield made


class Aged(Site):
    """A gateway whose catalogue and retention run in this process."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.database = Database(self.settings.database_url)
        self._follower = Follower(self.settings, self.database, threading.Event())

    def close(self) -> None:
        self._follower = None  # type: ignore[assignment]
        self.database.close()
        super().close()

    def save(self, step: int = 1) -> str:
        """Save a checkpoint, drain it, and return its path."""
        path = f"run/step-{step}"
        for name, data in DATA.items():
            self.write(f"{path}/{name}", data)
        self.drain()
        return path

    def put(self, *tables: dict[str, Any]) -> None:
        with self.database.writing() as session:
            for table in tables:
                store.put(session, policy.of(table), "a person")

    def run_once(self) -> list[tuple[str, str, str | None]]:
        """Follow, and have a pass of retention. Returns what was done so far, and how it ended."""
        follow(self._follower)
        record(self.settings)
        self.namespace.close()
        trash = Trash(self.settings, self.database)
        Applier(self.settings, self.database, threading.Event(), trash, Present()).run_once()
        self.namespace = Namespace(self.settings)
        rows = query(self.settings, "SELECT what, author, path, result FROM action ORDER BY id")
        return [(f"{what} by {by}", bytes(path).decode(), res) for what, by, path, res in rows]

    def moved(self) -> dict[str, str]:
        """Return the storage class of each object that is not in the usual one."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {
            entry["Key"].removeprefix(f"{PREFIX}/"): entry["StorageClass"]
            for page in pages
            for entry in page.get("Contents", [])
            if entry["StorageClass"] != "STANDARD"
        }

    def orders(self) -> list[tuple[Any, ...]]:
        return query(self.settings, "SELECT storage_class, key, until_ns FROM transition")


@pytest.fixture
def site(server: Server, tmp_path: Any) -> Iterator[Aged]:
    with S3Proxy(server.port) as proxy:
        made = Aged(tmp_path, server, f"transitions-{next(numbers)}", proxy)
        yield made
        made.close()


def test_the_objects_of_a_checkpoint_move_once(site: Aged) -> None:
    path = site.save()
    etags, described = site.etags(), site.metadata(f"{path}/__0_0.distcp")
    assert "-" in etags[f"{path}/__0_0.distcp"]
    site.put(COLD)
    assert site.run_once() == [("transition by cold v1", path, None)]
    assert {row[0] for row in site.orders()} == {CLASS}
    site.proxy.forget()
    site.drain()
    copies = site.proxy.operations("COPY") + site.proxy.operations("PART COPY")
    assert {request.headers["x-amz-copy-source-if-match"].strip('"') for request in copies} == set(
        etags.values()
    )
    # Nothing but the class is another: the ETag is of the same parts.
    whole = dict.fromkeys((f"{path}/{name}" for name in DATA), CLASS)
    assert (site.moved(), site.etags(), site.orders()) == (whole, etags, [])
    assert site.metadata(f"{path}/__0_0.distcp") == described
    assert site.run_once() == [("transition by cold v1", path, "3 files are in STANDARD_IA")]
    assert query(site.settings, "SELECT state, storage_class FROM checkpoint") == [
        ("durable", CLASS)
    ]
    Manifests(site.settings, site.database, threading.Event()).run_once()
    assert site.objects()[".spillway/checkpoints/run/1.json"]
    # It is not done again. A rename keeps the class, and a new version has the usual one.
    assert len(site.run_once()) == 1
    site.rename(path, "run/step-2")
    site.write("run/step-2/.metadata", b"new")
    site.drain()
    assert site.moved() == {f"run/step-2/{name}": CLASS for name in list(DATA)[:2]}
    assert site.is_clean()


def overwrite(site: Aged) -> None:
    site.write("run/step-1/.metadata", b"ALL")


def rename(site: Aged) -> None:
    site.rename("run/step-1", "run/step-9")
    site.run_once()


def remove(site: Aged) -> None:
    for name in DATA:
        site.unlink(f"run/step-1/{name}")


def pin(site: Aged) -> None:
    ino = site.attr("run/step-1").ino
    query(site.settings, f"INSERT INTO pin VALUES ({ino}, '', 'a person', 1)")
    site.run_once()


def disable(site: Aged) -> None:
    with site.database.writing() as session:
        store.switch(session, "cold", False, "a person")
    site.run_once()


@pytest.mark.parametrize("happens", [overwrite, rename, remove, pin, disable])
def test_what_happens_after_the_order_stops_it(site: Aged, happens: Callable[[Aged], None]) -> None:
    path = site.save()
    site.put(COLD)
    site.run_once()
    happens(site)
    site.drain()
    untouched = {f"{path}/{name}": CLASS for name in list(DATA)[:2]}
    assert site.moved() == (untouched if happens is overwrite else {})
    ((_what, _path, result), *_more) = site.run_once()
    assert result is not None
    wanted = "not at its path" if happens in (rename, remove) else "not all of its objects"
    assert wanted in result
    assert site.orders() == [] or happens in (overwrite, rename)


def work(settings: Settings, failpoint: str) -> None:
    """Drain until a failpoint kills this process."""
    die_with_parent()
    failpoints.arm(failpoint)
    drain = drains.Drain(settings)
    for _ in range(10):
        drain.cycle()
    drain.close()


FAILPOINTS = [
    "drain.copy_object.after.1",
    "drain.upload_part_copy.before.2",
    "drain.complete_multipart_upload.after.1",
    "drain.commit.after.2",
    "drain.commit.before.3",
]


def test_a_kill_anywhere_is_followed_by_the_rest(
    site: Aged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 0)
    data: dict[str, bytes] = {}
    site.put(COLD)
    for number, failpoint in enumerate(FAILPOINTS, 1):
        path = site.save(number)
        data |= {f"{path}/{name}": text for name, text in DATA.items()}
        site.run_once()
        process = context.Process(target=work, args=(site.settings, failpoint))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, failpoint

        def is_done(expected: frozenset[str] = frozenset(data)) -> bool:
            site.drain()
            return site.orders() == [] and site.moved().keys() == expected

        until(is_done, failpoint)
    assert site.run_once()[-1][2] == "3 files are in STANDARD_IA"
    assert site.objects() == data
    assert site.multiparts() == 0
    assert query(site.settings, "SELECT 1 FROM indeterminate_write") == []


def test_a_copy_with_another_etag_is_found_by_what_it_says_of_itself(site: Aged) -> None:
    """A store that encrypts gives such an ETag, and another program's object has one."""
    path = site.save()
    site.put(COLD)
    site.run_once()
    site.drain()
    ino = site.attr(f"{path}/.metadata").ino
    key = f"{PREFIX}/{path}/.metadata"
    other = site.attr(f"{path}/__1_0.distcp").ino
    ((stored_ns,),) = query(site.settings, "SELECT stored_ns FROM object WHERE ino = :i", i=ino)
    query(site.settings, "UPDATE object SET etag = 'old' WHERE ino IN (:i, :o)", i=ino, o=other)
    for one, begun in ((ino, key), (other, None)):
        query(
            site.settings,
            "INSERT INTO transition VALUES (:i, 1, 'STANDARD_IA', 7, :key, NULL)",
            i=one,
            key=begun,
        )
    # A write to its key is indeterminate meanwhile, as after a lost lease: that look leaves it to
    # the copy.
    query(site.settings, "INSERT INTO indeterminate_write VALUES (:key, :i, 1, 0)", key=key, i=ino)
    site.proxy.forget()
    drain = drains.Drain(site.settings)
    drain.cycle()
    drain.close()
    assert site.proxy.operations("PUT") == []
    etags = dict(query(site.settings, "SELECT key, etag FROM object"))
    assert etags[key] == site.etags()[f"{path}/.metadata"]
    ((now_ns,),) = query(site.settings, "SELECT stored_ns FROM object WHERE ino = :i", i=ino)
    # Its manifest is written again.
    assert now_ns > stored_ns
    assert query(site.settings, "SELECT 1 FROM inode WHERE kind = 1 AND drained_version = 0") == []
    ((row,),) = query(site.settings, "SELECT error FROM retry WHERE work = 'transitions'")
    assert "the bucket does not have the object that was recorded" in row


def test_a_copy_that_arrives_late_does_not_stay(site: Aged) -> None:
    path = site.save()
    site.put(COLD)
    site.run_once()
    site.values["bucket"]["read_timeout_seconds"] = 1.0
    site.configure()
    end = site.proxy.inject(lambda request: request.operation == "COMPLETE", Act.HOLD)
    with site.draining():
        end.wait()
        until(lambda: len(site.proxy.operations("COMPLETE")) > 1, "it is given up")
        site.write(f"{path}/__0_0.distcp", b"new")
        until(
            lambda: (
                not site.rows(
                    "SELECT 1 FROM inode WHERE content_version > drained_version AND kind = 1"
                )
            ),
            "the new version is drained",
        )
        assert site.objects()[f"{path}/__0_0.distcp"] == b"new"
        # The store has carried it out without its condition: moto does not heed it.
        end.arrive()
        until(
            lambda: not site.rows("SELECT 1 FROM indeterminate_write"),
            "nothing is indeterminate any more",
        )
    assert site.objects()[f"{path}/__0_0.distcp"] == b"new"


def test_a_new_version_is_looked_at_while_a_copy_may_arrive(site: Aged) -> None:
    ino = site.write("f", b"old")
    site.drain()
    late_ns = clock.now_ns() + int(site.settings.bucket.late_seconds * clock.NS)
    query(
        site.settings,
        "INSERT INTO transition VALUES (:i, 1, 'STANDARD_IA', 7, :key, :late)",
        i=ino,
        key=f"{PREFIX}/f",
        late=late_ns,
    )
    site.write("f", b"new")
    site.drain()
    assert query(site.settings, "SELECT key, ino FROM indeterminate_write") == [
        (f"{PREFIX}/f", ino)
    ]
    # The copy is of no interest any more when it cannot arrive.
    query(site.settings, "UPDATE transition SET until_ns = 1")
    site.drain()
    assert site.orders() == []


def test_a_store_without_storage_classes_says_so(site: Aged, tmp_path: Any) -> None:
    path = site.save()
    site.put(COLD)
    site.run_once()

    class Forgetful(drains.Drain):
        """Its store takes the copy, and tells no class."""

    drain = Forgetful(site.settings)
    honest = drain._context.store.head
    drain._context.store.head = (  # type: ignore[method-assign]
        lambda key, with_sum=False: (
            None if (head := honest(key, with_sum)) is None else head._replace(storage_class="")
        )
    )
    drain.cycle()
    assert "keeps no storage class STANDARD_IA" in str(drain.health.shown()) + str(
        drain.retries.shown(5)
    )
    drain.close()
    assert site.run_once()[-1] == ("transition by cold v1", path, None)


def test_orders_on_both_engines(world: World) -> None:
    """What is ordered, and what is taken back."""
    database = Database(world.settings.database_url)
    for step in (1, 2):
        for name in (".metadata", "__0_0.distcp", "deep/more"):
            world.write(f"run/step-{step}/{name}", b"12345")
            world.drain(f"run/step-{step}/{name}")
    world.write("run/step-2/__0_0.distcp", b"not durable")
    with database.writing() as session:
        store.put(session, policy.of(COLD), "a person")
    follow(world.follower())
    catalogue = catalogue_of(world.settings, database)
    orders = Transitions(database, catalogue, threading.Event())
    planning = Planning(world.settings, catalogue)

    def run_once() -> tuple[list[Any], list[Any]]:
        orders.run_once(planning.plan())
        rows = "SELECT ino, content_version, storage_class, key FROM transition ORDER BY ino"
        ended = query(world.settings, "SELECT path, reason, result FROM action")
        return query(world.settings, rows), ended

    inos = [world.attr(f"run/step-1/{name}").ino for name in (".metadata", "__0_0.distcp")]
    inos.append(world.attr("run/step-1/deep/more").ino)
    reason = "to STANDARD_IA, because it is older than 0 days"
    rows = [(ino, 1, CLASS, None) for ino in sorted(inos)]
    assert run_once() == (rows, [(b"run/step-1", reason, None)])
    assert run_once() == (rows, [(b"run/step-1", reason, None)])
    # Of one a copy was requested. The others are taken back.
    query(world.settings, f"UPDATE transition SET key = 'k' WHERE ino = {inos[1]}")
    pinned = world.attr("run/step-1").ino
    query(world.settings, f"INSERT INTO pin VALUES ({pinned}, '', 'a person', 1)")
    assert run_once()[0] == [(inos[1], 1, "", "k")]
    query(world.settings, f"UPDATE transition SET until_ns = 5 WHERE ino = {inos[1]}")
    ((_path, _reason, result),) = run_once()[1]
    assert "not all of its objects were moved" in result
    database.close()
