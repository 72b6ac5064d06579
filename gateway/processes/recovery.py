"""``python -m gateway.processes.recovery --config PATH``: copies names and settings to the bucket,
looks for damage, makes drills of a restore, and imports what other programs have."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

from gateway.common import clock
from gateway.common.errors import NamespaceError, StoreError
from gateway.common.process import ReportFile, yield_to_clients
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.objectstore.ownership import Ownership, guarded
from gateway.objectstore.s3 import S3Store
from gateway.processes.daemon import Daemon
from gateway.recovery import backup
from gateway.recovery.copy_objects import BucketObjects
from gateway.recovery.drill import DrillTimer
from gateway.recovery.importer import Importer
from gateway.recovery.names_copy import NamesCopy
from gateway.recovery.names_store import NamesStore
from gateway.recovery.scrub import Scrub
from gateway.recovery.settings_copy import SettingsCopy
from gateway.recovery.settings_store import SettingsStore

log = logging.getLogger("recovery")

LOCK = "recovery.lock"
STOP_SECONDS = 4.5
RETRY_SECONDS = 2.0
OFF_SECONDS = 60.0
BACKUP_SECONDS = 60.0
SCRUB_AFTER_SECONDS = 300.0
DRILL_AFTER_SECONDS = 600.0
"""A gateway that has just started has more urgent work for its disk and its bucket."""


class Recovery:
    """The work of this process.

    Args:
        settings: of the gateway.
        database: of the gateway.
        store: with the permit of the gateway.
    """

    def __init__(self, settings: Settings, database: Database, store: S3Store) -> None:
        self._gateway = settings
        self._database = database
        self._looked_at = 0.0
        self._is_on = settings.recovery.names_in_bucket
        objects = BucketObjects(settings, store)
        self._names = NamesCopy(settings, database, NamesStore(objects))
        self._settings = SettingsCopy(settings, database, SettingsStore(objects))
        self.rounds = 0
        """For a watchdog."""

    def step(self) -> float:
        """Do what is due. Returns after how many seconds something may be due again."""
        self.rounds += 1
        try:
            self._look_for_backups()
            if not self._is_on:
                self._names.leave()
                return OFF_SECONDS
            seconds = min(self._names.step(), self._settings.step())
            return max(0.0, seconds)
        except NamespaceError as exc:
            log.warning("names and settings wait for the database: %s", exc)
        except (OSError, StoreError) as exc:
            log.warning("%s", exc)
        return RETRY_SECONDS

    def _look_for_backups(self) -> None:
        """End what a backup that was killed has left."""
        now = clock.monotonic_seconds()
        if now - self._looked_at >= BACKUP_SECONDS or not self._looked_at:
            backup.end_left_reader(self._gateway, self._database)
            self._looked_at = now

    def report(self) -> dict[str, Any]:
        """Return what a person should see."""
        return {
            "names": self._names.progress()._asdict(),
            "settings": self._settings.progress()._asdict(),
        }


def main() -> int:
    """Run the process. Returns the exit status if it was told to stop."""
    process = Daemon("recovery", __doc__, STOP_SECONDS)
    with process.starting():
        settings = process.settings()
        # Two of them would write one log.
        process.alone(settings, LOCK)
    yield_to_clients()
    database = Database(settings.database_url)
    ownership = Ownership(settings, database, process.stop)
    store = S3Store(settings)
    ownership.guard(store)
    recovery = Recovery(settings, database, store)
    report = ReportFile(settings.run_dir / datadir.RECOVERY, recovery.report)
    # Names never wait for the others.
    for work in (_scrub, _drill, _import):
        threading.Thread(target=work, args=(process, settings), daemon=True).start()
    process.watched(settings, lambda: recovery.rounds)
    process.repeat(recovery.step, 0.0, RETRY_SECONDS)
    report.close()
    ownership.release()
    return process.end()


def _scrub(process: Daemon, settings: Settings) -> None:
    """Look for damage."""
    database = Database(settings.database_url)
    store = guarded(S3Store(settings), settings, database, process.stop)
    scrub = Scrub(settings, database, store, process.stop)
    process.repeat(scrub.step, SCRUB_AFTER_SECONDS, SCRUB_AFTER_SECONDS)


def _drill(process: Daemon, settings: Settings) -> None:
    """Make drills. Nothing is written to the bucket."""
    timer = DrillTimer(settings, Database(settings.database_url), S3Store(settings), process.stop)
    timer.begin()
    process.repeat(timer.step, DRILL_AFTER_SECONDS, DRILL_AFTER_SECONDS)


def _import(process: Daemon, settings: Settings) -> None:
    """Carry imports out."""
    importer = Importer(settings, Database(settings.database_url), process.stop)
    process.repeat(importer.step, 0.0, RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
