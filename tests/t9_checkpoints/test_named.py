"""A link of ``/.spillway/runs`` is gone before the checkpoint that it names changes."""

from __future__ import annotations

import random
import threading
from contextlib import closing, suppress

import pytest

from gateway.catalogue.receipt_reconciler import ReceiptReconciler
from gateway.catalogue.receipts import ReceiptLink
from gateway.common.errors import AccessDenied, NamespaceError, NotFound
from gateway.common.types import GATEWAY_CRED, ROOT_CRED, Cred, SetAttr
from gateway.db.engine import Database
from gateway.db.latest_links import HeldByLatestLink, LinkGuards
from gateway.db.latest_links import LatestLink as Name
from gateway.db.models import ROOT_INO, RUNS_INO
from gateway.db.writer import Operation
from gateway.namespace import latest_links, names, rename
from tests.support.checkpoints.world import World, follow
from tests.support.namespace import Namespace
from tests.support.t9.random import DATA, change
from tests.support.t9.receiving import control_of, save, tree

COMPLETE, DURABLE = b"latest-complete", b"latest-durable"


def run_once(world: World, reconciler: ReceiptReconciler) -> None:
    follow(world.follower())
    reconciler._pass(control_of(world))


def links(reconciler: ReceiptReconciler) -> dict[str, bytes]:
    """Return the path below the root that each link leads to."""
    found = tree(reconciler).items()
    return {
        path: one.target.replace(b"../", b"") for path, one in found if isinstance(one, ReceiptLink)
    }


def changes(world: World) -> dict[str, object]:
    """Return what changes the checkpoint ``run/step-1``, by name."""

    def rename(path: str, to: str) -> object:
        return lambda: world.rename(path, to)

    def link() -> None:
        ino = world.attr("run/step-1/.metadata").ino
        world.namespace.link(ROOT_CRED, ino, world.directory("run/step-1"), b"linked")

    def symlink() -> None:
        parent = world.directory("run/step-1/deep")
        world.namespace.symlink(ROOT_CRED, parent, b"soft", b"x", SetAttr())

    def emptied() -> None:
        world.namespace.open_emptied(world.attr("run/step-1/.metadata").ino)

    return {
        "open": lambda: world.open("run/step-1/.metadata"),
        "open by another name": lambda: world.open("elsewhere"),
        "open and empty": emptied,
        "open below": lambda: world.open("run/step-1/deep/shard"),
        "create": lambda: world.open("run/step-1/new"),
        "create below": lambda: world.open("run/step-1/deep/new"),
        "mkdir": lambda: world.directory("run/step-1/more"),
        "link": link,
        "symlink": symlink,
        "remove": lambda: world.remove("run/step-1/.metadata"),
        "rename away": rename("run/step-1/.metadata", "taken"),
        "rename into": rename("other", "run/step-1/other"),
        "replace": rename("other", "run/step-1/.metadata"),
        "rename inside": rename("run/step-1/.metadata", "run/step-1/x"),
        "rename the checkpoint": rename("run/step-1", "run/step-1.old"),
        "rename the run": rename("run", "run.old"),
    }


@pytest.mark.parametrize("what", changes(None))  # type: ignore[arg-type]
def test_each_change_of_a_named_checkpoint_removes_the_link_first(
    what: str, world: World, reconciler: ReceiptReconciler
) -> None:
    save(world, "run/step-1")
    world.write("run/step-1/deep/shard", b"deep")
    world.write("other", b"1")
    ino = world.attr("run/step-1/.metadata").ino
    world.namespace.link(ROOT_CRED, ino, ROOT_INO, b"elsewhere")
    run_once(world, reconciler)
    assert links(reconciler) == {"runs/run/latest-complete": b"run/step-1"}
    # What changes nothing of it leaves the link.
    world.write("run/step-2/0_0.distcp", b"shard")
    world.write("run/beside", b"1")
    world.write("other", b"2")
    world.chmod("run/step-1/.metadata", 0o600)
    assert links(reconciler) == {"runs/run/latest-complete": b"run/step-1"}
    done = changes(world)[what]
    assert callable(done)
    done()
    assert links(reconciler) == {}


