"""Trees that people remove, and renames to held names: the deletion guards hold for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing

import pytest

from gateway.catalogue.facts import NOT_MADE
from gateway.cli.main import main
from gateway.common.errors import NotPossible
from gateway.db.engine import Database
from gateway.namespace import fsck
from gateway.service import deletion
from gateway.service.deletion import check_tree
from tests.support.checkpoints.keeping import Present
from tests.support.checkpoints.records import record as trust
from tests.support.checkpoints.world import World, follow
from tests.support.namespace import Namespace
from tests.support.records import record
from tests.support.volumes import query

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")

Run = Callable[..., tuple[int, str]]


def save(world: World, *paths: str) -> None:
    """Save checkpoints that the bucket has."""
    for path in paths:
        for name in ("a.distcp", ".metadata"):
            world.write(f"{path}/{name}", b"12345")
            world.drain(f"{path}/{name}")


@pytest.fixture
def run(configured: World, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command while no NFS server does. The namespace is closed and opened again."""

    def ask(*words: str) -> tuple[int, str]:
        follow(configured.follower())
        trust(configured.settings)
        configured.end()
        configured.namespace.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deletion, "BucketHeads", lambda _settings, _stop: Present())
            status = main([words[0], "--config", str(configured.settings.source), *words[1:]])
        configured.namespace = Namespace(configured.settings)
        follow(configured.follower())
        said = capsys.readouterr()
        return status, said.out + said.err

    return ask


def trashed(world: World) -> list[bytes]:
    rows = query(world.settings, "SELECT path FROM trash WHERE rotated IS NULL ORDER BY path")
    return [bytes(path) for (path,) in rows]


def names(world: World, path: str) -> list[str]:
    rows = query(
        world.settings,
        "SELECT name FROM dirent WHERE parent = :ino ORDER BY name",
        ino=world.directory(path),
    )
    return [bytes(name).decode() for (name,) in rows]


def tombstones(world: World) -> list[tuple[str]]:
    return query(world.settings, "SELECT key FROM tombstone ORDER BY key")


def test_a_tree_with_the_newest_checkpoint_asks_first(configured: World, run: Run) -> None:
    world = configured
    save(world, "run/step-1", "run/step-2")
    world.write("run/log.txt", b"1")
    world.drain("run/log.txt")
    for path in ("/checkpoints/run", "/checkpoints/run/step-2"):
        status, said = run("rm", "-r", path)
        assert status == 1
        assert "run/step-2 stays: it is the newest complete one" in said and "force" in said
    assert names(world, "run") == ["log.txt", "step-1", "step-2"]
    assert trashed(world) == [] and query(world.settings, "SELECT count(*) FROM action") == [(0,)]
    # The older one may go, and can be taken back.
    status, said = run("rm", "-r", "/checkpoints/run/step-1")
    assert (
        status == 0
        and "run/step-1: in the trash as t" in said
        and "spillway trash restore t" in said
    )
    assert trashed(world) == [b"run/step-1"] and tombstones(world) == []
    status, said = run("rm", "-r", "--force", "/checkpoints/run")
    assert status == 0 and "2 names removed" in said  # the log and the directory
    assert trashed(world) == [b"run/step-1", b"run/step-2"]
    assert tombstones(world) == [("run/log.txt",)]
    log = query(world.settings, "SELECT what, path, reason, result FROM action ORDER BY id")
    assert [(what, bytes(path), why) for what, path, why, _result in log] == [
        ("trash", b"run/step-1", "a person removed its tree"),
        ("trash", b"run/step-2", "a person removed its tree"),
    ]
    assert all(result.startswith("in the trash as t") for *_, result in log)
    with closing(Database(world.settings.database_url)) as database:
        assert fsck.check(database, world.namespace.files) == []


def test_a_name_that_no_terminal_can_show_is_looked_up_as_it_is(
    configured: World, run: Run
) -> None:
    world = configured
    save(world, "run\x1b/step-1")
    status, said = run("rm", "-r", "/checkpoints/run\x1b")
    assert status == 1 and r"run\x1b/step-1 stays: it is the newest complete one" in said
    status, said = run("rm", "-r", "--force", "--json", "/checkpoints/run\x1b")
    [told] = json.loads(said)
    assert status == 0 and list(told["trashed"].values()) == ["run%1B/step-1"]


def test_what_is_pinned_stays_in_any_case(configured: World, run: Run) -> None:
    world = configured
    save(world, "run/step-1", "run/step-2")
    ino = world.attr("run/step-1/a.distcp").ino
    query(world.settings, "INSERT INTO pin VALUES (:ino, '', 'me', 1)", ino=ino)
    for path in ("run", "run/step-1"):
        status, said = run("rm", "-r", "--force", f"/checkpoints/{path}")
        assert status == 1 and f"{path} stays: it is pinned" in said
    assert names(world, "run") == ["step-1", "step-2"] and trashed(world) == []


def test_what_is_not_complete_is_removed_as_ever(configured: World, run: Run) -> None:
    world = configured
    world.write("run/step-1/a.distcp", b"1")
    world.directory("run/empty")
    status, said = run("rm", "-r", "/checkpoints/run")
    assert status == 0 and "4 names removed" in said and trashed(world) == []


def test_a_model_in_the_directory_of_its_run_goes_with_what_is_beside_it(
    configured: World, run: Run
) -> None:
    world = configured
    save(world, "run", "run/step-1", "run/step-2")
    world.write("run/logs/deep/log.txt", b"1")
    status, said = run("rm", "-r", "/checkpoints/run")
    assert status == 1 and "force" in said and trashed(world) == []
    assert run("rm", "-r", "--force", "/checkpoints/run")[0] == 0
    assert trashed(world) == [b"run", b"run/step-1", b"run/step-2"]
    assert tombstones(world) == []


def test_nothing_goes_while_the_catalogue_may_lack_checkpoints(configured: World) -> None:
    world = configured
    save(world, "run/step-1")
    with closing(Database(world.settings.database_url)) as database:
        # Before the first checkpoint there is nothing that could be lacking.
        assert check_tree(world.settings, database, b"run", insists=False) == []
        record(world.settings, world.directory("run/step-1"), b"run", 1)
        query(world.settings, "DELETE FROM checkpoint")
        with pytest.raises(NotPossible, match=NOT_MADE):
            check_tree(world.settings, database, b"run", insists=False)
        assert check_tree(world.settings, database, b"run", insists=True) == []


def test_a_checkpoint_in_the_bucket_gets_no_held_name(configured: World, run: Run) -> None:
    world = configured
    save(world, "run/step-1")
    world.write("new/step-1/a.distcp", b"1")
    world.directory("held.tmp")
    for source, target in (
        ("run/step-1", "run/step-1.tmp"),
        ("run", "run.tmp"),
        ("run", "held.tmp"),
        ("run/step-1", "held.tmp/mine"),
    ):
        status, said = run("mv", f"/checkpoints/{source}", f"/checkpoints/{target}")
        assert status == 1 and "run/step-1 is in the bucket" in said, target
        assert "drain.incomplete_patterns" in said
    assert names(world, "run") == ["step-1"] and names(world, "held.tmp") == []
    # What is not in the bucket may, and another name is as good as before.
    assert run("mv", "/checkpoints/new", "/checkpoints/new.tmp")[0] == 0
    save(world, "other/step-1")
    assert run("mv", "/checkpoints/other", "/checkpoints/other2")[0] == 0
    assert run("mv", "--force", "/checkpoints/run", "/checkpoints/held.tmp")[0] == 0
    assert names(world, "held.tmp") == ["run"]
