"""The copy of the settings that is made in this process, and an ``admin.db`` for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from admin_api import store
from admin_api.access.principal import Role
from admin_api.access.tokens import create
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.objectstore.ownership import guarded
from gateway.objectstore.s3 import S3Store
from gateway.recovery.copy_objects import BucketObjects
from gateway.recovery.settings_copy import SettingsCopy
from gateway.recovery.settings_store import SettingsDocument, SettingsStore
from tests.support.drainsite import Site


class CopiedSettings:
    """The copy of the settings of a gateway."""

    def __init__(self, site: Site) -> None:
        self.database = Database(site.settings.database_url)
        self.s3 = guarded(S3Store(site.settings), site.settings, self.database)
        self.store = SettingsStore(BucketObjects(site.settings, self.s3))
        self.copy = SettingsCopy(site.settings, self.database, self.store)

    def look(self) -> str:
        """Copy what changed. Returns what is wrong."""
        self.copy._due_at = 0.0
        self.copy.step()
        return self.copy.progress().error

    def documents(self) -> list[SettingsDocument]:
        """Return what the bucket has, the oldest first."""
        return [self.store.read(found) for found in self.store.documents()]


@contextmanager
def copied_settings(site: Site) -> Iterator[CopiedSettings]:
    """Copy the settings of a gateway."""
    made = CopiedSettings(site)
    try:
        yield made
    finally:
        made.database.close()


def make_token(settings: Settings, name: str = "person") -> str:
    """Make a token. Returns the text that its owner sends."""
    with closing(store.open_store(settings)) as database, database.writing() as session:
        return create(session, name, Role.ADMIN, None, "tests")[1]


def tokens_in(admin_db: bytes | None) -> list[str]:
    """Return the names of the tokens that a copy has."""
    assert admin_db is not None
    with closing(sqlite3.connect(":memory:")) as kept:
        kept.deserialize(admin_db)
        return [name for (name,) in kept.execute("SELECT name FROM token ORDER BY created_ns")]
