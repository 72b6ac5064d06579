"""A gateway that is restored from the bucket of another one, which is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.common.types import Residency
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from gateway.recovery.restore import NamespaceRestore, Restored
from tests.support.drainsite import PREFIX, Site
from tests.support.s3server import credentials
from tests.support.volumes import write_settings


class RestoredSite:
    """A new data directory, and a database of its own, for the bucket of a gateway.

    Args:
        lost: the gateway that is gone.
        directory: for the data.
        database_url: empty for SQLite in it.
    """

    def __init__(self, lost: Site, directory: Path, database_url: str = "") -> None:
        values = {**lost.values, "namespace": {"url": database_url}}
        self.settings: Settings = write_settings(directory, values)
        for made in (self.settings.run_dir, self.settings.log_dir):
            made.mkdir(parents=True, exist_ok=True)
        self.settings.credentials_file.touch(0o600)
        self.settings.credentials_file.write_text(credentials())
        self._lost = lost
        self.said: list[str] = []

    def restore(self, **how: Any) -> Restored:
        """Restore it, and let fsck find nothing wrong."""
        restored = NamespaceRestore(self.settings, self.said.append).run(**{"is_gone": True, **how})
        found = self.problems()
        assert found == [], found
        return restored

    def problems(self) -> list[str]:
        """Return what fsck finds, but for the files that are known to be damaged."""
        database = Database(self.settings.database_url)
        try:
            found = fsck.check(database, DataFiles(self.settings.files_dir))
        finally:
            database.close()
        return [
            f"{problem.check}: {problem.detail}" for problem in found if problem.check != "damaged"
        ]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        database = Database(self.settings.database_url)
        try:
            with database.reader() as connection:
                return list(connection.execute(sql).fetchall())
        finally:
            database.close()

    def contents(self) -> dict[str, bytes]:
        """Return what each file that is not damaged has, by its path: the bytes of its object."""
        found = {}
        objects = self._lost.objects()
        rows = self.rows(
            "SELECT object.key, inode.size, inode.residency FROM inode "
            "JOIN object ON object.ino = inode.ino "
            "WHERE inode.ino NOT IN (SELECT ino FROM damage) AND inode.nlink > 0"
        )
        for key, size, residency in rows:
            path = key.removeprefix(f"{PREFIX}/")
            assert residency == Residency.ABSENT, path
            assert len(objects[path]) == size, path
            found[path] = objects[path]
        return found
