"""``python -m gateway.processes.recovery --config PATH``: copies the names into the bucket, looks
for damage, and imports what other programs have."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any

from gateway.common.errors import NamespaceError, StoreError, UserError
from gateway.common.process import ReportFile
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.objectstore.ownership import Ownership, guarded
from gateway.objectstore.s3 import S3Store
from gateway.processes.daemon import Daemon
from gateway.recovery.importer import Importer
from gateway.recovery.names_copy import NamesCopy
from gateway.recovery.names_store import NamesStore
from gateway.recovery.scrub import Scrub

log = logging.getLogger("recovery")

LOCK = "recovery.lock"
STOP_SECONDS = 4.5
NICENESS = 10
"""The NFS server and the drain go first: what waits here costs no client anything."""
RETRY_SECONDS = 2.0
OFF_SECONDS = 60.0
SCRUB_AFTER_SECONDS = 300.0
"""A gateway that has just started has more urgent work for its disk and its bucket."""


class Recovery:
    """The work of this process.

    Args:
        settings: of the gateway.
        database: of the gateway.
        store: with the permit of the gateway.
    """

    def __init__(self, settings: Settings, database: Database, store: S3Store) -> None:
        self._is_on = settings.recovery.names_in_bucket
        self._names = NamesCopy(settings, database, NamesStore(settings, store))
        self.rounds = 0
        """For a watchdog."""

    def step(self) -> float:
        """Do what is due. Returns after how many seconds something may be due again."""
        self.rounds += 1
        try:
            if not self._is_on:
                self._names.leave()
                return OFF_SECONDS
            return max(0.0, self._names.step())
        except NamespaceError as exc:
            log.warning("the names wait for the database: %s", exc)
            return RETRY_SECONDS

    def report(self) -> dict[str, Any]:
        """Return what a person should see."""
        return {"names": self._names.progress()._asdict()}


def main() -> int:
    """Run the process. Returns the exit status: 0 if it was told to stop, 1 if a person must act
    first."""
    process = Daemon("recovery", __doc__, STOP_SECONDS)
    try:
        settings = process.settings()
        # Two of them would write one log.
        process.alone(settings, LOCK)
    except (UserError, NamespaceError) as exc:
        print(exc, file=sys.stderr)
        return 1
    os.nice(NICENESS)
    database = Database(settings.database_url)
    ownership = Ownership(settings, database, process.stop)
    store = S3Store(settings)
    ownership.guard(store)
    recovery = Recovery(settings, database, store)
    report = ReportFile(settings.run_dir / datadir.RECOVERY, recovery.report)
    scrub = threading.Thread(target=_scrub, args=(settings, process.stop), daemon=True)
    scrub.start()
    imports = threading.Thread(target=_import, args=(settings, process.stop), daemon=True)
    imports.start()
    process.watched(settings, lambda: recovery.rounds)
    seconds = 0.0
    while not process.stop.wait(seconds):
        try:
            seconds = recovery.step()
        except (OSError, StoreError) as exc:
            log.warning("%s", exc)
            seconds = RETRY_SECONDS
        except Exception:
            # What is not foreseen must not end the copy.
            log.exception("unexpected")
            seconds = RETRY_SECONDS
    report.close()
    ownership.release()
    return process.end()


def _scrub(settings: Settings, stop: threading.Event) -> None:
    """Look for damage until stop is set, on a thread of its own: names never wait for it."""
    database = Database(settings.database_url)
    scrub = Scrub(settings, database, guarded(S3Store(settings), settings, database, stop), stop)
    seconds = SCRUB_AFTER_SECONDS
    while not stop.wait(seconds):
        try:
            seconds = scrub.step()
        except Exception:
            # What is not foreseen must not end the scrub.
            log.exception("unexpected")
            seconds = SCRUB_AFTER_SECONDS


def _import(settings: Settings, stop: threading.Event) -> None:
    """Carry imports out until stop is set, on a thread of its own: names never wait for it."""
    importer = Importer(settings, Database(settings.database_url), stop)
    seconds = 0.0
    while not stop.wait(seconds):
        try:
            seconds = importer.step()
        except Exception:
            # What is not foreseen must not end the imports.
            log.exception("unexpected")
            seconds = RETRY_SECONDS


if __name__ == "__main__":
    sys.exit(main())
