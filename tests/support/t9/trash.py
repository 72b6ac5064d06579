"""Trash with set clocks and processes that a failpoint kills, for tests of the trash."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from gateway.common import clock, failpoints
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.trash.expiry import Expiry
from gateway.lifecycle.trash.rows import TrashRow
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import reserved as reserved_module
from tests.support.checkpoints.trashing import opener
from tests.support.checkpoints.world import World, rows_of
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings, query

DAY_NS = 86_400 * clock.NS


RUN, PATH = "run", "run/step-1"


def expiry_of(
    world: World, guard: Callable[[TrashRow], str | None] = lambda _entry: None
) -> Expiry:
    database = Database(world.settings.database_url)
    world._databases.append(database)
    return Expiry(world.settings, database, threading.Event(), guard, opener(world.namespace))


def with_values(world: World, **sections: dict[str, object]) -> None:
    url = {"namespace": {"url": world.settings.database_url}}
    world.settings = make_settings(world.settings.data_dir, {**url, **sections})


def names(world: World, parent: int) -> list[bytes]:
    rows = query(world.settings, "SELECT name FROM dirent WHERE parent = :parent", parent=parent)
    return sorted(bytes(name) for (name,) in rows)


def reserved(world: World) -> int:
    """Return the number of inodes that only the gateway changes. It has five directories."""
    [(count,)] = query(world.settings, "SELECT count(*) FROM inode WHERE reserved = 1")
    return int(count)


def killed(settings: Settings, what: str, armed: str) -> None:
    """Do something with the checkpoint in this process, which a failpoint kills."""
    reserved_module.AT_ONCE = 2
    namespace = Namespace(settings)
    trash = Trash(settings, Database(settings.database_url), opener(namespace))
    failpoints.arm(armed)
    if what == "put":
        [row] = rows_of(settings)
        trash.put(row.ino, row.path, row.evidence, "policy", "why")
    elif what == "undelete":
        trash.undelete(trash.entries()[0].id, by="me")
    else:
        trash.remove(trash.entries()[0], by="me", reason="why")
    os._exit(0)
