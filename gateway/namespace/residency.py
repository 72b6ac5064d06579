"""The place of a file's bytes, as the database sees it: evicted, and back again.

An eviction moves the epoch, which is a part of the data file's name. So the late deletion of an old
data file never hits newer bytes, and what was fetched for an old epoch is never taken for the new.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.db import statements as sql
from gateway.db.compiled import rows_of
from gateway.db.writer import Tx
from gateway.errors import Busy, Stale
from gateway.namespace.lookup import get
from gateway.types import Attr, Residency


def evict(tx: Tx, ino: int, content_version: int) -> Attr:
    """Make a file absent: its bytes are in the bucket from now on.

    The caller deletes the data file of the epoch before, once this is durable. Then it deletes the
    row of ``eviction``, which makes the next start do what a crash left undone.

    Parameters: content_version, which the caller saw in the bucket. Raises Busy when the file is
    not clean, not of this version, or has no digests to verify it by; Stale.
    """
    row = tx.change(sql.EVICT, the_ino=ino, content_version=content_version)
    if row is None:
        get(tx, ino)
        raise Busy
    attr = Attr(*row)
    tx.run(sql.PRESENCE_DELETE, the_ino=ino)
    tx.run(sql.WARMING_DELETE, the_ino=ino)
    tx.run(sql.EVICTION_INSERT, ino=ino, epoch=attr.epoch - 1)
    tx.touch(ino)
    return attr


def arrived(tx: Tx, ino: int, epoch: int, content_version: int) -> Attr:
    """Make a file resident, all of whose bytes are verified and on stable storage.

    Parameters: epoch and content_version, of the bytes in the data file. Raises Stale when the file
    has another epoch or version by now.
    """
    row = tx.change(sql.ARRIVED, the_ino=ino, the_epoch=epoch, content_version=content_version)
    if row is None:
        attr = get(tx, ino)
        if attr.epoch == epoch and attr.residency == Residency.RESIDENT:
            return attr  # the answer to an earlier request was lost
        raise Stale
    tx.run(sql.PRESENCE_DELETE, the_ino=ino)
    tx.run(sql.WARMING_DELETE, the_ino=ino)
    tx.touch(ino)
    return Attr(*row)


def open_emptied(tx: Tx, ino: int) -> Attr | None:
    """Open an absent file for a writer that empties it. It needs no bytes of the bucket.

    Returns None if the file is not absent.
    """
    row = tx.change(sql.OPEN_EMPTIED, the_ino=ino, now_ns=tx.now_ns)
    if row is None:
        return None
    attr = Attr(*row)
    tx.run(sql.PRESENCE_DELETE, the_ino=ino)
    tx.run(sql.WARMING_DELETE, the_ino=ino)
    tx.run(sql.EVICTION_INSERT, ino=ino, epoch=attr.epoch - 1)
    tx.touch(ino)
    return attr


def note_reads(tx: Tx, reads: Sequence[tuple[int, int]]) -> None:
    """Record when files were read. Parameters: reads, inode number and time (ns since 1970)."""
    rows = rows_of(reads)
    tx.run(sql.LAST_READ_DELETE, reads=rows)
    tx.run(sql.LAST_READ_INSERT, reads=rows)
