"""Clients that still have handles of what went into the trash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.common.errors import ReadOnly, TrashRefused
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.namespace import fsck, reserved
from tests.support.checkpoints.trashing import put, save, trash_of
from tests.support.checkpoints.world import World
from tests.support.volumes import make_settings, query

PATH = "run/step-1"


def test_clients_change_nothing_in_the_trash(world: World) -> None:
    """A client that has handles of a directory and its files keeps them."""
    trash = trash_of(world)
    save(world, PATH, "deep/b.distcp")
    top, deep = world.attr(PATH).ino, world.attr(f"{PATH}/deep").ino
    file = world.attr(f"{PATH}/.metadata").ino
    trashed = put(world, trash, PATH)
    changes: list[Callable[[], object]] = [
        lambda: world.namespace.create(ROOT_CRED, top, b"new", SetAttr(mode=0o644)),
        lambda: world.namespace.mkdir(ROOT_CRED, deep, b"new", SetAttr(mode=0o755)),
        lambda: world.namespace.remove(ROOT_CRED, top, b".metadata"),
        lambda: world.namespace.rename(ROOT_CRED, top, b".metadata", ROOT_INO, b"mine"),
        lambda: world.namespace.link(ROOT_CRED, file, ROOT_INO, b"mine"),
        lambda: world.namespace.open_write(file),
        lambda: world.namespace.setattr(file, SetAttr(mode=0o600)),
    ]
    for change in changes:
        with pytest.raises(ReadOnly):
            change()
    assert trash.undelete(trashed, by="me") == PATH.encode()
    for change in changes[:2]:
        change()
    world.write(f"{PATH}/.metadata", b"new")
    assert query(world.settings, "SELECT count(*) FROM inode WHERE reserved = 1") == [(5,)]
    problems = fsck.check(Database(world.settings.database_url), world.namespace.files)
    assert problems == []


def test_a_file_that_clients_could_still_write_keeps_its_checkpoint_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of it has another name elsewhere: before the look, and made after it."""
    trash = trash_of(world)
    save(world, PATH, "deep/b.distcp")
    file = world.attr(f"{PATH}/deep/b.distcp").ino
    # Two names in one checkpoint lead nowhere else.
    world.namespace.link(ROOT_CRED, file, world.directory(PATH), b"same.distcp")
    trashed = put(world, trash, PATH)
    with pytest.raises(ReadOnly):
        world.namespace.open_write(file)
    trash.undelete(trashed, by="me")
    world.namespace.link(ROOT_CRED, file, world.directory("kept"), b"b")
    refused = "its file run/step-1/deep/b.distcp is also kept/b, by which clients could change it"
    with pytest.raises(TrashRefused, match=refused):
        put(world, trash, PATH)
    world.remove("kept/b")
    reserve = reserved.reserve

    def reserve_late(database: Database, top: int, on_page: Callable[[], None]) -> None:
        world.namespace.link(ROOT_CRED, file, world.directory("kept"), b"b")
        reserve(database, top, on_page)

    with monkeypatch.context() as patch:
        patch.setattr(reserved, "reserve", reserve_late)
        with pytest.raises(TrashRefused, match=refused):
            put(world, trash, PATH)
    world.write("kept/b", b"as before")
    world.remove("kept/b")
    put(world, trash, PATH)


def test_a_single_file_with_another_name_stays(world: World) -> None:
    rule = {"name": "ours", "path": "{run}/step-{step}.pt", "files": 1}
    url = {"namespace": {"url": world.settings.database_url}}
    world.settings = make_settings(
        world.settings.data_dir, {**url, "checkpoints": {"rule": [rule]}}
    )
    ino = world.write("run/step-5.pt", b"1")
    world.namespace.link(ROOT_CRED, ino, ROOT_INO, b"best.pt")
    with pytest.raises(TrashRefused, match=r"its file run/step-5\.pt is also best\.pt"):
        put(world, trash_of(world), "run/step-5.pt")
