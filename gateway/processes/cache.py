"""``python -m gateway.processes.cache --config PATH``: hydrates and evicts."""

from __future__ import annotations

import resource
import sys
import threading
from functools import partial

from gateway.cache.evictor import RETRY_SECONDS, Evictor
from gateway.cache.hydrator import Hydrator
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.objectstore.ownership import guarded
from gateway.objectstore.s3 import S3Store
from gateway.processes.daemon import Daemon
from gateway.rpc import control

LOCK = "cache.lock"
STOP_SECONDS = 4.5
"""A request to a silent bucket, or a sync of a slow disk, is not waited for any longer."""


def main() -> int:
    """Run the process. Returns the exit status if it was told to stop."""
    process = Daemon("cache", __doc__, STOP_SECONDS)
    # Each file that is being fetched is open.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with process.starting():
        settings = process.settings()
        # A second one would write unverified bytes where the first has verified some.
        process.alone(settings, LOCK)
        hydrator = Hydrator(settings, process.stop)
    threading.Thread(target=_evict, args=(process, settings, hydrator), daemon=True).start()
    process.watched(settings, lambda: hydrator.rounds)
    hydrator.run()
    return process.end()


def _evict(process: Daemon, settings: Settings, hydrator: Hydrator) -> None:
    """Keep room on the disk."""
    database = Database(settings.database_url)
    evictor = Evictor(
        settings,
        database,
        guarded(S3Store(settings), settings, database, process.stop),
        partial(control.opened, settings, control.BACKGROUND_SECONDS),
        lambda: hydrator.fetched_bytes,
        process.stop,
    )
    hydrator.show("evictor", evictor.counts)
    process.repeat(evictor.step, 0.0, RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
