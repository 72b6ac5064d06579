"""A job that rotates its checkpoints, with the real drain and the tasks of the gateway."""

from __future__ import annotations

import threading

from gateway.catalogue.manifest_writer import Manifests
from gateway.catalogue.tracker import Follower
from gateway.common import clock
from gateway.common.types import ROOT_CRED
from gateway.db.engine import Database
from gateway.lifecycle.trash.expiry import Expiry
from gateway.lifecycle.trash.rows import TrashRow
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import fsck
from tests.support.checkpoints.trashing import opener
from tests.support.checkpoints.world import follow, rows_of
from tests.support.drainsite import Site
from tests.support.records import record
from tests.support.volumes import query

HOUR_NS = 3600 * clock.NS
RUN, PATH, NEXT = "run", "run/step-1", "run/step-2"
FILES = {f"{PATH}/a.distcp", f"{PATH}/deep/b.distcp", f"{PATH}/.metadata"}
MANIFEST = ".spillway/checkpoints/run/1.json"


class Job:
    """A job that saves checkpoints and removes them, with the tasks of the gateway."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.database = Database(site.settings.database_url)
        self.refused: str | None = None
        """Why the deletion guard keeps what it is asked about."""
        stop = threading.Event()
        open_control = opener(site.namespace)
        self.follower = Follower(site.settings, self.database, stop)
        self.manifests = Manifests(site.settings, self.database, stop)
        self.trash = Trash(site.settings, self.database, open_control)
        self.task = Expiry(site.settings, self.database, stop, self._guard, open_control)
        self.asked: list[TrashRow] = []
        """What the guard was asked about."""

    def _guard(self, entry: TrashRow) -> str | None:
        self.asked.append(entry)
        return self.refused

    def save(self, path: str, completion: int | None = None, text: str = "") -> None:
        """Save a checkpoint.

        Args:
            completion: if it is to be brought to the bucket.
        """
        for name in ("a.distcp", "deep/b.distcp", ".metadata"):
            self.site.write(f"{path}/{name}", f"{path}/{name}{text}".encode())
        if completion is not None:
            self.bring(path, completion)

    def bring(self, path: str, completion: int, grade: str = "listed") -> None:
        """Bring everything to the bucket, and record that a checkpoint is durable."""
        self.site.drain()
        self.look()
        [row] = [
            checkpoint_row
            for checkpoint_row in rows_of(self.site.settings)
            if checkpoint_row.path == path.encode()
        ]
        assert row.state == "durable"
        record(self.site.settings, row.ino, row.run, completion, grade=grade)

    def hold(self, path: str) -> None:
        """Hold a file, so that the drain leaves it alone."""
        row = "INSERT INTO queue_order (ino, hold, set_ns) VALUES (:ino, 1, 1)"
        query(self.site.settings, row, ino=self.site.attr(path).ino)

    def look(self) -> None:
        follow(self.follower)
        self.manifests._refused.clear()
        self.manifests.run_once()

    def unlink(self, *names: str, path: str = PATH) -> None:
        for name in names:
            self.site.unlink(f"{path}/{name}")

    def remove(self, path: str = PATH) -> None:
        """Remove a checkpoint as ``rm -rf`` does."""
        self.unlink("a.distcp", "deep/b.distcp", "deep", ".metadata", path=path)
        self.site.namespace.remove(ROOT_CRED, *self.site.split(path))

    def run_once(self) -> None:
        """Do what is due, and bring the bucket up to date."""
        self.look()
        self.task.run_once()
        self.look()
        self.site.drain()

    def held(self) -> list[str]:
        return [entry.path.decode() for entry in self.trash.entries()]

    def bucket(self) -> set[str]:
        return set(self.site.objects())

    def end(self) -> None:
        broken_invariants = fsck.check(self.database, self.site.namespace.files)
        assert broken_invariants == []
        self.database.close()
