"""Puts fetched blocks on stable storage, and only then writes them into the durable map."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from gateway.cache.blockmap import State
from gateway.cache.board import Board
from gateway.cache.clients import Clients
from gateway.cache.datafile import DataFile
from gateway.cache.hydration import SAVE_SECONDS, Hydration, now
from gateway.cache.rows import Rows, Saved, Source
from gateway.data.layout import DataFiles
from gateway.errors import NamespaceError

log = logging.getLogger("cache")

SYNCS = 4
"""Files that are synced at the same time."""
TOGETHER = 64
"""Files in one transaction: the NFS server waits for it."""


class Saver:
    """Saves the hydrations of a board. Parameters: board, rows, files, clients."""

    def __init__(self, board: Board, rows: Rows, files: DataFiles, clients: Clients) -> None:
        self._board = board
        self._rows = rows
        self._files = files
        self._clients = clients
        self._pool = ThreadPoolExecutor(SYNCS, thread_name_prefix="sync")

    def save_due(self, is_last: bool = False) -> None:
        """Save what is due, or (is_last) everything that can be saved."""
        at = now() + SAVE_SECONDS if is_last else now()
        with self._board.lock:
            due = [one for one in self._board if one.is_save_due(at)][:TOGETHER]
            taken = [(one, one.data, one.source, list(one.map.all(State.PRESENT))) for one in due]
            for one in due:
                one.users += 1
                one.unsaved_bytes, one.unsaved_since = 0, 0.0
        synced = list(self._pool.map(self._sync, [data for _, data, _, _ in taken]))
        saved = []
        with self._board.lock:
            for (one, _, source, blocks), error in zip(taken, synced, strict=True):
                if error is not None:
                    self._condemn(one, source, error)
                    continue
                for block in blocks:
                    one.map[block] = State.DURABLE
                saved.append((one, source))
        try:
            self._record(saved)
        finally:
            with self._board.lock:
                for one in due:
                    one.users -= 1
                self._board.changed(*due)

    def _sync(self, data: DataFile | None) -> OSError | None:
        assert data is not None
        try:
            data.sync(self._files)
        except OSError as exc:
            return exc
        return None

    def _condemn(self, one: Hydration, source: Source | None, error: OSError) -> None:
        """The kernel reports a failed sync once: no block of the file is believed any more."""
        assert source is not None
        one.error = f"its data file could not be synced: {error.strerror}"
        log.error("%s: %s: it is fetched again", one.path, one.error)
        one.is_condemned = one.needs_look = one.is_untold = True
        self._board.later(one, SAVE_SECONDS)
        self._board.changed(one)
        self._clients.failed(one.ino, source.epoch, is_all=True)

    def _record(self, synced: list[tuple[Hydration, Source | None]]) -> None:
        rows = []
        for one, source in synced:
            assert source is not None
            with self._board.lock:
                # A file that arrives needs no map, unless the server cannot be told. Blocks that
                # came during the sync are present and not durable: another save follows.
                needs_map = not one.is_durable or not self._clients.is_up
                bits = one.map.durable() if needs_map else None
            if bits is not None:
                rows.append(Saved(source.ino, source.epoch, source.block_bytes, bits))
        outdated: set[int] = set()
        try:
            if rows:
                outdated = self._rows.save(rows)
        except NamespaceError as exc:
            log.warning("cannot record which blocks are on the disk: %s", exc)
            with self._board.lock:
                for one, _ in synced:
                    one.unsaved_since, one.arrive_at = now(), now() + SAVE_SECONDS
            return
        with self._board.lock:
            for one, source in synced:
                if one.ino in outdated:
                    one.needs_look = True
                    self._board.changed(one)
                elif one.is_durable and source is not None and not one.needs_look:
                    one.is_arriving = True
                    self._clients.arrived(one.ino, source.epoch, source.content_version)
