"""Fetches of blocks from the bucket: each block is verified, then stored, then recorded.

The durable map names a block only when its bytes are on stable storage (``Saver``). Otherwise a
power cut would leave blocks that the map calls verified and the disk does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from awscrt.checksums import crc64nvme

from gateway.cache.fetch_scheduler import FetchScheduler
from gateway.cache.hydration import SAVE_SECONDS, BlockState, DataFile, Hydration, now
from gateway.cache.rows import AbsentSource, Rows, Saved
from gateway.cache.waiting_clients import WaitingClients
from gateway.common.errors import NamespaceError, WrongBytes
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.bodies import Incoming
from gateway.objectstore.checksums import CRC_BYTES
from gateway.objectstore.imported import AnyRanges
from gateway.objectstore.objects import MIB, etag_of
from gateway.objectstore.pace import Goes
from gateway.objectstore.ranges import ObjectLocation

log = logging.getLogger("cache")

SYNCS = 4
"""Files that are synced at the same time."""
TOGETHER = 64
"""Files in one transaction: the NFS server waits for it."""


class Saver:
    """Saves the hydrations of a scheduler."""

    def __init__(
        self, scheduler: FetchScheduler, rows: Rows, files: DataFiles, clients: WaitingClients
    ) -> None:
        self._scheduler = scheduler
        self._rows = rows
        self._files = files
        self._clients = clients
        self._pool = ThreadPoolExecutor(SYNCS, thread_name_prefix="sync")

    def save_due(self, is_last: bool = False) -> None:
        """Save what is due, or (is_last) everything that can be saved."""
        at = now() + SAVE_SECONDS if is_last else now()
        with self._scheduler.lock:
            due = [hydration for hydration in self._scheduler if hydration.is_save_due(at)][
                :TOGETHER
            ]
            taken = [
                (
                    hydration,
                    hydration.data,
                    hydration.source,
                    list(hydration.map.all(BlockState.PRESENT)),
                )
                for hydration in due
            ]
            for hydration in due:
                hydration.users += 1
                hydration.unsaved_bytes, hydration.unsaved_since = 0, 0.0
        synced = list(self._pool.map(self._sync, [data for _, data, _, _ in taken]))
        saved = []
        with self._scheduler.lock:
            for (hydration, _, source, blocks), error in zip(taken, synced, strict=True):
                if error is not None:
                    self._condemn(hydration, source, error)
                    continue
                for block in blocks:
                    hydration.map[block] = BlockState.DURABLE
                saved.append((hydration, source))
        try:
            self._record(saved)
        finally:
            with self._scheduler.lock:
                for hydration in due:
                    hydration.users -= 1
                self._scheduler.changed(*due)

    def _sync(self, data: DataFile | None) -> OSError | None:
        assert data is not None
        try:
            data.sync(self._files)
        except OSError as exc:
            return exc
        return None

    def _condemn(self, hydration: Hydration, source: AbsentSource | None, error: OSError) -> None:
        """The kernel reports a failed sync once: no block of the file is believed any more."""
        assert source is not None
        hydration.error = f"its data file could not be synced: {error.strerror}"
        log.error("%s: %s: it is fetched again", hydration.path, hydration.error)
        hydration.is_condemned = hydration.needs_look = hydration.is_untold = True
        self._scheduler.later(hydration, SAVE_SECONDS)
        self._scheduler.changed(hydration)
        self._clients.failed(hydration.ino, source.epoch, is_all=True)

    def _record(self, synced: list[tuple[Hydration, AbsentSource | None]]) -> None:
        rows, digests = [], []
        for hydration, source in synced:
            assert source is not None
            with self._scheduler.lock:
                # A file that arrives needs no map, unless the server cannot be told. Blocks that
                # came during the sync are present and not durable: another save follows.
                needs_map = not hydration.is_durable or not self._clients.is_up
                bits = hydration.map.durable() if needs_map else None
                learned = source.digests() if hydration.is_durable else None
            if learned is not None:
                digests.append((source, learned))
            if bits is not None:
                rows.append(Saved(source.ino, source.epoch, source.block_bytes, bits))
        outdated: set[int] = set()
        try:
            for source, learned in digests:
                # Before the file arrives: what has digests may be evicted again.
                self._rows.save_digests(source, learned)
            if rows:
                outdated = self._rows.save(rows)
        except NamespaceError as exc:
            log.warning("cannot record which blocks are on the disk: %s", exc)
            with self._scheduler.lock:
                for hydration, _ in synced:
                    hydration.unsaved_since, hydration.arrive_at = now(), now() + SAVE_SECONDS
            return
        with self._scheduler.lock:
            for hydration, source in synced:
                if hydration.ino in outdated:
                    hydration.needs_look = True
                    self._scheduler.changed(hydration)
                elif hydration.is_durable and source is not None and not hydration.needs_look:
                    hydration.is_arriving = True
                    self._clients.arrived(hydration.ino, source.epoch, source.content_version)


BUFFER_BYTES = MIB


def fetch(
    store: AnyRanges,
    source: AbsentSource,
    place: ObjectLocation,
    data: DataFile,
    blocks: range,
    report: Callable[[int], bool],
    goes_first: Goes,
    buffer: bytearray,
) -> None:
    """Fetch blocks that follow each other, with one request. A block is written while it comes.

    Blocks that the data file has already (an earlier run was killed before it could record them)
    are verified and not fetched: the NFS server may be serving them, so nothing is written there
    that was not verified.

    Raises WrongBytes for the first block whose digest differs; OSError of the data file; and as
    ``Ranges.get``.

    Args:
        place: where the object is.
        report: called with each block that is verified and written, in order, which returns whether
            to continue.
        goes_first: for the pace.
        buffer: buffer of BUFFER_BYTES.
    """
    for run in _absent(data, blocks, report, buffer):
        start = run.start * source.block_bytes
        end = min(run.stop * source.block_bytes, source.size)
        with store.get(place, start, end - start, goes_first) as body:
            if source.learned is not None and etag_of(_described(body)) != place.etag:
                # Not every store heeds If-Match, and no digest would show other bytes.
                raise WrongBytes(f"{place.key}: the object is not the one that was recorded")
            for block in run:
                crc = _receive(body, source, data, block, buffer)
                if crc != source.crc(block) and (crc is None or source.learned is None):
                    at = block * source.block_bytes
                    raise WrongBytes(
                        f"{place.key}: bytes {at} to {at + source.bytes_of(block) - 1} are not "
                        "those that were stored"
                    )
                if crc is not None:
                    source.learn(block, crc)
                if not report(block):
                    return


def _described(body: Incoming) -> dict[str, str]:
    return {"ETag": body.headers.get("etag", "")}


def _receive(
    body: Incoming, source: AbsentSource, data: DataFile, block: int, buffer: bytearray
) -> bytes | None:
    """Write the next block of a body. Returns its digest, or None if it ended early."""
    at, left, crc = block * source.block_bytes, source.bytes_of(block), 0
    while left:
        view = memoryview(buffer)[: min(left, len(buffer))]
        count = body.readinto(view)
        crc = crc64nvme(view[:count], crc)
        data.write(buffer, count, at)
        at, left = at + count, left - count
        if count < len(view):
            return None
    receive: bytes = crc.to_bytes(CRC_BYTES, "big")
    return receive


def _absent(
    data: DataFile, blocks: range, report: Callable[[int], bool], buffer: bytearray
) -> Iterator[range]:
    """Yield the runs of blocks that must be fetched. Report the others."""
    if not data.was_there:
        yield blocks
        return
    start = blocks.start
    for block in blocks:
        if data.has(block, buffer):
            if start < block:
                yield range(start, block)
            start = block + 1
            if not report(block):
                return
    if start < blocks.stop:
        yield range(start, blocks.stop)
