"""Namespace with a follower of its journal, in which saves of frameworks are replayed.

Its catalogue is compared with one that is rebuilt.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.catalogue.display_state import CheckpointRow
from gateway.catalogue.tracker import Follower
from gateway.common import clock
from gateway.common.errors import NotFound
from gateway.common.types import ROOT_CRED, Attr, InodeKind, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.objectstore import key_mapper
from tests.support.checkpoints.layouts import Step
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings, query

MODE = SetAttr(mode=0o755)


@dataclass
class World:
    """Clients, the drain and the evictor in one, without a bucket."""

    settings: Settings
    namespace: Namespace
    opened: dict[str, Attr] = field(default_factory=dict)
    """The files that are open for writing, by path."""
    _databases: list[Database] = field(default_factory=list)

    # Clients.

    def directory(self, path: str) -> int:
        at = ROOT_INO
        for name in [part.encode() for part in path.split("/") if part]:
            try:
                at = self.namespace.lookup(at, name).ino
            except NotFound:
                at = self.namespace.mkdir(ROOT_CRED, at, name, MODE).ino
        return at

    def split(self, path: str) -> tuple[int, bytes]:
        parent, _, name = path.rpartition("/")
        return self.directory(parent), name.encode()

    def attr(self, path: str) -> Attr:
        return self.namespace.lookup(*self.split(path))

    def apply(self, step: Step) -> None:
        """Do what a client asks for."""
        if step.verb == "mkdir":
            self.directory(step.path)
        elif step.verb == "open":
            self.open(step.path)
        elif step.verb == "close":
            self.close(step.path, step.data)
        elif step.verb == "rename":
            self.rename(step.path, step.to)
        else:
            self.remove(step.path)

    def open(self, path: str) -> None:
        parent, name = self.split(path)
        try:
            attr = self.namespace.open_write(self.namespace.lookup(parent, name).ino)
        except NotFound:
            attr = self.namespace.create(ROOT_CRED, parent, name, SetAttr(mode=0o644))
        self.opened[path] = attr

    def close(self, path: str, data: bytes) -> int:
        attr = self.opened.pop(path)
        self.namespace.files.path(attr.ino, attr.epoch).write_bytes(data)
        self.namespace.seal(attr.ino, Sealed(len(data), len(data), clock.now_ns(), 1))
        return attr.ino

    def write(self, path: str, data: bytes) -> int:
        self.open(path)
        return self.close(path, data)

    def chmod(self, path: str, mode: int) -> None:
        self.namespace.setattr(self.attr(path).ino, SetAttr(mode=mode))

    def rename(self, path: str, to: str) -> None:
        self.namespace.rename(ROOT_CRED, *self.split(path), *self.split(to))
        for one in list(self.opened):
            if one == path or one.startswith(path + "/"):
                self.opened[to + one[len(path) :]] = self.opened.pop(one)

    def remove(self, path: str) -> None:
        removed = self.namespace.remove(ROOT_CRED, *self.split(path))
        if removed.nlink == 0 and removed.kind == InodeKind.REGULAR:
            self.namespace.reclaim(removed.ino, removed.epoch)

    # What the drain and the evictor record.

    def drain(self, path: str) -> None:
        """Record that the bucket has the present version of a file, as the drain does."""
        ino = self.attr(path).ino
        prefix = self.settings.bucket.prefix
        values = {"key": key_mapper.key_of(prefix, tuple(path.encode().split(b"/"))), "ino": ino}
        for statement in (
            "DELETE FROM block_digest WHERE ino = :ino",
            "DELETE FROM object WHERE ino = :ino OR key = :key",
            "UPDATE inode SET drained_version = content_version WHERE ino = :ino",
            "INSERT INTO object SELECT ino, :key, content_version, size, 'e', 'md5:c', :now, NULL"
            " FROM inode WHERE ino = :ino",
            "INSERT INTO block_digest VALUES (:ino, 4194304, :crcs)",
            "DELETE FROM rekey",
            "INSERT INTO journal (what, inos) VALUES (4, :inos)",
        ):
            query(
                self.settings,
                statement,
                **{
                    name: value
                    for name, value in {
                        **values,
                        "now": clock.now_ns(),
                        "crcs": bytes(8),
                        "inos": f"[{ino}]",
                    }.items()
                    if f":{name}" in statement
                },
            )

    def evict(self, path: str) -> None:
        before = self.attr(path)
        rows = query(self.settings, f"SELECT content_version FROM inode WHERE ino = {before.ino}")
        self.namespace.evict(before.ino, rows[0][0])
        self.namespace.files.remove(before.ino, before.epoch)

    def arrive(self, path: str, data: bytes) -> None:
        """Bring the bytes of an absent file back, as the hydrator does."""
        attr = self.attr(path)
        self.namespace.files.path(attr.ino, attr.epoch).write_bytes(data)
        rows = query(self.settings, f"SELECT content_version FROM inode WHERE ino = {attr.ino}")
        self.namespace.arrived(attr.ino, attr.epoch, rows[0][0])

    # The catalogue.

    def follower(
        self, stop: threading.Event | None = None, writing_seconds: float = 0.0
    ) -> Follower:
        """Return a follower as a process that starts has it."""
        database = Database(self.settings.database_url)
        self._databases.append(database)
        stop = stop or threading.Event()
        return Follower(self.settings, database, stop, writing_seconds=writing_seconds)

    def with_rules(self, *tables: dict[str, Any]) -> World:
        """Return the same world with rules in its configuration."""
        values: dict[str, dict[str, Any]] = {
            "namespace": {"url": self.settings.database_url},
            "checkpoints": {"rule": list(tables)},
        }
        return replace(self, settings=make_settings(self.settings.data_dir, values))

    def with_quiet(self, seconds: float) -> World:
        """Return the same world with a time for which marked checkpoints must be quiet."""
        values: dict[str, dict[str, Any]] = {
            "namespace": {"url": self.settings.database_url},
            "checkpoints": {"quiet_seconds": seconds},
        }
        return replace(self, settings=make_settings(self.settings.data_dir, values))

    def with_holds(self, *patterns: str) -> World:
        """Return the same world with other patterns of names that are not final."""
        values: dict[str, dict[str, Any]] = {
            "namespace": {"url": self.settings.database_url},
            "drain": {"incomplete_patterns": list(patterns)},
        }
        return replace(self, settings=make_settings(self.settings.data_dir, values))

    def end(self) -> None:
        """Close what followers have opened."""
        for database in self._databases:
            database.close()

    def row(self, path: str) -> CheckpointRow | None:
        rows = [row for row in rows_of(self.settings) if row.path == path.encode()]
        return rows[0] if rows else None

    def state(self, path: str) -> str | None:
        row = self.row(path)
        return None if row is None else row.state


def follow(follower: Follower) -> None:
    """Do rounds until nothing is left to do."""
    for _ in range(100):
        if follower.step():
            return
    raise AssertionError("the journal has no end")


def rows_of(settings: Settings) -> list[CheckpointRow]:
    """Return the catalogue."""
    rows = query(settings, "SELECT * FROM checkpoint ORDER BY ino")
    return [CheckpointRow(*row)._replace(path=bytes(row[2]), run=bytes(row[3])) for row in rows]


@contextmanager
def forgotten(settings: Settings) -> Iterator[None]:
    """Delete the catalogue meanwhile, with the reader that follows for it."""
    query(settings, "DELETE FROM checkpoint")
    query(settings, "DELETE FROM catalogue")
    query(settings, "DELETE FROM reader WHERE name = 'catalogue'")
    yield


def rebuilt(world: World) -> list[CheckpointRow]:
    """Rebuild the catalogue, and return it."""
    with forgotten(world.settings):
        follow(world.follower())
        return rows_of(world.settings)
