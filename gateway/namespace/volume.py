"""Volume of a namespace: made by ``spillway init``, recovered at every start of the NFS server."""

from __future__ import annotations

import errno
import logging
import secrets
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from gateway.common import clock, failpoints
from gateway.common.types import InodeKind, Sealed
from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import FIRST_COOKIE, FIRST_FREE_INO, ROOT_INO
from gateway.db.writer import Operation, Tx, Writer
from gateway.namespace import content, names, residency, rotation
from gateway.namespace.data_files import DataFiles, SyncError

log = logging.getLogger("spillway.volume")

RECOVERED_TOGETHER = 256
"""The number of files in one transaction. Each transaction costs an fsync."""


class Boot(NamedTuple):
    """The numbers of one start of the server."""

    fs_id: bytes
    boot: int
    generation: int
    """The generation of every inode made until the next start. It is random, so a restored backup
    repeats no generation."""


def create(database: Database) -> bool:
    """Make the volume row and the root directory. Returns False if they are there already."""
    connection = database.connect()
    try:
        session = Session(connection, database.dialect)
        with database.transaction(connection):
            if session.one(sql.VOLUME) is not None:
                return False
            session.run(
                sql.VOLUME_INSERT,
                id=1,
                fs_id=secrets.token_bytes(16),
                boot=0,
                next_ino=FIRST_FREE_INO,
                next_cookie=FIRST_COOKIE,
                bucket=None,
                prefix=None,
                gateway=None,
                mark=0,
            )
            _insert_root(session)
        return True
    finally:
        connection.close()


def _insert_root(session: Session) -> None:
    rotation.insert_inode(
        session,
        clock.now_ns(),
        ino=ROOT_INO,
        generation=secrets.randbits(62),
        kind=InodeKind.DIRECTORY,
        mode=0o755,
        nlink=2,
        parent=ROOT_INO,
    )


def boot(tx: Tx) -> Boot:
    """Count a start durably. The write verifier, made of the count, tells clients to resend."""
    tx.run(sql.VOLUME_BOOT)
    row = tx.one(sql.VOLUME)
    assert row is not None, "the volume row is missing"
    return Boot(row[0], row[1], secrets.randbits(62))


def recover(writer: Writer, files: DataFiles, wait_ns: int) -> tuple[int, int]:
    """Finish what the last run left open: seal written files and reclaim orphans.

    Returns how many were sealed and how many reclaimed.

    Args:
        wait_ns: how long the drain leaves these files alone, because their clients may come back
            and continue to write.
    """
    reclaimed = reclaim(writer, files)
    write_open, evicted = writer.run(_left_over)
    _finish_evictions(writer, files, evicted)
    sealed = 0
    for batch in _batches(write_open):
        seals: list[Operation[Any]] = []
        damages: list[Operation[Any]] = []
        for ino, epoch, size, mtime_ns in batch:
            data = _found(files, ino, epoch, size, mtime_ns)
            if data is None:
                damages.append(Operation(_step_change, ino))
            elif isinstance(data, str):
                log.error("inode %d: %s: it is not sealed and not drained", ino, data)
                damages.append(Operation(content.damaged, ino, data))
                damages.append(Operation(_step_change, ino))
            else:
                seals.append(Operation(content.seal, ino, data, wait_ns))
        _run(writer, [*damages, *seals])
        failpoints.hit(failpoints.RECOVER_AFTER_SEAL)
        sealed += len(seals)
    return sealed, reclaimed


def _finish_evictions(writer: Writer, files: DataFiles, evicted: Sequence[Sequence[Any]]) -> None:
    """Delete the data files of evictions that a crash interrupted."""
    while evicted:
        for ino, epoch in evicted:
            _remove(files, ino, epoch)
        # After a power cut no row would name a data file that came back.
        files.sync_shards(ino for ino, _epoch in evicted)
        evicted = writer.run(_evictions_end, evicted)


def reclaim(writer: Writer, files: DataFiles) -> int:
    """Delete the bytes of files without a name; nothing may have them open. Returns how many."""
    orphans = writer.run(_orphans)
    for batch in _batches(orphans):
        _run(writer, [Operation(names.reclaim, ino) for ino, _epoch in batch])
        failpoints.hit(failpoints.RECLAIM_BEFORE_UNLINK)
        for ino, epoch in batch:
            _remove(files, ino, epoch)
    return len(orphans)


def _remove(files: DataFiles, ino: int, epoch: int) -> None:
    """Delete a data file that no row names. One that stays costs space, and keeps no start away."""
    try:
        files.remove(ino, epoch)
    except OSError as error:
        log.error(
            "data file %s cannot be deleted (%s): check the disk, then run: spillway fsck --repair",
            *(files.path(ino, epoch), error.strerror),
        )


def _run(writer: Writer, operations: Sequence[Operation[Any]]) -> None:
    writer.run_together(operations)
    for operation in operations:
        operation.outcome()


def _batches(rows: Sequence[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, RECOVERED_TOGETHER)):
        yield batch


def _evictions_end(tx: Tx, done: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Delete the rows of evictions that are done. Returns the next ones."""
    residency.forget_evictions(tx, done)
    return residency.evictions(tx, RECOVERED_TOGETHER)


def _orphans(tx: Tx) -> list[Sequence[Any]]:
    return tx.all(sql.ORPHANS)


def _left_over(tx: Tx) -> tuple[list[Sequence[Any]], list[Sequence[Any]]]:
    """Return the files that were open for writing, and the first evictions that are not done."""
    for [ino] in tx.all(sql.DAMAGED_OPEN):
        _step_change(tx, ino)
    return tx.all(sql.WRITE_OPEN), residency.evictions(tx, RECOVERED_TOGETHER)


def _step_change(tx: Tx, ino: int) -> None:
    """Move ``change`` of a file that is not sealed: clients saw it grow with each write."""
    tx.run(sql.STEP_CHANGE, the_ino=ino, step=content.CRASH_CHANGE_STEP)
    tx.touch(ino)


def _found(files: DataFiles, ino: int, epoch: int, size: int, mtime_ns: int) -> Sealed | str | None:
    """Return what a crash left of a data file that had a writer. It is on stable storage now.

    Returns None if the file cannot be opened: that may be mended, so it stays open for writing, and
    the next start tries again. One such file must not keep the server from serving the others.

    A file without bytes may never have had a data file. A returned string says why bytes are lost:
    to seal the rest would replace the object, which may be the last copy.

    Args:
        size: (bytes) and mtime_ns, of the row.
    """
    try:
        stat = files.sync(ino, epoch)
    except SyncError as error:
        return f"its data file could not be synced: {error.strerror}"
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        log.error(
            "inode %d: data file %s cannot be opened (%s): it is neither sealed nor drained: mend "
            "its mode or the disk, and start the NFS server again",
            *(ino, files.path(ino, epoch), error.strerror),
        )
        return None
    if stat is not None:
        step = content.CRASH_CHANGE_STEP
        return Sealed(stat.st_size, stat.st_blocks * 512, stat.st_mtime_ns, step)
    if size == 0:
        return Sealed(0, 0, mtime_ns, content.CRASH_CHANGE_STEP)
    return f"data file {files.path(ino, epoch)} is missing, {size} bytes expected"
