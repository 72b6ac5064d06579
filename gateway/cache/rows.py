"""Database access of the hydrator: rows of absent files, and the durable maps of their blocks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import and_, delete, exists, insert, select, update

from gateway.cache import warming
from gateway.common import clock
from gateway.common.text import shown
from gateway.db import journal
from gateway.db.compiled import Session, Statement, b
from gateway.db.drain_models import HYDRATE
from gateway.db.engine import Database
from gateway.db.statements import (
    IS_ABSENT,
    block_digest,
    dirent,
    imported_object,
    imported_prefix,
    inode,
    object_,
    present_blocks,
    retry,
    transition,
    warm_request,
)
from gateway.namespace.lookup import way_up
from gateway.namespace.residency import PRESENT_BLOCKS_DELETE
from gateway.objectstore.checksums import CRC_BYTES, block_bytes_of
from gateway.objectstore.ranges import ObjectLocation

_SOURCE = Statement(
    select(
        inode.c.epoch,
        inode.c.content_version,
        inode.c.size,
        inode.c.nlink,
        object_.c.key,
        object_.c.etag,
        block_digest.c.block_bytes,
        block_digest.c.crcs,
        present_blocks.c.blocks,
    )
    .select_from(
        inode.outerjoin(
            object_,
            and_(
                object_.c.ino == inode.c.ino,
                object_.c.content_version == inode.c.content_version,
                object_.c.size == inode.c.size,
            ),
        )
        .outerjoin(block_digest, block_digest.c.ino == object_.c.ino)
        .outerjoin(
            present_blocks,
            and_(
                present_blocks.c.ino == inode.c.ino,
                present_blocks.c.epoch == inode.c.epoch,
                present_blocks.c.block_bytes == block_digest.c.block_bytes,
            ),
        )
    )
    .where(inode.c.ino == b("ino"), IS_ABSENT)
)
_IMPORTED_SOURCE = Statement(
    select(
        imported_object.c.key,
        imported_object.c.etag,
        imported_object.c.block_bytes,
        imported_object.c.crcs,
        present_blocks.c.blocks,
        imported_prefix.c.bucket,
    )
    .select_from(
        imported_object.join(inode, inode.c.ino == imported_object.c.ino)
        .join(imported_prefix, imported_prefix.c.top == imported_object.c.top)
        .outerjoin(
            present_blocks,
            and_(
                present_blocks.c.ino == inode.c.ino,
                present_blocks.c.epoch == inode.c.epoch,
                present_blocks.c.block_bytes == imported_object.c.block_bytes,
            ),
        )
    )
    .where(inode.c.ino == b("ino"), imported_object.c.size == inode.c.size)
)
"""The same of an imported file."""
_IMPORTED_DIGESTS = Statement(
    update(imported_object)
    .where(
        imported_object.c.ino == b("the_ino"),
        imported_object.c.etag == b("the_etag"),
        imported_object.c.crcs.is_(None),
    )
    .values(block_bytes=b("new_block_bytes"), crcs=b("new_crcs"))
)
_HAS_EPOCH = Statement(
    select(inode.c.ino).where(inode.c.ino == b("ino"), inode.c.epoch == b("epoch"), IS_ABSENT)
)
_IS_COPIED = Statement(
    select(transition.c.ino).where(
        transition.c.ino == b("ino"), transition.c.key.is_not(None), transition.c.until_ns.is_(None)
    )
)
_PRESENT_BLOCKS_INSERT = Statement(insert(present_blocks))
_DIGESTS_INSERT = Statement(insert(block_digest))
_RETRY_DELETE = Statement(delete(retry).where(retry.c.work == HYDRATE, retry.c.ino == b("the_ino")))
_RETRY_INSERT = Statement(insert(retry))
_RETRIES = Statement(
    select(retry.c.ino, retry.c.tries, retry.c.error, retry.c.next_ns).where(
        retry.c.work == HYDRATE
    )
)
_WARM_REQUESTS = Statement(
    select(
        warm_request.c.ino,
        exists()
        .where(retry.c.work == HYDRATE, retry.c.ino == warm_request.c.ino)
        .label("has_failed"),
    )
    .where(exists().where(inode.c.ino == warm_request.c.ino, IS_ABSENT))
    .order_by(warm_request.c.asked_ns, warm_request.c.ino)
    .limit(b("most"))
)
_SIBLINGS = Statement(
    select(dirent.c.name, dirent.c.ino)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino))
    .where(dirent.c.parent == b("parent"), dirent.c.name > b("after"), IS_ABSENT)
    .order_by(dirent.c.name)
    .limit(b("most"))
)


class LearnedDigests:
    """The digests of the blocks that were fetched of an object that has none recorded.

    Any two are equal: they say nothing of which object it is.
    """

    def __init__(self) -> None:
        self.by_block: dict[int, bytes] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LearnedDigests)

    def __hash__(self) -> int:
        return 0


class AbsentSource(NamedTuple):
    """An absent file, and where its bytes are."""

    ino: int
    epoch: int
    content_version: int
    size: int
    """Bytes."""
    place: ObjectLocation
    block_bytes: int
    crcs: bytes
    """The digest of each block: see ``block_digest``."""
    learned: LearnedDigests | None = None
    """The digests of an object that has none recorded, because its names were made of the bucket:
    it is read by its ETag. None: the digests are recorded."""

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.size // self.block_bytes)

    def bytes_of(self, block: int) -> int:
        """Return the length of a block."""
        return min(self.block_bytes, self.size - block * self.block_bytes)

    def crc(self, block: int) -> bytes:
        """Return the digest of a block. Empty: it is not recorded."""
        return self.crcs[block * CRC_BYTES : (block + 1) * CRC_BYTES]

    def learn(self, block: int, crc: bytes) -> None:
        """Note the digest of a block that was fetched whole, if none is recorded."""
        if self.learned is not None:
            self.learned.by_block[block] = crc

    def digests(self) -> bytes | None:
        """Return the digests of all blocks, if they were learned, or None."""
        if self.learned is None or len(self.learned.by_block) < self.blocks:
            return None
        return b"".join(self.learned.by_block[block] for block in range(self.blocks))


class AbsentFileRow(NamedTuple):
    """What the database says of an absent file now."""

    epoch: int
    source: AbsentSource | None
    """None: the bucket has no object of this version, or its digests are of another size."""
    durable: bytes | None
    """The durable map of this epoch."""
    path: str
    """Path below the export, for people."""
    parent: int
    name: bytes
    """Its first name, and the directory that has it."""
    is_deleted: bool
    """Whether it has no name left. Its object is deleted, or will be soon."""


class HydrationFailure(NamedTuple):
    """A hydration that failed."""

    tries: int
    error: str
    next_ns: int


class Saved(NamedTuple):
    """What one transaction writes of one file."""

    ino: int
    epoch: int
    block_bytes: int
    blocks: bytes | None
    """The durable map; None: leave it."""
    is_forgotten: bool = False
    """Whether the durable map is deleted: nothing in the data file is believed."""


class Rows:
    """The rows of one namespace. It is safe to use from several threads.

    Each method raises NamespaceError (TryAgain, NoSpace) as the database does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, ino: int) -> AbsentFileRow | None:
        """Return what is known of a file, or None if it is not absent any more."""
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            row = session.one(_SOURCE, ino=ino)
            if row is None:
                return None
            bucket = None
            if row[4] is None and (found := session.one(_IMPORTED_SOURCE, ino=ino)) is not None:
                row, bucket = (*row[:4], *found[:5]), found[5]
            way = list(way_up(session, ino))
        epoch, version, size, nlink, key, etag, block_bytes, crcs, blocks = row
        source = None
        if key is not None and crcs is None:
            place, block_bytes = ObjectLocation(key, etag, bucket=bucket), block_bytes_of(size)
            source = AbsentSource(
                ino, epoch, version, size, place, block_bytes, b"", LearnedDigests()
            )
        elif crcs is not None and len(crcs) == -(-size // block_bytes) * CRC_BYTES:
            place = ObjectLocation(key, etag, bucket=bucket)
            source = AbsentSource(ino, epoch, version, size, place, block_bytes, bytes(crcs))
        path = os.fsdecode(b"/".join(name for _, _, name in reversed(way)))
        _, parent, name = way[0] if way else (ino, 0, b"")
        # A name may have line breaks, which would forge lines of the log.
        text = shown(path.encode(errors="replace").decode()) or f"inode {ino}"
        durable = None if blocks is None else bytes(blocks)
        return AbsentFileRow(epoch, source, durable, text, parent, name, nlink == 0)

    def has_epoch(self, ino: int, epoch: int) -> bool:
        """Return whether a file is absent with this epoch."""
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            return session.one(_HAS_EPOCH, ino=ino, epoch=epoch) is not None

    def is_copied(self, ino: int) -> bool:
        """Return whether the drain copies the object of a file onto itself, so that it may have an
        ETag that is not recorded yet."""
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            return session.one(_IS_COPIED, ino=ino) is not None

    def save(self, files: Iterable[Saved]) -> set[int]:
        """Write durable maps. Returns the inodes that are not absent with their epoch any more;
        nothing was written of them."""
        outdated = set()
        with self._database.writing() as session:
            for file in files:
                if session.one(_HAS_EPOCH, ino=file.ino, epoch=file.epoch) is None:
                    outdated.add(file.ino)
                    continue
                if file.blocks is None and not file.is_forgotten:
                    continue
                session.run(PRESENT_BLOCKS_DELETE, the_ino=file.ino)
                if file.blocks is not None:
                    session.run(
                        _PRESENT_BLOCKS_INSERT,
                        ino=file.ino,
                        epoch=file.epoch,
                        block_bytes=file.block_bytes,
                        blocks=file.blocks,
                    )
        return outdated

    def save_digests(self, source: AbsentSource, crcs: bytes) -> None:
        """Record the digests of an object that was fetched whole, if it is still the file's."""
        with self._database.writing() as session:
            if source.place.bucket is not None:
                # The row of an inode is always of the same object.
                session.run(
                    _IMPORTED_DIGESTS,
                    the_ino=source.ino,
                    the_etag=source.place.etag,
                    new_block_bytes=source.block_bytes,
                    new_crcs=crcs,
                )
                return
            row = session.one(_SOURCE, ino=source.ino)
            if row is None or row[6] is not None or (row[0], row[1]) != source[1:3]:
                return
            if ObjectLocation(row[4], row[5]) != source.place:
                return
            session.run(_DIGESTS_INSERT, ino=source.ino, block_bytes=source.block_bytes, crcs=crcs)
            # Otherwise the copy of the names would not have them.
            journal.note(session, {source.ino: journal.STORED})

    def save_failures(self, failures: Sequence[tuple[int, str, HydrationFailure | None]]) -> None:
        """Write or (None) delete the ``retry`` rows of some files, given by inode and key."""
        with self._database.writing() as session:
            for ino, key, failure in failures:
                session.run(_RETRY_DELETE, the_ino=ino)
                if failure is not None:
                    row = {"work": HYDRATE, "ino": ino, "key": key, **failure._asdict()}
                    session.run(_RETRY_INSERT, **row, request_id=None, since_ns=0)
            # The catalogue says of no checkpoint that the bucket has it, if it lacks this file.
            journal.note(session, {ino: journal.STORED for ino, _key, _failure in failures})

    def save_restore(self, ino: int, is_new: bool) -> int:
        """Record that the object of a file is asked back. Returns since when it is: see
        ``warming.restoring``."""
        with self._database.writing() as session:
            return warming.restoring(session, ino, is_new)

    def failures(self) -> dict[int, HydrationFailure]:
        """Return the failures that earlier runs recorded, by inode."""
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            return {ino: HydrationFailure(*rest) for ino, *rest in session.all(_RETRIES)}

    def warm_requests(self, most: int) -> list[tuple[int, bool]]:
        """Return the absent files that a person wants whole, those of the oldest request first, and
        whether the last try failed."""
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            return [(row[0], bool(row[1])) for row in session.all(_WARM_REQUESTS, most=most)]

    def siblings(self, parent: int, after: bytes, most: int) -> list[tuple[bytes, int]]:
        """Return the absent files of a directory after a name, in the order of names."""
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            rows = session.all(_SIBLINGS, parent=parent, after=after, most=most)
            return [(bytes(name), ino) for name, ino in rows]


def failure_now(tries: int, error: str, pause_seconds: float) -> HydrationFailure:
    """Return a failure whose next try is due after a pause."""
    return HydrationFailure(
        tries, " ".join(error.split()), clock.now_ns() + int(pause_seconds * clock.NS)
    )
