"""``python -m gateway.processes.cache --config PATH``: hydrates and evicts."""

from __future__ import annotations

import logging
import resource
import sys
import threading
from functools import partial

from gateway.cache.evictor import RETRY_SECONDS, Evictor
from gateway.cache.hydrator import Hydrator
from gateway.common.errors import NamespaceError, UserError
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.objectstore.ownership import guarded
from gateway.objectstore.s3 import S3Store
from gateway.processes.daemon import Daemon
from gateway.rpc import control

log = logging.getLogger("cache")

LOCK = "cache.lock"
STOP_SECONDS = 4.5
"""A request to a silent bucket, or a sync of a slow disk, is not waited for any longer."""


def main() -> int:
    """Run the process. Returns the exit status: 0 if it was told to stop, 1 if a person must act
    first."""
    process = Daemon("cache", __doc__, STOP_SECONDS)
    # Each file that is being fetched is open.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        settings = process.settings()
        # A second one would write unverified bytes where the first has verified some.
        process.alone(settings, LOCK)
        hydrator = Hydrator(settings, process.stop)
    except (UserError, NamespaceError) as exc:
        print(exc, file=sys.stderr)
        return 1
    evict = threading.Thread(target=_evict, args=(settings, hydrator, process.stop), daemon=True)
    evict.start()
    process.watched(settings, lambda: hydrator.rounds)
    hydrator.run()
    return process.end()


def _evict(settings: Settings, hydrator: Hydrator, stop: threading.Event) -> None:
    """Keep room on the disk until stop is set."""
    database = Database(settings.database_url)
    evictor = Evictor(
        settings,
        database,
        guarded(S3Store(settings), settings, database, stop),
        partial(control.opened, settings, control.BACKGROUND_SECONDS),
        lambda: hydrator.fetched_bytes,
        stop,
    )
    hydrator.show("evictor", evictor.counts)
    seconds = 0.0
    while not stop.wait(seconds):
        try:
            seconds = evictor.step()
        except Exception:
            # What is not foreseen must not end evictions: the disk would fill.
            log.exception("unexpected")
            seconds = RETRY_SECONDS


if __name__ == "__main__":
    sys.exit(main())
