"""Clients that still have handles of what went into the trash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.errors import ReadOnly
from gateway.namespace import fsck
from gateway.types import ROOT_CRED, SetAttr
from tests.support.volumes import query
from tests.t9_checkpoints.trashing import put, save, trash_of
from tests.t9_checkpoints.world import World

PATH = "run/step-1"


def test_clients_change_nothing_in_the_trash(world: World) -> None:
    """A client that has handles of a directory and its files keeps them."""
    trash = trash_of(world)
    save(world, PATH, "deep/b.distcp", "linked")
    top, deep = world.attr(PATH).ino, world.attr(f"{PATH}/deep").ino
    file, linked = world.attr(f"{PATH}/.metadata").ino, world.attr(f"{PATH}/linked").ino
    world.namespace.link(ROOT_CRED, linked, world.directory("kept"), b"linked")
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
    # It is the same file by its other name.
    world.write("kept/linked", b"again")
    assert trash.undelete(trashed, by="me") == PATH.encode()
    for change in changes[:2]:
        change()
    world.write(f"{PATH}/.metadata", b"new")
    assert query(world.settings, "SELECT count(*) FROM inode WHERE reserved = 1") == [(5,)]
    problems = fsck.check(Database(world.settings.database_url), world.namespace.files)
    assert problems == []
