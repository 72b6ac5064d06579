"""Residency of files in the database: evictions, and the return of bytes.

An eviction moves the epoch, which is a part of the data file's name. So the late deletion of an old
data file never hits newer bytes, and what was fetched for an old epoch is never taken for the new.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import and_, delete, exists, insert, literal_column, or_, select, update

from gateway.common.errors import Busy, NotPermitted, Stale, TryAgain
from gateway.common.types import Attr, DataFileOnDisk, InodeKind, Residency
from gateway.db.compiled import Session, Statement, b, given, rows_of
from gateway.db.statements import (
    ATTR,
    IS_ABSENT,
    IS_CLIENTS,
    IS_IMPORTED,
    IS_REGULAR,
    IS_RESIDENT,
    block_digest,
    damage,
    eviction,
    indeterminate_write,
    inode,
    last_read,
    object_,
    present_blocks,
    rekey,
    upload,
    warm_request,
)
from gateway.db.writer import Tx
from gateway.namespace.lookup import PinLookup, get

log = logging.getLogger("spillway.residency")

HAS_CONTENT = (
    object_.c.content_version == inode.c.content_version,
    object_.c.size == inode.c.size,
)
"""The object has the present version of its file."""
HAS_VERSION = (
    *HAS_CONTENT,
    exists().where(block_digest.c.ino == object_.c.ino),
)
"""The object has the present version of its file, with digests to verify it by."""
IS_CERTAIN = (
    ~exists().where(indeterminate_write.c.key == object_.c.key),
    ~exists().where(upload.c.key == object_.c.key),
)
"""No request that was given up can still replace or delete the object."""
IS_DRAINED = (
    IS_REGULAR,
    inode.c.nlink > 0,
    inode.c.write_open == 0,
    inode.c.drained_version == inode.c.content_version,
    ~exists().where(damage.c.ino == inode.c.ino),
    ~exists().where(rekey.c.ino == inode.c.ino),
)
"""A sealed file whose version was drained, and whose object needs no move."""
IS_CLEAN = (
    *IS_DRAINED,
    inode.c.size > 0,
)
"""Such a file that has bytes to evict."""
IS_OF_ROW = Statement(
    select(inode.c.ino).where(
        inode.c.ino == b("the_ino"),
        or_(
            IS_ABSENT,
            and_(
                inode.c.size == b("found_size"),
                or_(
                    inode.c.mtime_ns >= b("found_mtime_ns"),
                    # A client set another mtime, which moved the ctime, or the bytes came from the
                    # bucket, which counts as a read.
                    inode.c.ctime_ns >= b("found_mtime_ns"),
                    exists().where(
                        last_read.c.ino == inode.c.ino,
                        last_read.c.read_ns >= b("found_mtime_ns"),
                    ),
                ),
            ),
        ),
    )
)
"""Whether the data file was not written after the row was. Otherwise the database is older than the
disk, and an eviction would destroy bytes that it does not know of."""
EVICT = Statement(
    update(inode)
    .where(
        inode.c.ino == b("the_ino"),
        inode.c.content_version == b("content_version"),
        or_(IS_RESIDENT, exists().where(present_blocks.c.ino == inode.c.ino)),
        *IS_CLEAN,
        or_(
            exists().where(object_.c.ino == inode.c.ino, *HAS_VERSION, *IS_CERTAIN),
            IS_IMPORTED,
        ),
    )
    .values(residency=Residency.ABSENT, epoch=inode.c.epoch + 1)
    .returning(*ATTR)
)
"""Makes a file absent whose version the bucket has, with digests to verify it by. An imported file
that was never read whole has none, and is read by its ETag."""
_IS_STORED = (
    IS_REGULAR,
    inode.c.write_open == 0,
    inode.c.drained_version == inode.c.content_version,
    ~exists().where(damage.c.ino == inode.c.ino),
)
_OF_INODE = object_.c.ino == inode.c.ino
GIVE_UP = Statement(
    update(inode)
    .where(
        inode.c.ino == b("the_ino"),
        or_(
            and_(IS_REGULAR, IS_ABSENT),
            and_(*_IS_STORED, exists().where(_OF_INODE, *HAS_VERSION, *IS_CERTAIN)),
            and_(*_IS_STORED, IS_IMPORTED),
        ),
    )
    .values(residency=Residency.ABSENT, epoch=inode.c.epoch + 1)
    .returning(*ATTR)
)
"""Makes a file absent whose data file cannot be used, if the bucket has it. Of an absent file
nothing is only in the data file. That its object has still to be moved does not matter: no move
reads the data file of an absent file."""
STORED = Statement(
    select(inode.c.ino).where(
        inode.c.ino == b("ino"),
        *_IS_STORED,
        or_(exists().where(_OF_INODE, *HAS_VERSION), IS_IMPORTED),
    )
)
ARRIVED = Statement(
    update(inode)
    .where(
        inode.c.ino == b("the_ino"),
        IS_ABSENT,
        inode.c.epoch == b("the_epoch"),
        inode.c.content_version == b("content_version"),
    )
    .values(residency=Residency.RESIDENT)
    .returning(*ATTR)
)
EVICTION_INSERT = Statement(insert(eviction))
EVICTIONS = Statement(
    select(eviction.c.ino, eviction.c.epoch)
    .order_by(eviction.c.ino, eviction.c.epoch)
    .limit(b("most"))
)
EVICTION_DELETE = Statement(
    delete(eviction).where(eviction.c.ino == b("the_ino"), eviction.c.epoch == b("the_epoch"))
)
PRESENT_BLOCKS_DELETE = Statement(
    delete(present_blocks).where(present_blocks.c.ino == b("the_ino"))
)
WARM_REQUEST = Statement(select(warm_request.c.ino).where(warm_request.c.ino == b("ino")))
WARM_REQUEST_INSERT = Statement(insert(warm_request))
WARM_REQUEST_DELETE = Statement(delete(warm_request).where(warm_request.c.ino == b("the_ino")))
_READS = given("reads", ino=int, read_ns=int)
_KNOWN_READ = last_read.alias("known_read")
_MINUTE_NS: Any = literal_column("60000000000")
LAST_READ_DELETE = Statement(
    delete(last_read).where(
        last_read.c.ino.in_(
            select(_READS.c.ino)
            .select_from(_READS.join(_KNOWN_READ, _KNOWN_READ.c.ino == _READS.c.ino))
            .where(
                or_(
                    _KNOWN_READ.c.read_ns < _READS.c.read_ns,
                    _KNOWN_READ.c.read_ns > _READS.c.read_ns + _MINUTE_NS,
                )
            )
        )
    )
)
"""Deletes other times than those of some reads. The time of an arrival in the same minute stays:
the data file was written then, and is not younger than its row."""
LAST_READ_INSERT = Statement(
    insert(last_read).from_select(
        ["ino", "read_ns"],
        select(_READS.c.ino, _READS.c.read_ns)
        .select_from(_READS.join(inode, inode.c.ino == _READS.c.ino))
        .where(~exists().where(_KNOWN_READ.c.ino == _READS.c.ino)),
    )
)
OPEN_EMPTIED = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"), IS_REGULAR, IS_ABSENT, IS_CLIENTS)
    .values(
        write_open=1,
        # Two versions: if the client gets an error after this commit and writes nothing, the seal
        # must not take the empty file for the version before, which the bucket has.
        content_version=inode.c.content_version + 2,
        change=inode.c.change + 1,
        residency=Residency.RESIDENT,
        # After a crash the data file of the new epoch is missing, which is right for 0 bytes. The
        # old one may have some blocks only.
        epoch=inode.c.epoch + 1,
        size=0,
        used=0,
        mtime_ns=b("now_ns"),
        ctime_ns=b("now_ns"),
    )
    .returning(*ATTR)
)


def evict(tx: Tx, ino: int, content_version: int, found: DataFileOnDisk | None) -> Attr:
    """Make a file absent: its bytes are in the bucket from now on.

    The caller deletes the data file of the epoch before, once this is durable. Then it deletes the
    row of ``eviction``, which makes the next start do what a crash left undone.

    Raises Busy when the file is not clean, not of this version, has no digests to verify it by, or
    its data file is not that of the row; NotPermitted when it is pinned; Stale.

    Args:
        content_version: which the caller saw in the bucket.
        found: the data file, which nothing can write meanwhile, or None if it is missing.
    """
    if PinLookup(tx).cover(ino):
        # A candidate may have been pinned since it was found.
        raise NotPermitted
    if found is None:
        attr = get(tx, ino)
        found = DataFileOnDisk(attr.size, attr.mtime_ns)
    disk = {"the_ino": ino, "found_size": found.size, "found_mtime_ns": found.mtime_ns}
    if tx.one(IS_OF_ROW, **disk) is None:
        if get(tx, ino).kind == InodeKind.REGULAR:
            log.warning(
                "inode %d is not evicted: its data file has %d bytes, written at %d ns, and its "
                "row is older: the database may be older than the disk: stop the gateway and run: "
                "spillway fsck, then: spillway adopt files",
                *(ino, *found),
            )
        raise Busy
    row = tx.change(EVICT, the_ino=ino, content_version=content_version)
    if row is None:
        get(tx, ino)
        raise Busy
    return _with_new_epoch(tx, Attr(*row))


def give_up_copy(tx: Tx, ino: int, is_wanted: bool = False) -> Attr | None:
    """Make a file absent whose data file lacks bytes or cannot be read, also while clients have it
    open, and also a pinned one: that is fetched whole again.

    Returns None if the bucket does not have the file as it is. Raises TryAgain while a request that
    was given up may still change the object.

    Args:
        is_wanted: whether it is to be fetched whole again.
    """
    row = tx.change(GIVE_UP, the_ino=ino)
    if row is None and tx.one(STORED, ino=ino) is not None:
        raise TryAgain
    if row is None:
        return None
    is_wanted = is_wanted or tx.one(WARM_REQUEST, ino=ino) is not None
    attr = _with_new_epoch(tx, Attr(*row))
    if is_wanted or PinLookup(tx).cover(ino):
        tx.run(WARM_REQUEST_INSERT, ino=ino, asked_ns=tx.now_ns)
    return attr


def _with_new_epoch(tx: Tx, attr: Attr) -> Attr:
    """Let go of the data file of the epoch before, and of what was known of it."""
    tx.run(PRESENT_BLOCKS_DELETE, the_ino=attr.ino)
    tx.run(WARM_REQUEST_DELETE, the_ino=attr.ino)
    tx.run(EVICTION_INSERT, ino=attr.ino, epoch=attr.epoch - 1)
    tx.touch(attr.ino)
    return attr


def arrived(tx: Tx, ino: int, epoch: int, content_version: int) -> Attr:
    """Make a file resident, all of whose bytes are verified and on stable storage.

    An arrival is a use of the file: a file that was warmed or read ahead, and that no client has
    read yet, would otherwise be the first to be evicted again.

    Raises Stale when the file has another epoch or version by now.

    Args:
        epoch, content_version: those of the bytes in the data file.
    """
    row = tx.change(ARRIVED, the_ino=ino, the_epoch=epoch, content_version=content_version)
    if row is None:
        attr = get(tx, ino)
        if attr.epoch == epoch and attr.residency == Residency.RESIDENT:
            return attr  # the answer to an earlier request was lost
        raise Stale
    tx.run(PRESENT_BLOCKS_DELETE, the_ino=ino)
    tx.run(WARM_REQUEST_DELETE, the_ino=ino)
    note_reads(tx, [(ino, tx.now_ns)])
    tx.touch(ino)
    return Attr(*row)


def open_emptied(tx: Tx, ino: int) -> Attr | None:
    """Open an absent file for a writer that empties it. It needs no bytes of the bucket.

    Returns None if the file is not absent.
    """
    row = tx.change(OPEN_EMPTIED, the_ino=ino, now_ns=tx.now_ns)
    if row is None:
        return None
    return _with_new_epoch(tx, Attr(*row))


def note_reads(tx: Tx, reads: Sequence[tuple[int, int]]) -> None:
    """Record when files were read.

    Args:
        reads: inode number and time (ns since 1970).
    """
    rows = rows_of(reads)
    tx.run(LAST_READ_DELETE, reads=rows)
    tx.run(LAST_READ_INSERT, reads=rows)


def evictions(session: Session, most: int) -> list[Sequence[Any]]:
    """Return the inode numbers and epochs of data files that must be deleted."""
    return session.all(EVICTIONS, most=most)


def forget_evictions(session: Session, deleted: Iterable[Sequence[Any]]) -> None:
    """Delete the rows of data files that are deleted durably."""
    rows = [{"the_ino": ino, "the_epoch": epoch} for ino, epoch in deleted]
    session.run_each(EVICTION_DELETE, rows)