def test_a_start_guards_the_links_that_are_there(
    world: World, reconciler: ReceiptReconciler
) -> None:
    save(world, "run/step-1")
    run_once(world, reconciler)
    world.namespace.close()
    with closing(Namespace(world.settings)) as again:
        world.namespace = again
        assert links(reconciler)
        world.open("run/step-1/0_0.distcp")
        assert links(reconciler) == {}


def test_a_change_that_is_refused_leaves_the_link(
    world: World, reconciler: ReceiptReconciler
) -> None:
    save(world, "run/step-1")
    run_once(world, reconciler)
    client = Cred(1000, 1000)
    at, name = world.split("run/step-1/.metadata")
    with pytest.raises(AccessDenied):
        world.namespace.create(client, at, b"new", SetAttr())
    with pytest.raises(AccessDenied):
        world.namespace.remove(client, at, name)
    with pytest.raises(AccessDenied):
        world.namespace.rename(client, at, name, at, b"x")
    with pytest.raises(NotFound):
        world.namespace.remove(ROOT_CRED, at, b"nothing")
    assert links(reconciler)


def test_a_single_file_is_guarded(world: World, reconciler: ReceiptReconciler) -> None:
    rule = {"name": "one", "path": "{run}/model-{step}.bin", "files": 1}
    world = world.with_rules(rule)
    world.write("run/model-1.bin", b"1")
    world.write("run/model-2.bin", b"1")
    reconciler = ReceiptReconciler(world.settings, threading.Event())
    run_once(world, reconciler)
    assert links(reconciler) == {"runs/run/latest-complete": b"run/model-2.bin"}
    world.write("run/model-1.bin", b"2")
    assert links(reconciler) == {"runs/run/latest-complete": b"run/model-2.bin"}
    # The new file may be partial.
    world.open("run/new")
    world.rename("run/new", "run/model-2.bin")
    assert links(reconciler) == {}
    reconciler._database.close()


