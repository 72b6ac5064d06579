"""Jobs read receipts below ``/.spillway``, and wait for what is durable."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.catalogue import receipt_reconciler as keeper_module
from gateway.catalogue import receipts
from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.receipt_reconciler import ReceiptReconciler
from gateway.catalogue.receipts import ReceiptFacts, ReceiptLink, StatusFile
from gateway.common import clock
from gateway.common.types import GATEWAY_CRED, ROOT_CRED, SetAttr
from gateway.config import datadir
from gateway.db.compiled import Session
from gateway.db.models import CHECKPOINTS_INO, ROOT_INO, RUNS_INO
from tests.support import nfs4, trash
from tests.support.checkpoints.records import record
from tests.support.checkpoints.world import World, follow
from tests.support.gateway import Gateway, running
from tests.support.nfs4 import op, putfh
from tests.support.t9.random import change_some
from tests.support.t9.receiving import control_of, save, tree
from tests.support.volumes import query
from tests.support.waiting import until


def fact(
    ino: int,
    path: bytes,
    run: bytes,
    step: int | None,
    state: CheckpointState,
    completion: int | None = None,
) -> ReceiptFacts:
    """Return a fact.

    Args:
        completion: completion, or None for that of the inode.
    """
    place = ino if completion is None else completion
    return ReceiptFacts(ino, path, run, step, str(state), 5, None, completion=place)


def links(run: bytes, *facts: ReceiptFacts) -> dict[bytes, bytes]:
    found = receipts.receipts(run, facts)
    return {
        b"/".join(path): receipt.target
        for path, receipt in found.items()
        if isinstance(receipt, ReceiptLink)
    }


def test_the_latest_is_what_was_complete_last() -> None:
    durable = fact(1, b"a/b/step-9", b"a/b", 9, CheckpointState.DURABLE)
    newer = fact(2, b"a/b/step-10", b"a/b", 10, CheckpointState.DRAINING)
    final = fact(3, b"a/b", b"a/b", None, CheckpointState.DURABLE, 0)
    assert links(b"a/b", newer, durable, final) == {
        b"runs/a/b/latest-complete": b"../../../../a/b/step-10",
        b"runs/a/b/latest-durable": b"../../../../a/b/step-9",
    }
    # After a rollback a lower step is the newest, and so is one without a step.
    back = newer._replace(step=2, path=b"a/b/step-2", complete_ns=1)
    assert links(b"a/b", back, durable)[b"runs/a/b/latest-complete"].endswith(b"/step-2")
    last = final._replace(completion=9)
    assert set(links(b"a/b", newer, durable, last).values()) == {b"../../../../a/b"}
    # What has no place in the run yet is not newer than what has.
    fresh = newer._replace(completion=None, complete_ns=99)
    assert links(b"a/b", fresh, durable)[b"runs/a/b/latest-complete"].endswith(b"/step-9")
    assert links(b"", fact(4, b"final", b"", None, CheckpointState.COMPLETE)) == {
        b"runs/latest-complete": b"../../final"
    }
    assert links(b"../latest-durable/x.json", durable).keys() == {
        b"runs/%2E%2E/%6Catest-durable/x%2Ejson/" + name
        for name in (b"latest-complete", b"latest-durable")
    }
    same = fact(5, b"a/b/global_step9", b"a/b", 9, CheckpointState.COMPLETE)
    names = {b"/".join(path[1:]) for path in receipts.receipts(b"a/b", [same, durable, last])}
    assert {name for name in names if name.endswith(b"json")} == {
        b"a/b/9.json",
        b"a/b/9~5.json",
        b"a/b/~b.json",
    }


def test_a_document_says_that_a_checkpoint_is_archived() -> None:
    durable = fact(1, b"a/step-9", b"a", 9, CheckpointState.DURABLE)
    assert json.loads(receipts.document(durable))["state"] == "durable"
    archived = durable._replace(storage_class="GLACIER_IR")
    assert json.loads(receipts.document(archived))["state"] == "archived"
    links_of_both = [links(b"a", facts).keys() for facts in (durable, archived)]
    assert links_of_both[0] == links_of_both[1]


def test_receipts_follow_the_catalogue(world: World, reconciler: ReceiptReconciler) -> None:
    told: list[bool] = []
    follower, control = world.follower(), control_of(world)
    follower._news = lambda _looks: told.append(True)

    def run_once() -> set[str]:
        follow(follower)
        reconciler._pass(control)
        return set(tree(reconciler))

    save(world, "run/step-1")
    save(world, "run/step-2")
    documents = {"checkpoints/run/1.json", "checkpoints/run/2.json"}
    assert run_once() == {"runs/run/latest-complete", *documents}
    for name in ("0_0.distcp", ".metadata"):
        world.drain(f"run/step-1/{name}")
    assert run_once() == {"runs/run/latest-complete", "runs/run/latest-durable", *documents}
    assert tree(reconciler)["runs/run/latest-complete"].target == b"../../../run/step-2"
    document = json.loads(tree(reconciler)["checkpoints/run/1.json"].text)
    row = "SELECT complete_ns, durable_ns FROM checkpoint WHERE step = 1"
    ((complete_ns, durable_ns),) = query(world.settings, row)
    assert durable_ns >= complete_ns > 0
    assert document == {
        "path": "run/step-1",
        "state": "durable",
        "complete_ns": complete_ns,
        "durable_ns": durable_ns,
    }
    # A member is written again: neither link may name the checkpoint any more.
    world.open("run/step-2/.metadata")
    world.open("run/step-1/.metadata")
    assert run_once() == set()
    assert world.namespace.readdir(RUNS_INO, 0, 9) == []
    assert world.namespace.readdir(CHECKPOINTS_INO, 0, 9) == []
    world.close("run/step-1/.metadata", b"2")
    assert run_once() == {"runs/run/latest-complete", "checkpoints/run/1.json"}
    # A removal takes the row with it: the follower writes nothing, and says so all the same.
    told.clear()
    save(world, "other/step-1")
    follow(follower)
    assert told
    told.clear()
    for name in ("0_0.distcp", ".metadata", ""):
        world.remove(f"other/step-1/{name}".rstrip("/"))
    follow(follower)
    assert told
    assert run_once() == {"runs/run/latest-complete", "checkpoints/run/1.json"}
    # What is kept in the gateway's own directory is no checkpoint of a run.
    trash.reserve(world.settings, world.directory("run"))
    world.namespace.rename(GATEWAY_CRED, *world.split("run"), RUNS_INO, b"kept")
    follow(follower)
    assert world.row("run/step-1") is None
    assert world.row(".spillway/runs/kept/step-1") is None


def test_no_receipt_names_a_broken_checkpoint(world: World, reconciler: ReceiptReconciler) -> None:
    control = control_of(world)
    save(world, "run/step-1")
    save(world, "run/step-2")
    follow(world.follower())
    record(world.settings)
    reconciler._pass(control)
    assert tree(reconciler)["runs/run/latest-complete"].target == b"../../../run/step-2"
    query(world.settings, "UPDATE checkpoint SET state = 'broken' WHERE step = 2")
    reconciler.changed({b"run"})
    reconciler._pass(control)
    assert tree(reconciler)["runs/run/latest-complete"].target == b"../../../run/step-1"
    assert "checkpoints/run/2.json" not in tree(reconciler)
    query(world.settings, "UPDATE checkpoint SET state = 'broken'")
    reconciler.changed({b"run"})
    reconciler._pass(control)
    assert set(tree(reconciler)) == set()


@pytest.mark.parametrize("seed", range(2))
def test_reading_the_runs_that_changed_gives_what_reading_all_gives(
    seed: int, world: World, reconciler: ReceiptReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "RUNS_AT_ONCE", 3)
    partly: list[frozenset[bytes]] = []
    differing = reconciler._differing

    def seen(session: Session, changed: frozenset[bytes]) -> frozenset[bytes]:
        partly.append(differing(session, changed))
        return partly[-1]

    monkeypatch.setattr(reconciler, "_differing", seen)
    draw, files, control = random.Random(seed), list[str](), control_of(world)
    follower = world.follower()
    follower._news = lambda looks: reconciler.changed({look.now.run for look in looks if look.now})
    singles = 0
    for _ in range(20):
        change_some(world, draw, files)
        if draw.random() < 0.5:
            # Checkpoints of one file go with it, and no row says of which run they were.
            for run in draw.sample(["u", "v", "w"], 2):
                path = f"{run}/step=1.ckpt"
                if world.row(path) is None:
                    world.write(path, b"1")
                else:
                    world.remove(path)
                    singles += 1
        follow(follower)
        reconciler._pass(control)
        assert reconciler._facts == reconciler._read(frozenset())
    assert singles > 2
    assert sum(0 < len(runs) <= 3 for runs in partly) > 3


def test_what_a_crash_left_converges(world: World, reconciler: ReceiptReconciler) -> None:
    namespace, control = world.namespace, control_of(world)
    save(world, "run/step-1")
    follow(world.follower())
    reconciler._pass(control)
    expected = tree(reconciler)
    run = namespace.lookup(RUNS_INO, b"run").ino
    namespace.symlink(GATEWAY_CRED, run, b".new~latest-complete", b"x", SetAttr())
    namespace.symlink(GATEWAY_CRED, run, b"latest-durable", b"x", SetAttr())
    gone = namespace.mkdir(GATEWAY_CRED, RUNS_INO, b"gone", SetAttr()).ino
    namespace.symlink(GATEWAY_CRED, gone, b"latest-complete", b"x", SetAttr())
    documents = namespace.lookup(CHECKPOINTS_INO, b"run").ino
    (namespace.files.incoming / "made").write_bytes(b"{")
    namespace.install(GATEWAY_CRED, documents, b"1.json", b"made", SetAttr())
    (namespace.files.incoming / "made").write_bytes(b"{}")
    namespace.install(GATEWAY_CRED, documents, b"7.json", b"made", SetAttr())
    after = ReceiptReconciler(world.settings, threading.Event())
    after._pass(control)
    assert tree(after) == expected
    assert [dirent.name for dirent in namespace.readdir(RUNS_INO, 0, 9)] == [b"run"]
    # A pass without changes asks the server for nothing.
    after._pass(None)  # type: ignore[arg-type]
    after._database.close()


def test_an_idle_gateway_writes_no_status(world: World) -> None:
    made = StatusFile(world.settings, threading.Event())
    world.write("f", b"12345")
    facts = made._facts()
    assert (facts["files_at_risk"], facts["bytes_at_risk"], facts["drain"]) == (1, 5, "stopped")
    assert facts["oldest_unsaved"] is not None
    # What is in the trash is not sent, unless it has another name.
    for name in ("one", "two", "open"):
        world.write(f"gone/deep/{name}", b"123")
    world.open("gone/deep/open")
    linked = world.attr("gone/deep/two").ino
    world.namespace.link(ROOT_CRED, linked, ROOT_INO, b"linked")
    trash.discard(world.settings, world.namespace, ROOT_INO, b"gone", b"t1")
    now = made._facts()
    assert (now["files_at_risk"], now["bytes_at_risk"]) == (2, 8)
    assert now["oldest_unsaved"] == facts["oldest_unsaved"]
    world.namespace.remove(ROOT_CRED, ROOT_INO, b"linked")
    made._written = {**facts, "time": "", "seconds_at_risk": 7, "names_as_of": "then"}
    assert made.run_once() == receipts.SECONDS
    # There is no server to write to: the facts would not be known any more.
    assert made._written is not None
    assert 0 < made.run_once() <= receipts.SECONDS
    made._database.close()


def test_the_status_says_how_old_the_names_in_the_bucket_are(world: World) -> None:
    made = StatusFile(world.settings, threading.Event())
    assert made._names(clock.now_ns()) == {"names_as_of": None, "names_late": True}
    copied_ns = 1_700_000_000 * clock.NS
    world.settings.run_dir.mkdir(parents=True, exist_ok=True)
    report = json.dumps({"names": {"copied_ns": copied_ns}})
    (world.settings.run_dir / datadir.RECOVERY).write_text(report)
    for seconds, is_late in ((0, False), (300, False), (301, True), (-301, True)):
        names = made._names(copied_ns + seconds * clock.NS)
        assert names == {"names_as_of": "2023-11-14T22:13:20.000+00:00", "names_late": is_late}
    recovery = replace(world.settings.recovery, names_in_bucket=False)
    off = StatusFile(replace(world.settings, recovery=recovery), threading.Event())
    assert off._names(copied_ns + 301 * clock.NS)["names_late"] is False
    made._database.close()
    off._database.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running(tmp_path_factory.mktemp("receipts")) as made:
        yield made


def readlink(client: nfs4.Client, *names: str) -> bytes | None:
    try:
        handle = client.handle("checkpoints", ".spillway", *names)
        reply = client.call(putfh(handle), op(nfs4.READLINK))
    except nfs4.Status:
        return None
    reply.unpack("IIII")
    return reply.opaque()


def test_a_job_reads_receipts_through_nfs(gateway: Gateway) -> None:
    with nfs4.Client(gateway.port) as client:
        at = client.handle("checkpoints")
        for name in ("run", "step-1"):
            client.mkdir(at, name, 0o755)
            at = client.handle("checkpoints", *("run", "step-1")[: 1 + (name == "step-1")])
        for name in ("0_0.distcp", ".metadata"):
            with client.opened(at, name) as file:
                file.write(b"12345")
        until(
            lambda: readlink(client, "runs", "run", "latest-durable") is not None,
            "a link to a durable checkpoint",
            timeout_seconds=60,
        )
        until(
            lambda: readlink(client, "runs", "run", "latest-complete") == b"../../../run/step-1",
            "the other link",
        )
        done = gateway.spillway(
            "wait", "--durable", "--json", "/checkpoints/.spillway/runs/run/latest-durable"
        )
        assert json.loads(done.stdout)["durable"] is True

        def shown(*names: str) -> dict[str, Any]:
            directory = client.handle("checkpoints", ".spillway", *names[:-1])
            if names[-1] not in client.names(directory):
                return {}
            # The reconciler replaces the file at any time. A handle of the old one is stale then,
            # unless the reader has it open.
            with client.opened(directory, names[-1], reads=True) as file:
                document: dict[str, Any] = json.loads(file.read())
            return document

        until(
            lambda: shown("checkpoints", "run", "1.json").get("state") == "durable",
            "the document",
        )
        top = client.handle("checkpoints", ".spillway")
        until(lambda: "status.json" in client.names(top), "the status")
        until(
            lambda: shown("status.json")["files_at_risk"] == 0,
            "an empty backlog",
            timeout_seconds=60,
        )
        held = client.handle("checkpoints", "run")
        with client.opened(held, "x.tmp") as file:
            file.write(b"1")
        late = gateway.spillway("wait", "--durable", "run", "--timeout", "1", check=False)
        assert late.returncode == 1
        assert "/checkpoints/run/x.tmp: held: by a pattern" in late.stderr
        until(lambda: shown("status.json")["files_at_risk"] == 1, "the file", timeout_seconds=60)
        gateway.spillway("rm", "-r", "--force", "run")
        until(lambda: client.names(client.handle("checkpoints", ".spillway", "runs")) == [], "gone")
