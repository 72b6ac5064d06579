"""Volumes for tests: directories, database, root, as ``spillway init`` makes them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import text

from gateway.common.models import from_json, to_json
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.db import upgrade
from gateway.db.engine import Database
from gateway.db.models import CHECKPOINTS_INO, RESERVED_INO
from gateway.db.schema import opened
from gateway.db.sqlite import Sqlite
from gateway.namespace import volume
from gateway.namespace.data_files import DataFiles
from gateway.service import alarms
from gateway.service.status import Status, gather_quickly

Values = Mapping[str, Mapping[str, Any]]


def make_settings(directory: Path, values: Values | None = None) -> Settings:
    """Return settings of a gateway below a directory. Values override, by section and key."""
    return loader.from_mapping(_merged(directory, values), {}, directory / "spillway.toml")


def write_settings(directory: Path, values: Values | None = None) -> Settings:
    """Make settings, and write the file of which commands and processes read them."""
    settings = make_settings(directory, values)
    directory.mkdir(parents=True, exist_ok=True)
    settings.source.write_text(loader.render(_merged(directory, values)))
    return settings


def _merged(directory: Path, values: Values | None) -> dict[str, dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {
        "gateway": {"data_dir": str(directory)},
        "bucket": {"name": "checkpoints"},
        "drain": {"settle_seconds": 0.0},
        "checkpoints": {"quiet_seconds": 0.0},
    }
    for section, keys in (values or {}).items():
        merged.setdefault(section, {}).update(keys)
    return merged


def make_volume(settings: Settings) -> None:
    """Make the directories and the database of ``spillway init``, without configuration files."""
    for directory in (settings.data_dir, settings.run_dir, settings.log_dir):
        directory.mkdir(parents=True, exist_ok=True)
    DataFiles(settings.files_dir).create()
    database = Database(settings.database_url)
    if isinstance(database.backend, Sqlite):
        database.backend.path.write_bytes(_migrated())
    else:
        upgrade.upgrade(database)
    volume.create(database)


def forget_reserved(settings: Settings) -> None:
    """Take the gateway's own directory away, as before there was one."""
    for table in ("dirent", "inode"):
        query(
            settings, f"DELETE FROM {table} WHERE ino BETWEEN {RESERVED_INO} AND {CHECKPOINTS_INO}"
        )


@cache
def _migrated() -> bytes:
    """Return a SQLite database with the schema and without rows. Hundreds of tests need one, and
    the migrations are half of the time of making a volume."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "namespace.db")
        upgrade.upgrade(Database(f"sqlite:///{path}"))
        assert [one.name for one in path.parent.glob("*-wal")] == []
        return path.read_bytes()


def query(settings: Settings, statement: str, **values: object) -> list[tuple[Any, ...]]:
    """Run one SQL statement, with parameters as :name, on either engine. Returns its rows."""
    engine = Database(settings.database_url).engine()
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def status_of(settings: Settings) -> dict[str, Any]:
    """Return the state of a gateway, without the bucket and without what must be counted."""
    with opened(settings.database_url) as database:
        status: dict[str, Any] = to_json(gather_quickly(settings, database))
        return status


def alarms_in(status: dict[str, Any]) -> dict[str, int]:
    """Return the alarms of a state that ``status_of`` returned."""
    return alarms.of(from_json(Status, status))
