"""Helpers of the tests of a PostgreSQL failover: settings, and calls that are repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gateway.common.errors import TryAgain
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from tests.support.volumes import make_settings, make_volume
from tests.support.waiting import until

T = TypeVar("T")


def persist(call: Callable[[], T]) -> T:
    """Repeat a call until it is answered, as an NFS client does after NFS4ERR_DELAY."""

    def attempt() -> list[T]:
        try:
            return [call()]
        except TryAgain:
            return []

    return until(attempt, "an answer", 60.0)[0]


def settings_at(url: str, tmp_path: Path) -> Settings:
    settings = make_settings(tmp_path / "data", {"namespace": {"url": url}})
    make_volume(settings)
    return settings


def clean(settings: Settings) -> bool:
    return fsck.check(Database(settings.database_url), DataFiles(settings.files_dir)) == []
