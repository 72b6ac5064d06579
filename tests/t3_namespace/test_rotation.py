"""What a removal does to a file of a checkpoint that the bucket may not lose yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from gateway.catalogue import facts
from gateway.common import clock
from gateway.common.errors import NotFound, ReadOnly, TryAgain
from gateway.common.types import (
    GATEWAY_CRED,
    ROOT_CRED,
    Cred,
    Extent,
    InodeKind,
    RemovedName,
    SetAttr,
)
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO, TRASH_INO
from gateway.db.writer import Operation
from gateway.namespace import fsck, rotation
from gateway.namespace.data_files import DataFiles
from gateway.namespace.names import remove as verb
from tests.support.checkpoints.world import World
from tests.support.namespace import Namespace
from tests.support.records import record
from tests.support.volumes import query

USER = Cred(1000, 100)
PATH = "run/step-1"


@pytest.fixture
def world(settings: Settings, namespace: Namespace) -> Iterator[World]:
    made = World(settings, namespace)
    yield made
    made.end()


def save(world: World, path: str, *names: str) -> int:
    """Make files that the bucket has. Returns the inode of the checkpoint."""
    for name in names or ("a", "b"):
        world.write(f"{path}/{name}", name.encode())
        world.drain(f"{path}/{name}")
    return world.directory(path)


def durable(world: World, path: str = PATH, completion: int | None = 1, **more: object) -> int:
    ino = save(world, path)
    record(world.settings, ino, path.rpartition("/")[0].encode(), completion, **more)  # type: ignore[arg-type]
    return ino


def remove(world: World, path: str, cred: Cred = ROOT_CRED) -> RemovedName:
    return world.namespace.remove(cred, *world.split(path))


def trashed(world: World, at: int = TRASH_INO, way: str = "") -> list[str]:
    """Return the paths in the trash, below the entries."""
    found = []
    rows = query(
        world.settings,
        "SELECT name, d.ino, kind FROM dirent d JOIN inode i"
        " ON i.ino = d.ino WHERE d.parent = :at ORDER BY name",
        at=at,
    )
    for name, ino, kind in rows:
        below = way if at == TRASH_INO else f"{way}/{bytes(name).decode()}"
        inside = trashed(world, ino, below) if kind == InodeKind.DIRECTORY else [below or "(file)"]
        found += inside or [f"{below}/"]
    return found


def entries(world: World, columns: str) -> list[tuple[Any, ...]]:
    return query(world.settings, f"SELECT {columns} FROM trash ORDER BY id")


def tombstones(world: World) -> list[str]:
    return [key for (key,) in query(world.settings, "SELECT key FROM tombstone ORDER BY key")]


def objects(world: World) -> list[str]:
    return [key for (key,) in query(world.settings, "SELECT key FROM object ORDER BY key")]


def require_sound(world: World) -> None:
    with closing(Database(world.settings.database_url)) as database:
        assert fsck.check(database, DataFiles(world.settings.files_dir)) == []


def test_the_state_and_the_grades_are_those_of_the_catalogue() -> None:
    assert rotation.DURABLE == facts.CheckpointState.DURABLE
    assert set(rotation.TRUSTED) == set(facts.TRUSTED)


def test_the_newest_durable_checkpoint_goes_into_the_trash_file_by_file(world: World) -> None:
    top = durable(world)
    save(world, PATH, "deep/er/c")
    world.namespace.symlink(ROOT_CRED, top, b"link", b"a", SetAttr(mode=0o777))
    world.namespace.setattr(world.directory(f"{PATH}/deep"), SetAttr(mode=0o711, uid=7, gid=8))
    handle = world.attr(f"{PATH}/a")
    lost = remove(world, f"{PATH}/a", Cred(0, 0))
    # The plugin deletes no bytes: the inode has a name, and is as it was.
    assert (lost.ino, lost.nlink, lost.epoch) == (handle.ino, 1, handle.epoch)
    assert lost.change > handle.change
    now = world.namespace.getattr(handle.ino)
    assert (now.nlink, now.size, now.reserved) == (1, handle.size, 1)
    assert world.namespace.files.path(now.ino, now.epoch).read_bytes() == b"a"
    for name in ("b", "deep/er/c", "link"):
        remove(world, f"{PATH}/{name}")
    for name in ("deep/er", "deep"):
        remove(world, f"{PATH}/{name}")
    assert trashed(world) == ["/a", "/b", "/deep/er/c", "/link"]
    assert tombstones(world) == []
    assert objects(world) == [f"{PATH}/{name}" for name in ("a", "b", "deep/er/c")]
    [(ino, path, run, run_ino)] = entries(world, "rotated, path, run, run_ino")
    assert (ino, bytes(path), bytes(run)) == (top, PATH.encode(), b"run")
    assert run_ino == world.directory("run")
    [(files, size, by, why, state)] = entries(world, "files, size, deleted_by, reason, state")
    assert (files, size) == (3, len("a" + "b" + "deep/er/c"))
    assert (by, why, state) == ("a client (uid 0)", "a client removed it", "kept")
    [(mode, uid, gid)] = query(
        world.settings,
        "SELECT mode, uid, gid FROM inode i JOIN dirent d ON d.ino = i.ino"
        " WHERE d.name = :name AND i.reserved = 1",
        name=b"deep",
    )
    assert (mode, uid, gid) == (0o711, 7, 8)
    # The checkpoint itself goes as any directory does, and the entry stays.
    remove(world, PATH)
    assert entries(world, "rotated") == [(top,)]
    require_sound(world)
    # Clients find it by no name, and change nothing in it.
    with pytest.raises(NotFound):
        world.namespace.lookup(world.directory("run"), b"step-1")
    with pytest.raises(ReadOnly):
        world.namespace.open_write(handle.ino)


def test_a_removal_by_the_gateway_is_one(world: World) -> None:
    durable(world)
    remove(world, f"{PATH}/a")
    [(holder, name)] = query(
        world.settings,
        "SELECT parent, name FROM dirent WHERE ino = (SELECT ino FROM object WHERE key = :key)",
        key=f"{PATH}/a",
    )
    lost = world.namespace.remove(GATEWAY_CRED, holder, bytes(name))
    assert lost.nlink == 0 and tombstones(world) == [f"{PATH}/a"]
    # Also of a checkpoint that is one file, whose record it takes along.
    world.write("run/m-1.pt", b"1")
    world.drain("run/m-1.pt")
    ino = world.attr("run/m-1.pt").ino
    record(world.settings, ino, b"run/m-", 1, extent=Extent.FILE)
    remove(world, "run/m-1.pt")
    lost = world.namespace.remove(GATEWAY_CRED, TRASH_INO, b"t%d" % ino)
    assert lost.nlink == 0 and "run/m-1.pt" in tombstones(world)
    require_sound(world)


def opened(world: World) -> int:
    world.open(f"{PATH}/a")
    return world.attr(PATH).ino


def below_files(world: World) -> int:
    """Save a final model in the directory of its run."""
    record(world.settings, save(world, "run", "x"), b"", 1, extent=Extent.FILES)
    return save(world, PATH)


NOT_HELD: dict[str, Callable[[World], object]] = {
    "never recorded": lambda world: save(world, PATH),
    "the bucket never had all of it": lambda world: durable(world, is_durable=False),
    "a newer one is durable": lambda world: (
        durable(world),
        durable(world, "run/step-2", 2),
    ),
    "open for writing": lambda world: (durable(world), opened(world)),
    "written again": lambda world: (durable(world), world.write(f"{PATH}/a", b"new")),
    "below the directory of a checkpoint of files": lambda world: below_files(world),
}


@pytest.mark.parametrize("what", NOT_HELD)
def test_what_is_not_held_goes_as_ever(world: World, what: str) -> None:
    NOT_HELD[what](world)
    path = f"{PATH}/a"
    lost = remove(world, path)
    assert lost.nlink == 0 and trashed(world) == [] and entries(world, "id") == []
    assert tombstones(world) == [path]


def test_a_file_that_the_bucket_never_had_goes_as_ever(world: World) -> None:
    durable(world)
    world.write(f"{PATH}/new", b"1")
    assert remove(world, f"{PATH}/new").nlink == 0
    # A hard link goes, and the file stays by its other name.
    world.namespace.link(ROOT_CRED, world.attr(f"{PATH}/a").ino, world.directory("kept"), b"a")
    assert remove(world, f"{PATH}/a").nlink == 1
    assert trashed(world) == []


HELD: dict[str, Callable[[World], object]] = {
    "the newer one is not durable": lambda world: durable(world, "run/step-2", 2, is_durable=False),
    "the newer one cannot be trusted": lambda world: durable(
        world, "run/step-2", 2, grade="marked"
    ),
    "the newer one is of another run": lambda world: durable(world, "other/step-2", 2),
    "the higher step was complete before": lambda world: durable(world, "run/step-2", 0),
    "the number of the newer one is not known": lambda world: durable(world, "run/step-2", None),
    "the newer one is gone": lambda world: (
        durable(world, "run/step-2", 2),
        *(remove(world, f"run/step-2/{name}") for name in "ab"),
        remove(world, "run/step-2"),
    ),
    "the newer one lost a file": lambda world: (
        durable(world, "run/step-2", 2),
        query(
            world.settings,
            "UPDATE checkpoint SET state = 'broken' WHERE state = 'durable'"
            " AND ino = (SELECT ino FROM checkpoint_record WHERE completion = 2)",
        ),
    ),
}


@pytest.mark.parametrize("what", HELD)
def test_what_cannot_replace_it_lets_nothing_go(world: World, what: str) -> None:
    durable(world)
    HELD[what](world)
    before = trashed(world)
    assert remove(world, f"{PATH}/a").nlink == 1
    assert len(trashed(world)) == len(before) + 1
    assert f"{PATH}/a" in objects(world)
    require_sound(world)


def test_a_member_that_a_new_save_replaces_is_held(world: World) -> None:
    durable(world)
    old = world.attr(f"{PATH}/a").ino
    world.write(f"{PATH}/a.tmp", b"newer")
    _moved, lost = world.namespace.rename(
        ROOT_CRED, *world.split(f"{PATH}/a.tmp"), *world.split(f"{PATH}/a")
    )
    assert lost is not None and (lost.ino, lost.nlink) == (old, 1)
    assert trashed(world) == ["/a"] and entries(world, "reason") == [("a client replaced it",)]
    # It is replaced once more: what goes then was never a member of what is held.
    world.drain(f"{PATH}/a")
    assert remove(world, f"{PATH}/a").nlink == 0
    assert trashed(world) == ["/a"]
    require_sound(world)


def test_a_single_file_is_held_unless_a_newer_one_takes_its_name(world: World) -> None:
    for name, completion in (("m-1.pt", 1), ("n.pt", 9)):
        world.write(f"run/{name}", b"1")
        world.drain(f"run/{name}")
        ino = world.attr(f"run/{name}").ino
        run = b"run/m-" if completion == 1 else b"run/n"
        record(world.settings, ino, run, completion, extent=Extent.FILE)
    lost = remove(world, "run/m-1.pt")
    assert lost.nlink == 1 and trashed(world) == ["(file)"]
    [(id, ino, rotated, path, run_ino)] = entries(world, "id, ino, rotated, path, run_ino")
    assert (id, ino, rotated) == (f"t{lost.ino}", lost.ino, lost.ino)
    assert bytes(path) == b"run/m-1.pt" and run_ino == world.directory("run")
    world.write("run/n.tmp", b"2")
    _moved, lost_too = world.namespace.rename(
        ROOT_CRED, *world.split("run/n.tmp"), *world.split("run/n.pt")
    )
    assert lost_too is not None and lost_too.nlink == 0 and tombstones(world) == ["run/n.pt"]
    require_sound(world)


def test_a_file_that_a_client_still_reads_gets_its_name_back(world: World) -> None:
    """A client gives a removed file that it has open another name, and removes it at the close."""
    durable(world)
    world.rename(f"{PATH}/a", f"{PATH}/.nfs0000001")
    assert remove(world, f"{PATH}/.nfs0000001").nlink == 1
    assert trashed(world) == ["/a"]


def test_a_content_has_an_entry_of_its_own(world: World) -> None:
    """The same directory became complete again. What is being removed gets no more files."""
    top = durable(world)
    remove(world, f"{PATH}/a")
    record(world.settings, top, b"run", 2)
    remove(world, f"{PATH}/b")
    save(world, PATH, "c", "d", "e")
    assert len(entries(world, "id")) == 2
    query(world.settings, "UPDATE trash SET state = 'expiring'")
    remove(world, f"{PATH}/c")
    query(world.settings, "UPDATE trash SET released_by = 'me'")
    remove(world, f"{PATH}/d")
    assert len(entries(world, "id")) == 4
    remove(world, f"{PATH}/e")
    assert len(entries(world, "id")) == 4


def test_a_pin_ends_with_the_name(world: World) -> None:
    durable(world)
    ino = world.attr(f"{PATH}/a").ino
    query(world.settings, "INSERT INTO pin VALUES (:ino, '', 'me', 1)", ino=ino)
    remove(world, f"{PATH}/a")
    assert query(world.settings, "SELECT count(*) FROM pin") == [(0,)]


def test_a_namespace_without_a_trash_holds_nothing(world: World) -> None:
    durable(world)
    query(world.settings, "DELETE FROM dirent WHERE ino = :ino", ino=TRASH_INO)
    query(world.settings, "DELETE FROM inode WHERE ino = :ino", ino=TRASH_INO)
    assert remove(world, f"{PATH}/a").nlink == 0


def test_many_directories_in_one_batch_have_numbers(world: World) -> None:
    """A removal may make many directories, and be undone with others of its batch."""
    names = [f"{number}/{'d/' * 11}f" for number in range(8)]
    top = save(world, PATH, *names)
    record(world.settings, top, b"run", 1)
    operations = [Operation(verb, ROOT_CRED, *world.split(f"{PATH}/{name}")) for name in names]
    # One fails after others have made directories: all are run again, each by itself.
    operations.insert(6, Operation(verb, USER, *world.split(f"{PATH}/0")))
    world.namespace.run_together(operations)
    assert [operation.error is None for operation in operations].count(False) == 1
    assert len(trashed(world)) == len(names)
    require_sound(world)


def test_a_kill_leaves_all_or_nothing(world: World) -> None:
    """A change that is undone leaves no entry, and the numbers are free again."""
    durable(world)

    def fails(tx: object, *args: object) -> None:
        verb(tx, *args)  # type: ignore[arg-type]
        raise TryAgain

    with pytest.raises(TryAgain):
        world.namespace.run(fails, ROOT_CRED, *world.split(f"{PATH}/a"))
    assert trashed(world) == [] and entries(world, "id") == []
    assert world.attr(f"{PATH}/a").nlink == 1
    assert remove(world, f"{PATH}/a").nlink == 1
    require_sound(world)


def test_the_hours_count_from_the_removal_by_no_clock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable(world)
    monkeypatch.setattr(clock, "now_ns", lambda: 1 << 62)
    remove(world, f"{PATH}/a")
    [(since_ns, expires_ns)] = entries(world, "since_ns, expires_ns")
    assert (since_ns, expires_ns) == (0, rotation.UNTIL_MAX_NS)


def test_the_run_is_the_directory_that_its_name_begins_with(world: World) -> None:
    for path, run, directory in (
        ("a/b/c/step-1", b"a/b", "a/b"),
        ("d/e/step-1", b"d/e/model-", "d/e"),
        ("f/step-1", b"other", ""),
        ("g/step-1", b"", ""),
    ):
        ino = save(world, path)
        record(world.settings, ino, run, 1)
        remove(world, f"{path}/a")
        [(run_ino,)] = query(world.settings, "SELECT run_ino FROM trash WHERE rotated = :i", i=ino)
        assert run_ino == (world.directory(directory) if directory else ROOT_INO)
