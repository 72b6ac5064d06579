"""Scan: one LIST of the bucket, page by page, beside the rows of the objects that should be there.

A page has the listed objects and the rows of their keys. After the last page the rows whose keys
were not listed are read in the order of their inodes. Nothing depends on the order of keys, in
which stores and databases differ, and no more is remembered than a bit for each inode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select

from gateway.common import clock
from gateway.db.compiled import Session, Statement, b, given, rows_of
from gateway.db.engine import Database
from gateway.db.statements import damage, inode, object_
from gateway.objectstore.key_mapper import KEY_PREFIXES
from gateway.objectstore.objects import Etag, ListedObject
from gateway.objectstore.s3 import S3Store

PAGE = 1000
_CHUNK_BITS = 1 << 16

_ROW = (
    *(
        object_.c[name]
        for name in ("ino", "key", "content_version", "size", "etag", "checksum", "stored_ns")
    ),
    inode.c.generation,
    inode.c.drained_version,
    damage.c.reason,
)
_KEYS = given("keys", key=str)


def _with_inodes(rows: Any) -> Any:
    joined = rows.join(inode, inode.c.ino == object_.c.ino)
    return joined.outerjoin(damage, damage.c.ino == object_.c.ino)


_ROWS_AT = Statement(
    select(*_ROW).select_from(_with_inodes(_KEYS.join(object_, object_.c.key == _KEYS.c.key)))
)
_ROWS_AFTER = Statement(
    select(*_ROW)
    .select_from(_with_inodes(object_))
    .where(object_.c.ino > b("after"))
    .order_by(object_.c.ino)
    .limit(b("most"))
)


class ScannedRow(NamedTuple):
    """A row of ``object``, with what is needed of its inode to judge it."""

    ino: int
    key: str
    content_version: int
    size: int
    etag: str
    checksum: str | None
    stored_ns: int
    generation: int
    drained_version: int
    damage: str | None
    """Why the file is damaged, or None."""

    @property
    def is_snapshot(self) -> bool:
        """Whether the object shows a file that was open. Its version had no end yet."""
        return self.content_version > self.drained_version

    def names(self, size: int, etag: str) -> bool:
        """Return whether this is the row of an object with a size and an ETag."""
        return (self.size, Etag(self.etag)) == (size, etag)


class ScanPage(NamedTuple):
    """Some of the objects that were listed."""

    listed: Sequence[ListedObject]
    rows: dict[str, ScannedRow]
    """The rows of their keys."""
    is_outside: bool
    """Whether they are outside of the gateway's prefix, at the prefix of a promoted copy."""


class InodeSet:
    """Numbers of inodes, a bit for each, in pieces that are made when they are needed."""

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}

    def add(self, ino: int) -> None:
        """Add a number."""
        chunk = self._chunks.setdefault(ino // _CHUNK_BITS, bytearray(_CHUNK_BITS // 8))
        at = ino % _CHUNK_BITS
        chunk[at // 8] |= 1 << at % 8

    def __contains__(self, ino: int) -> bool:
        at = ino % _CHUNK_BITS
        chunk = self._chunks.get(ino // _CHUNK_BITS)
        return chunk is not None and bool(chunk[at // 8] & 1 << at % 8)


class BucketScan:
    """One scan of the bucket of a gateway.

    Args:
        database: of the gateway.
        store: its bucket.
        prefix: of its keys.
    """

    def __init__(self, database: Database, store: S3Store, prefix: str) -> None:
        self._database = database
        self._store = store
        self._prefix = prefix
        self._seen = InodeSet()
        self._began_ns = clock.now_ns()

    def pages(self) -> Iterator[ScanPage]:
        """Yield what the bucket has. Raises StoreError, TryAgain."""
        below = f"{self._prefix}/" if self._prefix else ""
        for listed in self._store.pages(below):
            yield ScanPage(listed, self.rows_at([entry.key for entry in listed]), False)
        with self._database.reading() as session:
            copies = [f"{above}/{name}" for name, above in session.all(KEY_PREFIXES)]
        for copy in copies:
            if copy.startswith(below):
                continue
            for page in self._store.pages(copy):
                own = [e for e in page if e.key == copy or e.key.startswith(f"{copy}/")]
                yield ScanPage(own, self.rows_at([entry.key for entry in own]), True)

    def saw(self, ino: int) -> None:
        """Note that the object of a file was found, at its key or elsewhere."""
        self._seen.add(ino)

    def unlisted(self) -> Iterator[list[ScannedRow]]:
        """Yield the rows of files whose objects were not found. Raises TryAgain.

        What was stored after the scan began need not have been listed.
        """
        after = 0
        while True:
            with self._database.reading() as session:
                rows = [
                    ScannedRow(*row) for row in session.all(_ROWS_AFTER, after=after, most=PAGE)
                ]
            if left := [
                row for row in rows if row.ino not in self._seen and row.stored_ns < self._began_ns
            ]:
                yield left
            if len(rows) < PAGE:
                return
            after = rows[-1].ino

    def rows_at(self, keys: Iterable[str]) -> dict[str, ScannedRow]:
        """Return the rows of keys as they are now. Raises TryAgain."""
        with self._database.reading() as session:
            return rows_at(session, keys)


def rows_at(session: Session, keys: Iterable[str]) -> dict[str, ScannedRow]:
    """Return the rows of keys."""
    found = session.all(_ROWS_AT, keys=rows_of([(key,) for key in keys]))
    return {row[1]: ScannedRow(*row) for row in found}