def test_a_change_between_the_look_and_the_link_is_seen(
    world: World, reconciler: ReceiptReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(world, "run/step-1")
    run_once(world, reconciler)
    save(world, "run/step-2")
    seen = reconciler._seen

    def late(ino: int, *, is_durable: bool) -> int:
        number = seen(ino, is_durable=is_durable)
        world.open("run/step-2/.metadata")
        return number

    monkeypatch.setattr(reconciler, "_seen", late)
    run_once(world, reconciler)
    assert links(reconciler) == {"runs/run/latest-complete": b"run/step-1"}
    monkeypatch.undo()
    world.close("run/step-2/.metadata", b"2")
    run_once(world, reconciler)
    assert links(reconciler) == {"runs/run/latest-complete": b"run/step-2"}


def test_a_checkpoint_that_changed_since_its_row_is_not_named(
    world: World, reconciler: ReceiptReconciler
) -> None:
    save(world, "run/step-1")
    run_once(world, reconciler)
    save(world, "run/step-2")
    follow(world.follower())
    world.open("run/step-2/.metadata")
    reconciler._pass(control_of(world))
    assert links(reconciler) == {"runs/run/latest-complete": b"run/step-1"}
    # Its run is looked at again soon, although nothing may tell of it.
    assert reconciler._changed == {b"run"}


def test_a_checkpoint_that_lost_its_link_and_is_as_before_is_named_again(
    world: World, reconciler: ReceiptReconciler
) -> None:
    save(world, "run/step-1")
    follower = world.follower()
    follower._news = lambda looks: reconciler.changed({one.now.run for one in looks if one.now})
    follow(follower)
    reconciler._pass(control_of(world))
    before = world.row("run/step-1")
    # The server is killed before the change that the removal was for.
    world.namespace.remove(GATEWAY_CRED, world.namespace.lookup(RUNS_INO, b"run").ino, COMPLETE)
    follow(follower)
    assert world.row("run/step-1") == before
    reconciler._pass(control_of(world))
    assert links(reconciler) == {"runs/run/latest-complete": b"run/step-1"}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_changes_a_link_names_what_it_named(
    seed: int, world: World, reconciler: ReceiptReconciler
) -> None:
    """After each change, what a link names is, member by member, what it was when it was named."""
    draw, files = random.Random(seed), list[str]()
    named: dict[str, tuple[bytes, int]] = {}
    seen = removed = 0
    for step in range(150):
        if draw.random() < 0.1:
            save(world, f"run/step-{step}")
            files += [f"run/step-{step}/0_0.distcp", f"run/step-{step}/.metadata"]
        if draw.random() < 0.2:
            run_once(world, reconciler)
            named = {link: (path, number(world, path)) for link, path in links(reconciler).items()}
            seen += len(named)
        before = links(reconciler)
        with suppress(NamespaceError):  # it makes no sense: a rename into itself, say
            members = [file for file in files if file.encode().startswith(tuple(before.values()))]
            if before and members and draw.random() < 0.2:
                world.write(draw.choice(members), draw.choice(DATA))
            else:
                change(world, draw, files)
        there = links(reconciler)
        removed += len(before.keys() - there.keys())
        assert {link: named[link] for link in there} == {
            link: (path, number(world, path)) for link, path in there.items()
        }
    assert seen > 5
    assert removed > 2


def number(world: World, path: bytes) -> int:
    """Return the number of the fingerprint of a checkpoint."""
    ino = world.attr(path.decode()).ino
    with closing(Database(world.settings.database_url)) as database, database.reading() as session:
        return latest_links.seen(session, ino)


def test_a_replaced_link_guards_both_until_the_commit() -> None:
    named, link = LinkGuards(), Name(5, COMPLETE)
    named.add(link, [1], [9, 1])
    before = named.of(link)
    named.add(link, [2], [9, 2])
    for ino in (1, 2):
        with pytest.raises(HeldByLatestLink):
            named.entered(ino)
    named.drop(link, before)
    named.drop(link, before)
    named.entered(1)
    named.moved(1)
    for check, ino in ((named.entered, 2), (named.moved, 9)):
        with pytest.raises(HeldByLatestLink):
            check(ino)
    other = Name(5, DURABLE)
    named.add(other, [2], [9, 2])
    named.drop(link, named.of(link))
    with pytest.raises(HeldByLatestLink) as refused:
        named.moved(9)
    assert refused.value.link == other
    named.drop(other, named.of(other))
    for ino in (1, 2, 9):
        named.entered(ino)
        named.moved(ino)
    assert not named


def test_an_undone_link_stops_nothing_for_long(world: World, reconciler: ReceiptReconciler) -> None:
    save(world, "run/step-1")
    run_once(world, reconciler)
    run = world.directory("run")
    undone = Name(world.namespace.lookup(RUNS_INO, b"run").ino, b"undone")
    world.namespace._writer.named.add(undone, [run], [run])
    world.open("run/new")
    assert not world.namespace._writer.named.of(undone)
    assert links(reconciler)


def test_a_batch_has_what_a_link_does_not_stop(world: World, reconciler: ReceiptReconciler) -> None:
    save(world, "run/step-1")
    run_once(world, reconciler)
    where = world.directory("run/step-1"), world.directory("run")
    operations = [
        Operation(names.create, ROOT_CRED, at, b"new", SetAttr(), generation=1) for at in where
    ]
    world.namespace.run_together(operations)
    with pytest.raises(HeldByLatestLink):
        operations[0].outcome()
    assert operations[1].outcome().size == 0
    assert links(reconciler)


def test_a_link_that_is_removed_and_placed_in_one_transaction_is_guarded(
    world: World, reconciler: ReceiptReconciler
) -> None:
    """A client changes what is named while the gateway has the link name a newer checkpoint."""
    save(world, "run/step-1")
    run_once(world, reconciler)
    save(world, "run/step-2")
    runs = world.namespace.lookup(RUNS_INO, b"run").ino
    target = b"../../../run/step-2"
    world.namespace.symlink(GATEWAY_CRED, runs, b".new~", target, SetAttr())
    seen = number(world, b"run/step-2")
    removal = Operation(names.remove, GATEWAY_CRED, runs, COMPLETE)
    placing = Operation(rename.rename, GATEWAY_CRED, runs, b".new~", runs, COMPLETE, seen)
    world.namespace.run_together([removal, placing])
    removal.outcome()
    placing.outcome()
    world.write("run/step-1/new", b"1")
    assert links(reconciler) == {"runs/run/latest-complete": b"run/step-2"}
    world.open("run/step-2/.metadata")
    assert links(reconciler) == {}
