"""Makes the objects of a copy: inside the store, each of one version, and at a key of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from sqlalchemy import select

from gateway.db.compiled import Statement, b, given
from gateway.db.statements import inode, object_, promotion_member
from gateway.drain import metadata
from gateway.errors import BucketError, ObjectRefused, StoreUnavailable
from gateway.objectstore import keys
from gateway.objectstore.objects import Head
from gateway.objectstore.tags import TaggingStore
from gateway.promotion import origin
from gateway.promotion.places import parts_of
from gateway.promotion.store import Member, Promotion

COPIES = 8
"""The copies at a time. Each only waits for the store."""
TAGS = {"spillway": "promoted"}

_INOS = given("inos", ino=int)
SOURCES = Statement(
    select(
        inode.c.ino,
        inode.c.content_version,
        object_.c.content_version,
        object_.c.key,
        object_.c.size,
        object_.c.etag,
    )
    .select_from(
        _INOS.join(inode, inode.c.ino == _INOS.c.ino).join(object_, object_.c.ino == inode.c.ino)
    )
    .where(inode.c.nlink > 0)
)

OBJECTS = Statement(
    select(object_.c.ino, object_.c.key, object_.c.size, object_.c.etag)
    .select_from(promotion_member.join(object_, object_.c.ino == promotion_member.c.copy))
    .where(promotion_member.c.name == b("name"), object_.c.ino > b("after"))
    .order_by(object_.c.ino)
    .limit(b("most"))
)
"""Selects the objects of a copy."""


class Stored(NamedTuple):
    """The object of a copy."""

    ino: int
    key: str
    size: int
    etag: str


class Source(NamedTuple):
    """The object of an original."""

    ino: int
    content_version: int
    stored_version: int
    key: str
    size: int
    etag: str

    def is_of(self, member: Member) -> bool:
        """Return whether it is the version that is promoted."""
        return member.content_version == self.content_version == self.stored_version


class Copied(NamedTuple):
    """A copy that the store confirmed."""

    etag: str
    is_tagged: bool


Result = Copied | BucketError


class Copier:
    """Copies objects.

    Parameters: store; prefix of the keys; is_ended, which says that no more copies are to begin.
    """

    def __init__(self, store: TaggingStore, prefix: str, is_ended: Callable[[], bool]) -> None:
        self._store = store
        self._prefix = prefix
        self._is_ended = is_ended
        self._tried: set[str] = set()
        """The keys at which this process may have put something."""
        self._pool = ThreadPoolExecutor(COPIES, "promote")

    def run(
        self,
        of: Promotion,
        volume: str,
        wanted: Sequence[tuple[Member, Source]],
        *,
        is_resumed: bool,
        tags: bool,
    ) -> list[Result | None]:
        """Copy objects. Returns the result of each in order, or None if it was not begun.

        Parameters: volume, the id of the namespace; is_resumed, whether an earlier process may have
        made some of them; tags, whether they get the tag.
        """

        def copy(pair: tuple[Member, Source]) -> Result | None:
            if self._is_ended():
                return None
            try:
                head = self._head(pair[1])
                self._require_free(of, volume, pair[0], is_resumed)
                return self._copy(of, volume, *pair, head, tags=tags)
            except BucketError as exc:
                return exc

        return list(self._pool.map(copy, wanted))

    def etags_of(
        self, of: Promotion, volume: str, stored: Sequence[Stored]
    ) -> Iterator[str | None]:
        """Yield the ETag that each object of a copy has now, or None if it is not this copy's."""
        return self._pool.map(partial(self._etag_of, of, volume), stored)

    def _etag_of(self, of: Promotion, volume: str, stored: Stored) -> str | None:
        head = self._store.head(stored.key)
        if head is None or head.size != stored.size:
            return None
        if head.etag != stored.etag and not origin.is_ours(head, of, volume, stored.ino, True):
            return None
        return head.etag

    def _head(self, source: Source) -> Head:
        """Return what is at the key of an original. Raises ObjectRefused if it is not what the row
        of its object says."""
        head = self._store.head(source.key, with_sum=True)
        if head is None or (head.size, head.etag) != (source.size, source.etag):
            raise ObjectRefused(f"{source.key}: the bucket does not have the object of the record")
        return head

    def _require_free(self, of: Promotion, volume: str, member: Member, is_resumed: bool) -> None:
        """Raise ObjectRefused if something is at the key that this promotion did not put there: a
        promotion that this database does not know of, for example, because it is older."""
        key = _key(member)
        there = self._store.head(key)
        if there is None:
            return
        if not origin.is_ours(there, of, volume, member.copy, is_resumed or key in self._tried):
            raise ObjectRefused(
                f"{key}: another object is there and stays: choose another name, or delete it"
            )

    def _copy(
        self, of: Promotion, volume: str, member: Member, source: Source, head: Head, *, tags: bool
    ) -> Copied:
        key = _key(member)
        self._tried.add(key)
        described = {
            **head.metadata,
            **origin.described(of, volume, member.copy),
        }
        rest = keys.rest_of(self._prefix, parts_of(of.name, member.path))
        made = self._store.copy(source.key, key, head, metadata.with_rest(rest, described))
        return Copied(made.etag, tags and self._tag(key))

    def _tag(self, key: str) -> bool:
        try:
            self._store.tag(key, TAGS)
        except StoreUnavailable:
            raise
        except BucketError:
            return False
        return True


def _key(member: Member) -> str:
    assert member.key is not None, "only files are copied"
    return member.key
