"""Recovery of failed fetches: reads the file's row again, and decides what clients are told.

Wrong bytes are no reason to believe that the object is damaged: it may have moved since its row was
read. So the row is read again, the bytes are asked for once more, and then an older version with
the recorded ETag is looked for. Only then clients are told EIO.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.cache.fetch_scheduler import FetchScheduler, age_seconds
from gateway.cache.hydration import WHOLE, ArchiveRestore, DataFile, Hydration, Trouble, now
from gateway.cache.rows import AbsentFileRow, AbsentSource, Rows, Saved, failure_now
from gateway.cache.waiting_clients import WaitingClients
from gateway.common import clock
from gateway.common.errors import (
    ObjectRefused,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    WrongBytes,
)
from gateway.config.settings import CacheSettings
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.imported import AnyRanges
from gateway.objectstore.ranges import is_archived

log = logging.getLogger("cache")

TRIES = 2
"""The requests for bytes that are wrong, before an older version is looked for."""
COPIED_TRIES = 10
COPIED_SECONDS = 1.0
"""More requests, and the time between them, while the drain copies the object onto itself."""
RESTORE_CHECK_SHARE = 0.1
"""A restore is asked about after this share of the time that it has taken already."""
RESTORE_CHECK_SECONDS = (1.0, 60.0)
"""The least and the most time between two such requests."""
HOUR_NS = 3600 * clock.NS
NO_OBJECT = "the bucket has no object of this version"
REFRESH = " (the file is of an import: spillway import, with the same source and path, takes what \
is there now)"


class FetchRecovery:
    """Looks at one file at a time, with nothing else being done about it.

    Args:
        on_asked: called with a file that a client has asked for, when it is first seen.
    """

    def __init__(
        self,
        scheduler: FetchScheduler,
        rows: Rows,
        store: AnyRanges,
        files: DataFiles,
        clients: WaitingClients,
        settings: CacheSettings,
        on_asked: Callable[[AbsentFileRow], None],
    ) -> None:
        self._scheduler = scheduler
        self._rows = rows
        self._store = store
        self._files = files
        self._clients = clients
        self._settings = settings
        self._on_asked = on_asked

    def look(self, hydration: Hydration) -> None:
        """Look at a file. Raises NamespaceError, OSError, StoreUnavailable, StoreRefused."""
        if hydration.is_condemned:
            self._forget(hydration)
        asks = len(hydration.asks)
        row = self._rows.find(hydration.ino)
        if row is None:
            self._end(hydration, asks)
        elif row.source is None and row.is_deleted:
            self._clients.failed(hydration.ino, row.epoch)
            self._end(hydration, asks)
        elif row.source is None:
            self.give_up(hydration, WHOLE, f"{row.path}: {NO_OBJECT}", row.epoch)
            with self._scheduler.lock:
                hydration.path = row.path
                hydration.due_at = hydration.retry_at
        elif row.source != hydration.source:
            self._adopt(hydration, row, row.source)
        else:
            self._recover(hydration)

    def _forget(self, hydration: Hydration) -> None:
        source = hydration.source
        if source is not None:
            saved = Saved(source.ino, source.epoch, source.block_bytes, None, is_forgotten=True)
            self._rows.save([saved])
        with self._scheduler.lock:
            hydration.reset()
            hydration.is_condemned = False

    def _end(self, hydration: Hydration, asks: int) -> None:
        """The file has come, was emptied, or is gone.

        Args:
            asks: what clients had asked for before the database was looked at.
        """
        if hydration.error is not None or hydration.tries:
            self._rows.save_failures([(hydration.ino, "", None)])
        with self._scheduler.lock:
            # What a client asked for since may be of a later eviction: it is looked at again.
            if len(hydration.asks) == asks:
                self._scheduler.drop(hydration)

    def _adopt(self, hydration: Hydration, row: AbsentFileRow, source: AbsentSource) -> None:
        before = hydration.source
        is_moved = before is not None and before._replace(place=source.place) == source
        # Without digests nothing shows that what was fetched is of the other object too.
        is_moved = is_moved and source.learned is None
        data = None
        if not is_moved:
            with self._scheduler.lock:
                hydration.reset()
            if row.durable is not None and not self._has_file(source):
                # The map is of a data file that is lost. A file that is made now has none of the
                # blocks, and the next start would believe the map of it.
                saved = Saved(source.ino, source.epoch, source.block_bytes, None, is_forgotten=True)
                self._rows.save([saved])
                row = row._replace(durable=None)
            data = DataFile.open(self._files, source, self._rows)
            if data is None:
                return  # evicted again meanwhile: the next look sees it
        with self._scheduler.lock:
            is_new = before is None
            hydration.adopt(row, data)
            self._resume(hydration)
        if is_new and hydration.is_asked:
            self._on_asked(row)

    def _has_file(self, source: AbsentSource) -> bool:
        """Return whether there is a data file of the right size. Raises OSError."""
        try:
            return self._files.path(source.ino, source.epoch).stat().st_size == source.size
        except FileNotFoundError:
            return False

    def tell(self, hydration: Hydration, blocks: range) -> None:
        """Tell the server that blocks are present. The scheduler's lock is held."""
        source = hydration.source
        if source is not None and blocks:
            start = blocks.start * source.block_bytes
            end = min(blocks.stop * source.block_bytes, source.size)
            self._clients.present(source.ino, source.epoch, start, end - start)

    def _recover(self, hydration: Hydration) -> None:
        """Decide about everything that went wrong since the last look."""
        if hydration.refusal is not None:
            self._give_up_refused(hydration, hydration.refusal)
        elif hydration.restore is not None and self._scheduler.hides_restore(hydration):
            self._check_restore(hydration, hydration.restore)
        for trouble in list(hydration.troubles):
            self._recover_from(hydration, trouble)
            with self._scheduler.lock:
                hydration.troubles.remove(trouble)
        with self._scheduler.lock:
            self._resume(hydration)

    def _give_up_refused(self, hydration: Hydration, reason: str) -> None:
        source = hydration.source
        assert source is not None
        self.give_up(hydration, WHOLE, reason, source.epoch)
        with self._scheduler.lock:
            hydration.refusal = None
            hydration.troubles.clear()

    def _resume(self, hydration: Hydration) -> None:
        """End a look. The scheduler's lock is held."""
        hydration.needs_look = False
        if hydration.asks:
            hydration.absorb()
            for run in hydration.map.present():
                self.tell(hydration, run)

    def _recover_from(self, hydration: Hydration, trouble: Trouble) -> None:
        source, place = hydration.source, hydration.place
        assert source is not None
        assert place is not None
        if is_archived(trouble.error):
            self._restore(hydration)
            return
        strikes = hydration.strikes[trouble.block]
        if strikes < TRIES:
            return
        if strikes < TRIES + COPIED_TRIES and self._rows.is_copied(hydration.ino):
            with self._scheduler.lock:
                self._scheduler.later(hydration, COPIED_SECONDS)
            return
        if not hydration.is_searched:
            version = self._store.other_version(source.place, source.size)
            with self._scheduler.lock:
                hydration.is_searched = True
                if version is not None:
                    hydration.place = source.place._replace(version=version)
                    self._scheduler.counters["older_versions"] += 1
            if version is not None:
                log.warning(
                    "%s: %s; reading version %s, which has the recorded ETag",
                    hydration.path, trouble.error, version,
                )  # fmt: skip
                return
        elif place.version is not None and strikes == TRIES:
            return  # this block was not asked for in the older version yet
        self.give_up(hydration, trouble.block, str(trouble.error), source.epoch)

    def give_up(self, hydration: Hydration, block: int, error: str, epoch: int) -> None:
        """Tell clients EIO, and record the reason. Raises NamespaceError.

        Args:
            block: block, or WHOLE for all that are missing.
            epoch: epoch of the data file.
        """
        key = "" if hydration.source is None else hydration.source.place.key
        if hydration.source is not None and hydration.source.place.bucket is not None:
            error += REFRESH
        with self._scheduler.lock:
            pause_seconds = self._scheduler.give_up(hydration, block, error)
            if block == WHOLE:
                is_waited_for = bool(hydration.asks or hydration.wanted)
                hydration.asks.clear()
                hydration.wanted.clear()
            else:
                # What clients have asked for since the last look is tried again, also this block.
                is_waited_for = block in hydration.wanted
                hydration.wanted.pop(block, None)
            failure = failure_now(hydration.tries, error, pause_seconds)
            if is_waited_for:
                self._clients.failed(hydration.ino, epoch)
        log.error("%s cannot be fetched: %s", hydration.path, error)
        self._rows.save_failures([(hydration.ino, key, failure)])

    def _restore(self, hydration: Hydration) -> None:
        """Ask an archived object back, if it is not on its way, and wait."""
        source, place, restore = hydration.source, hydration.place, hydration.restore
        assert source is not None
        assert place is not None
        wanted, days, asked = self._settings.restore_tier, self._settings.restore_days, None
        try:
            archived = self._store.archived(place)
            if not archived.is_on_its_way:
                asked = self._store.restore(place, archived, wanted, days)
        except StoreUnavailable:
            raise
        except StoreError as exc:
            self.give_up(hydration, WHOLE, f"archived, and not given back: {exc}", source.epoch)
            return
        if restore is None or (asked is not None and restore.expires_ns is not None):
            since_ns = self._rows.save_restore(hydration.ino, is_new=asked is not None)
            # After a restart it is not known how fast it was asked back.
            tier, hours = archived.expected_restore(asked or wanted)
            restore = ArchiveRestore(since_ns, tier, since_ns + int(hours * HOUR_NS))
            log.info("%s is archived: it is asked back (%s)", hydration.path, tier)
        with self._scheduler.lock:
            hydration.strikes.clear()
            self._wait(hydration, restore._replace(expires_ns=archived.until_ns))

    def _check_restore(self, hydration: Hydration, restore: ArchiveRestore) -> None:
        """Look whether an object is back that cannot be fetched now."""
        place = hydration.place
        assert place is not None
        try:
            archived = self._store.archived(place)
        except ObjectRefused:
            archived = None  # what is wrong with it shows when it is fetched
        with self._scheduler.lock:
            if archived is None or not archived.is_on_its_way:
                hydration.restore = None
            else:
                self._wait(hydration, restore._replace(expires_ns=archived.until_ns))

    def _wait(self, hydration: Hydration, restore: ArchiveRestore) -> None:
        hydration.restore = restore
        least, most = RESTORE_CHECK_SECONDS
        share = RESTORE_CHECK_SHARE * age_seconds(restore.since_ns)
        self._scheduler.later(hydration, min(most, max(least, share)))

    def expire(self, hydration: Hydration) -> None:
        """Tell the clients of a file that is being restored EIO when they have waited for long
        enough."""
        waited_seconds = now() - hydration.wanted_since
        source = hydration.source
        if source is None or hydration.restore is None or not hydration.wanted:
            return
        if waited_seconds >= self._settings.restore_wait_seconds:
            with self._scheduler.lock:
                hydration.wanted.clear()
                self._clients.failed(hydration.ino, source.epoch)


def trouble_of(error: StoreError, next_block: int) -> int:
    """Return what a refusal concerns: the next block, or WHOLE.

    Args:
        next_block: the first block that has not come.
    """
    assert not isinstance(error, (StoreUnavailable, StoreRefused))
    return next_block if isinstance(error, WrongBytes) else WHOLE
