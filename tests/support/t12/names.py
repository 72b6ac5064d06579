"""A copy of the names that is made and loaded in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.db import upgrade
from gateway.db.engine import Database
from gateway.objectstore.ownership import guarded
from gateway.objectstore.s3 import S3Store
from gateway.recovery import source, tables
from gateway.recovery.copy_objects import BucketObjects
from gateway.recovery.load import Loaded, Loader
from gateway.recovery.names_copy import NamesCopy
from gateway.recovery.names_store import NamesStore
from tests.support.drainsite import Site

STEPS_MAX = 1000


def save(site: Site, step: int) -> dict[str, bytes]:
    """Save as jobs do: a temporary directory, a rename, a tracker that is replaced.

    Returns what the bucket should have of it, by path.
    """
    data = {f"run/step-{step}/__{rank}_0.distcp": b"%d of %d" % (rank, step) for rank in range(3)}
    for path, content in data.items():
        site.write(path.replace("/__", ".tmp/__"), content)
    site.rename(f"run/step-{step}.tmp", f"run/step-{step}")
    site.write("run/latest.tmp", b"step-%d" % step)
    site.rename("run/latest.tmp", "run/latest")
    return data | {"run/latest": b"step-%d" % step}


class Copied:
    """The copy of the names of a gateway."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._database = Database(site.settings.database_url)
        self._store = guarded(S3Store(site.settings), site.settings, self._database)
        self.names = NamesStore(BucketObjects(site.settings, self._store))
        self.copy = NamesCopy(site.settings, self._database, self.names)

    def close(self) -> None:
        self._database.close()

    def step(self) -> float:
        """Copy what is due, and what would be due later."""
        self.copy._log_at = self.copy._seldom_at = 0.0
        return self.copy.step()

    def all(self) -> None:
        """Copy until the bucket has everything, with a whole base."""
        for _ in range(STEPS_MAX):
            self.step()
            if self.copy.progress().base_ns and self.copy._base is None:
                self.step()
                return
        raise AssertionError(f"no base: {self.copy.progress()}")


@contextmanager
def copied(site: Site) -> Iterator[Copied]:
    """Copy the names of a gateway."""
    made = Copied(site)
    try:
        yield made
    finally:
        made.close()


def load(names: NamesStore, url: str) -> Loaded:
    """Load the newest copy into a new database."""
    database = Database(url)
    try:
        upgrade.upgrade(database)
        loader = Loader(database)
        chosen = source.choose(names)
        try:
            for listed in (*chosen.parts, *(segment.listed for segment in chosen.log)):
                loader.use(names.opened(listed))
            return loader.end()
        finally:
            loader.close()
    finally:
        database.close()


def rows_of(url: str) -> dict[str, list[Any]]:
    """Return the rows of all tables that are copied, but for the counters of the volume."""
    database = Database(url)
    try:
        with database.reading() as session:
            return {
                name: sorted(table.all(session), key=repr)
                for name, table in tables.COPIED.items()
                if name != "volume"
            }
    finally:
        database.close()


def sqlite_url(path: Path) -> str:
    """Return the URL of a new database."""
    path.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path / 'namespace.db'}"
