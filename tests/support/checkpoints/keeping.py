"""World with policies, a bucket that has every object, and a trash that moves checkpoints away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.catalogue.store import Catalogue, catalogue_of
from gateway.common import clock
from gateway.common.errors import TrashRefused
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.retention.facts import PlanCheckpoint
from gateway.lifecycle.retention.planning import Planned, Planning
from tests.support.checkpoints.records import record
from tests.support.checkpoints.world import World, follow, rows_of
from tests.support.volumes import query

FILES = ("__0_0.distcp", ".metadata")
BIN = "bin.tmp"
DRAINED = (
    "UPDATE inode SET drained_version = content_version WHERE ino = :ino",
    "INSERT INTO object SELECT ino, :key, content_version, size, 'e', 'c', :now, NULL FROM inode"
    " WHERE ino = :ino",
    "INSERT INTO block_digest VALUES (:ino, 4194304, x'0000000000000000')",
    "INSERT INTO journal (what, inos) VALUES (4, '[' || :ino || ']')",
)
"""What the drain records of a file that the bucket has."""


def save(world: World, *paths: str, durable: bool = True) -> None:
    """Save checkpoints of torch, and drain them. SQLite only."""
    database = Database(world.settings.database_url)
    with database.reader() as connection:
        for path in (f"{path}/{name}" for path in paths for name in FILES):
            ino = world.write(path, b"12345")
            values = {"ino": ino, "key": path, "now": clock.now_ns()}
            for statement in DRAINED if durable else ():
                connection.execute(statement, values)
    database.close()


def put(world: World, *tables: dict[str, Any]) -> None:
    """Store policies whose plans need no approval for being the first."""
    database = Database(world.settings.database_url)
    with database.reader() as connection, database.transaction(connection):
        session = Session(connection, database.dialect)
        for table in tables:
            said = {"run": "*", "wait_hours": 0, "approve": "automatic", **table}
            store.put(session, policy.of(said), "a person")
    database.close()


def planned(world: World) -> Planned:
    database = Database(world.settings.database_url)
    try:
        return Planning(world.settings, catalogue_of(world.settings, database)).plan()
    finally:
        database.close()


def shown(world: World) -> set[bytes]:
    """Return the paths that a plan shows as deleted."""
    return {deletion.checkpoint.path for deletion in planned(world).plan.deletions}


def paths(world: World) -> set[bytes]:
    """Return the paths of the catalogue, without those in the bin."""
    found = {row.path for row in rows_of(world.settings)}
    return {path for path in found if not path.startswith(BIN.encode())}


class Bin:
    """Moves a checkpoint that is as expected away, and writes its path into a file.

    Args:
        log: the file.
        meanwhile: which is called before each removal.
    """

    def __init__(
        self, world: World, log: Path, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        self._world = world
        self._log = log
        self._meanwhile = meanwhile

    def put(self, ino: int, path: bytes, evidence: str, by: str, reason: str) -> str:
        self._meanwhile()
        text = path.decode()
        database = Database(self._world.settings.database_url)
        now = catalogue_of(self._world.settings, database).look(ino).now
        database.close()
        if now is None or (now.path, now.evidence) != (path, evidence):
            raise TrashRefused("it is not as expected")
        assert by
        assert reason
        # Its row has the old path until the catalogue has followed.
        self._world.rename(text, f"{BIN}/{ino}")
        with self._log.open("a") as file:
            file.write(f"{text}\n")
        return f"t{ino}"

    def log(self) -> list[str]:
        return self._log.read_text().split() if self._log.exists() else []


class Present:
    """A bucket that has every object as recorded, where the bucket is not what a test is about."""

    def differs(self, catalogue: Catalogue, one: PlanCheckpoint) -> None:
        return None


def applier(world: World, trash: Bin, stop: threading.Event | None = None) -> Applier:
    database = Database(world.settings.database_url)
    return Applier(world.settings, database, stop or threading.Event(), trash, Present())


def actions(world: World) -> list[tuple[Any, ...]]:
    """Return what and result of all actions, in their order."""
    return query(world.settings, "SELECT what, result FROM action ORDER BY id")


def catch_up(world: World) -> None:
    follow(world.follower())
    record(world.settings)
