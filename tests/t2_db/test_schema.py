"""Migrations make exactly the models' tables, other schemas are refused, and constraints hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy.exc import IntegrityError

from gateway.common.errors import ConfigError, SchemaError
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db import schema, upgrade
from gateway.db.checkpoint_models import Base
from gateway.db.engine import Database
from tests.support.namespace import Namespace
from tests.support.volumes import query


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return a database of which no file is there yet."""
    with closing(Database(f"sqlite:///{tmp_path / 'namespace.db'}")) as made:
        yield made


def test_migrations_make_the_models(database: Database) -> None:
    upgrade.upgrade(database)
    with database.engine().connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_migrations_make_the_constraints_of_the_models(database: Database) -> None:
    # compare_metadata does not see CHECK constraints.
    upgrade.upgrade(database)
    with database.reader() as connection:
        made = "\n".join(
            row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL")
        )
    names = [
        str(constraint.name)
        for table in Base.metadata.tables.values()
        for constraint in table.constraints
        if str(constraint.name).startswith("ck_")
    ]
    assert len(names) > 10
    assert [name for name in names if name not in made] == []


def test_upgrade_twice_changes_nothing(database: Database) -> None:
    upgrade.upgrade(database)
    upgrade.upgrade(database)
    schema.require_current(database)


def test_missing_and_empty_databases_are_named(database: Database) -> None:
    with pytest.raises(
        SchemaError, match=r"mount its disk or .*; for a new gateway: spillway init"
    ):
        schema.require_current(database)
    assert database.path is not None
    database.path.touch()
    with pytest.raises(
        SchemaError, match=r"is empty: correct .*; for a new gateway: spillway init"
    ):
        schema.require_current(database)


def test_newer_schema_is_refused(database: Database) -> None:
    upgrade.upgrade(database)
    with database.reader() as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'f00d'")
    for refuse in (upgrade.upgrade, schema.require_current):
        with pytest.raises(SchemaError, match="newer Spillway"):
            refuse(database)


def test_a_file_that_is_no_database_is_refused(database: Database) -> None:
    assert database.path is not None
    database.path.write_bytes(b"not a database" * 100)
    with pytest.raises(SchemaError, match="cannot be read"):
        schema.require_current(database)


def test_unknown_engines_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"namespace\.url"):
        Database("mysql://host/db")


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("residency = 0", "dirty_stays"),
        ("drained_version = 7", "drained_not_ahead"),
        ("residency = 1, write_open = 1", "written_is_resident"),
        ("kind = 4", "symlink_has_target"),
        ("kind = 7", "directory_has_parent"),
        ("nlink = -1", "nlink"),
        ("mode = 8192", "mode"),
    ],
)
def test_the_database_refuses_what_must_not_be(
    namespace: Namespace, settings: Settings, change: str, constraint: str
) -> None:
    attr = namespace.create(ROOT_CRED, 2, b"f", SetAttr())
    with pytest.raises(IntegrityError, match=f"ck_inode_{constraint}"):
        query(settings, f"UPDATE inode SET {change} WHERE ino = :ino", ino=attr.ino)


def test_commits_are_fsynced(settings: Settings) -> None:
    database = Database(settings.database_url)
    wanted = (
        {"synchronous": 2, "journal_mode": "wal", "foreign_keys": 1}
        if database.path
        else {"synchronous_commit": "on"}
    )
    with database.reader() as connection:
        for name, value in wanted.items():
            show = "PRAGMA" if database.path else "SHOW"
            assert connection.execute(f"{show} {name}").fetchone() == (value,)
    database.close()
