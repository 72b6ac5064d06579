"""Hydrator: the threads that fetch what clients wait for, and what a person wants on the disk.

Threads that fetch take steps from the scheduler. One more takes only what clients wait for: with
limited rates all others may wait for their turn with requests that no client needs. One thread
saves: it puts blocks on stable storage and records them. One thread looks for files that no client
waits for. Two talk to the NFS server.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gateway.cache.eviction import DiskSpace, look
from gateway.cache.fetch import BUFFER_BYTES, Saver, fetch
from gateway.cache.fetch_recovery import FetchRecovery, trouble_of
from gateway.cache.fetch_scheduler import FetchScheduler, Step
from gateway.cache.hydration import BlockState, Hydration, now
from gateway.cache.prefetch import Prefetcher
from gateway.cache.rows import Rows
from gateway.cache.waiting_clients import WaitingClients
from gateway.common.errors import (
    NamespaceError,
    ObjectRefused,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from gateway.common.process import ReportFile
from gateway.common.retry import jittered_seconds
from gateway.common.types import Attr
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.imported import AnyRanges
from gateway.objectstore.pace import Pace, Rates
from gateway.objectstore.ranges import is_archived
from gateway.rpc.frames import ALL_BYTES, Op, RpcRequest

log = logging.getLogger("cache")

START_POLL_SECONDS = 0.25
FIND_SECONDS = 1.0
FILES_PER_WORKER = 16
"""The files for each thread that no client waits for and that are found ahead. A thread that has
fetched a small file would otherwise have none until the next look."""
PAUSE_SECONDS = 1.0
"""The pause after a failure that says nothing of the object."""
ALONE_MAX_SECONDS = 60.0
"""The longest pause of a file whose requests fail while the bucket gives others."""
FULL_SECONDS = 2.0
"""The pause of all files when the disk is full."""
GIVE_WAY_SECONDS = 5.0
"""So long what clients wait for waits for evictions, which take about a second."""
STOP_SECONDS = 2.0


class Hydrator:
    """The hydrator of one data directory.

    Args:
        stop: ends it.
    """

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        cache = settings.cache
        self._stop = stop
        self._settings = settings
        files = DataFiles(settings.files_dir)
        rows = Rows(Database(settings.database_url))
        self._scheduler = FetchScheduler(cache.workers)
        self._crowded_at: float | None = None
        """The time since which the disk has been nearly too full for writers."""
        rates = Rates(cache.bytes_per_second, cache.requests_per_second)
        self._pace = Pace(rates, cache.workers, stop)
        self._store = AnyRanges(settings, pace=self._pace)
        self._clients = WaitingClients(settings, self._on_wanted, self._on_answer, stop)
        self._prefetcher = Prefetcher(
            self._scheduler, rows, FILES_PER_WORKER * cache.workers, cache.read_ahead
        )
        self._recovery = FetchRecovery(
            self._scheduler, rows, self._store, files, self._clients, cache, self._prefetcher.asked
        )
        self._saver = Saver(self._scheduler, rows, files, self._clients)
        self._workers = cache.workers
        self._shown: dict[str, Mapping[str, Any]] = {}
        self.rounds = 0
        """The looks for what is to be fetched, for a watchdog."""
        self._status = ReportFile(settings.run_dir / datadir.CACHE, self._report)

    @property
    def fetched_bytes(self) -> int:
        """The bytes that were written to the disk since the start."""
        with self._scheduler.lock:
            return int(self._scheduler.counters["fetched_bytes"])

    def show(self, name: str, facts: Mapping[str, Any]) -> None:
        """Add facts to the report, as they are whenever it is written."""
        self._shown[name] = facts

    def run(self) -> None:
        """Work until stop is set. Then return within a few seconds."""
        threads = self._clients.start()
        for run in (self._save, self._find, self._serve, *[self._work] * self._workers):
            threads.append(threading.Thread(target=run, name=run.__name__, daemon=True))
            threads[-1].start()
        self._stop.wait()
        self._clients.close()
        with self._scheduler.lock:
            self._scheduler.wake_all()
        until = now() + STOP_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - now()))
        self._status.close()

    def _serve(self) -> None:
        self._work(for_clients=True)

    def _work(self, for_clients: bool = False) -> None:
        buffer = bytearray(BUFFER_BYTES)
        # Before that, an arrival that an earlier hydrator sent could make a file resident which
        # this one has begun to write.
        while not self._clients.was_up.wait(START_POLL_SECONDS) and not self._stop.is_set():
            pass
        while not self._stop.is_set():
            with self._scheduler.lock:
                step = self._scheduler.choose(for_clients)
                if step is None:
                    # The end wakes all threads once, after stop was set.
                    if not self._stop.is_set():
                        self._scheduler.wait_for_step(for_clients)
                    continue
            try:
                self._take(step, buffer)
            finally:
                with self._scheduler.lock:
                    self._scheduler.end(step)

    def _take(self, step: Step, buffer: bytearray) -> None:
        """Take one step. Whatever goes wrong, it is tried again."""
        hydration, blocks = step
        began = now()
        try:
            if blocks is None:
                self._recovery.look(hydration)
            else:
                self._fetch(hydration, blocks, buffer)
                # Fast readers fill a small disk between two of the looks that _find takes.
                self._look_at_disk()
        except (StoreUnavailable, StoreRefused) as exc:
            self._store_failed(hydration, exc, began)
        except NamespaceError as exc:
            log.warning("%s: %s", hydration.path, exc)
            self._pause(hydration)
        except OSError as exc:
            self._disk_failed(hydration, exc)
        except Exception:
            log.exception("%s: unexpected", hydration.path)
            self._pause(hydration)

    def _fetch(self, hydration: Hydration, blocks: range, buffer: bytearray) -> None:
        source, place, data = hydration.source, hydration.place, hydration.data
        assert source is not None
        assert place is not None
        assert data is not None

        def report(block: int) -> bool:
            with self._scheduler.lock:
                if self._stop.is_set() or hydration.is_condemned:
                    return False
                hydration.arrived(block, now())
                self._scheduler.counters["blocks"] += 1
                self._scheduler.counters["fetched_bytes"] += source.bytes_of(block)
                self._scheduler.bucket.worked()
                if hydration.is_asked:
                    self._recovery.tell(hydration, range(block, block + 1))
                return True

        def is_wanted() -> bool:
            return any(block in hydration.wanted for block in blocks)

        try:
            fetch(self._store, source, place, data, blocks, report, is_wanted, buffer)
        except ObjectRefused as exc:
            with self._scheduler.lock:
                self._scheduler.bucket.worked()
                left = [block for block in blocks if hydration.map[block] is BlockState.TAKEN]
                hydration.failed(trouble_of(exc, left[0]), exc)
                self._scheduler.counters["retries"] += not is_archived(exc)

    def _store_failed(self, hydration: Hydration, exc: StoreError, began: float) -> None:
        if isinstance(exc, StoreRefused):
            self._store.reload()
        throttles = self._pace.counters()["throttles"]
        scheduler, alone = self._scheduler, hydration.alone
        with scheduler.lock:
            scheduler.counters["retries"] += 1
            is_alone = alone.failed(began, now(), scheduler.bucket.worked_at, throttles)
            if alone.is_lasting(now()):
                hydration.refused(f"the bucket gives other files, but not this one: {exc}")
                scheduler.wake(hydration)
            elif is_alone:
                pause_seconds = jittered_seconds(alone.failures, ALONE_MAX_SECONDS)
                scheduler.later(hydration, max(PAUSE_SECONDS, pause_seconds))
            else:
                scheduler.bucket.failed(exc)
                scheduler.later(hydration, PAUSE_SECONDS)

    def _disk_failed(self, hydration: Hydration, exc: OSError) -> None:
        self._pause(hydration)
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            with self._scheduler.lock:
                if not self._scheduler.is_full():
                    log.error("the disk is full: nothing is fetched (%s)", hydration.path)
                self._scheduler.full_until = now() + FULL_SECONDS
            return
        log.error("%s: its data file cannot be written: %s", hydration.path, exc.strerror)
        source = hydration.source
        if source is not None:
            with self._scheduler.lock:
                hydration.wanted.clear()
                self._clients.failed(hydration.ino, source.epoch)

    def _pause(self, hydration: Hydration) -> None:
        with self._scheduler.lock:
            self._scheduler.later(hydration, PAUSE_SECONDS)

    def _save(self) -> None:
        while not self._stop.is_set():
            with self._scheduler.lock:
                if not any(hydration.is_save_due(now()) for hydration in self._scheduler):
                    if not self._stop.is_set():
                        self._scheduler.wait_for_save()
                    continue
            self._guarded(self._saver.save_due)
        self._guarded(lambda: self._saver.save_due(is_last=True))

    def _find(self) -> None:
        # The first client that waits does not wait for the making of the bucket's client too.
        with suppress(StoreError):
            self._store.address()
        self._look_at_disk()
        self._guarded(self._prefetcher.load)
        while not self._stop.wait(FIND_SECONDS):
            self.rounds += 1
            if self._look_at_disk():
                self._guarded(self._prefetcher.find)
            with self._scheduler.lock:
                files = list(self._scheduler)
                for hydration in files:
                    if hydration.retry_at and hydration.retry_at <= now():
                        hydration.forgive_all()
            for hydration in files:
                self._recovery.expire(hydration)

    def _look_at_disk(self) -> bool:
        """Tell the scheduler how full the disk is. Returns whether it has space for bytes that
        no client waits for."""
        disk: DiskSpace | None = None
        with suppress(OSError):
            disk = look(self._settings)
        with self._scheduler.lock:
            self._scheduler.has_room = disk is not None and not disk.is_short
            self._scheduler.gives_way = self._gives_way(disk)
            return self._scheduler.has_room

    def _gives_way(self, disk: DiskSpace | None) -> bool:
        """Return whether nothing is fetched because writers need the space that is left.

        It ends after GIVE_WAY_SECONDS also if the disk stays full: if nothing on it can be evicted,
        clients would otherwise wait for ever.
        """
        if disk is None or not disk.is_nearly_slow:
            self._crowded_at = None
            return False
        if self._crowded_at is None:
            self._crowded_at = now()
        return now() < self._crowded_at + GIVE_WAY_SECONDS

    def _guarded(self, run: Callable[[], None]) -> None:
        """Run something that is tried again later anyway."""
        try:
            run()
        except NamespaceError as exc:
            log.warning("cannot read or write what is known of files: %s", exc)
            self._stop.wait(PAUSE_SECONDS)
        except Exception:
            log.exception("unexpected")
            self._stop.wait(PAUSE_SECONDS)

    def _on_wanted(self, attr: Attr, offset: int, length: int, session: int) -> None:
        with self._scheduler.lock:
            known = self._scheduler.get(attr.ino)
            if known is not None and known.source is not None:
                known.needs_look |= known.source.epoch != attr.epoch
            hydration = self._scheduler.ask(attr.ino, offset, length)
            source = hydration.source
            if source is None or hydration.needs_look:
                return
            is_new, hydration.session = session != hydration.session, session
            for run in hydration.map.present():
                start = run.start * source.block_bytes
                end = run.stop * source.block_bytes
                if is_new or (start < offset + length and offset < end):
                    self._recovery.tell(hydration, run)

    def _on_answer(self, request: RpcRequest, status: int | None) -> None:
        with self._scheduler.lock:
            hydration = self._scheduler.get(request.ino)
            source = None if hydration is None else hydration.source
            if hydration is None or source is None or source.epoch != request.ino2:
                return
            if request.length == ALL_BYTES:
                hydration.is_untold = status not in (0, errno.ESTALE)
                if hydration.is_untold and not self._stop.is_set():
                    self._clients.failed(request.ino, request.ino2, is_all=True)
            elif status == errno.ESTALE:
                hydration.needs_look, hydration.is_arriving = True, False
            elif request.op is Op.ARRIVED:
                self._on_arrived(hydration, status == 0)
            self._scheduler.changed(hydration)

    def _on_arrived(self, hydration: Hydration, is_known: bool) -> None:
        hydration.is_arriving = False
        if is_known:
            self._scheduler.counters["files_arrived"] += 1
            # The look finds that the file is resident, and ends the hydration.
            hydration.needs_look = True
        else:
            hydration.arrive_at = now() + PAUSE_SECONDS

    def _report(self) -> dict[str, Any]:
        report = {
            "state": "stopped" if self._stop.is_set() else "running",
            **self._scheduler.shown(),
        }
        counters = self._pace.counters()
        report["counters"] |= {"requests": counters["requests"], "asked_bytes": counters["bytes"]}
        report["answers"] = self._pace.answers()
        more = {name: dict(facts) for name, facts in self._shown.items()}
        return {**report, "server": self._clients.is_up, **more}
