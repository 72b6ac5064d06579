"""Copier of objects for a promotion: inside the store, each of one version, at a key of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from sqlalchemy import select

from gateway.common.errors import ObjectRefused, StoreError, StoreUnavailable
from gateway.config.settings import BucketSettings
from gateway.db.compiled import Session, Statement, b, given, rows_of
from gateway.db.statements import inode, object_, promotion_member
from gateway.drain.context import AwaitedKeys
from gateway.lifecycle.promotion import members as origin
from gateway.lifecycle.promotion.store import PromotedMember, PromotionRow, place_of
from gateway.objectstore import foreign, key_mapper, metadata
from gateway.objectstore.holds import HoldingStore
from gateway.objectstore.objects import Head
from gateway.objectstore.request import ABSENT

NO_LOCK = "the bucket has no Object Lock, so it keeps no legal hold: promote without --legal-hold"
COPIES = 8
"""The copies at a time. Each only waits for the store."""

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


class CopiedObject(NamedTuple):
    """The object of a copy."""

    ino: int
    key: str
    size: int
    etag: str


class OriginalObject(NamedTuple):
    """The object of an original."""

    ino: int
    content_version: int
    stored_version: int
    key: str
    size: int
    etag: str

    def is_of(self, member: PromotedMember) -> bool:
        """Return whether it is the version that is promoted."""
        return member.content_version == self.content_version == self.stored_version


class Copied(NamedTuple):
    """A copy that the store confirmed."""

    etag: str
    is_tagged: bool


Result = Copied | StoreError


class Copier:
    """Copies objects.

    Args:
        bucket: its settings.
        is_ended: says that no more copies are to begin.
    """

    def __init__(
        self, store: HoldingStore, bucket: BucketSettings, is_ended: Callable[[], bool]
    ) -> None:
        self._store = store
        self._prefix = bucket.prefix
        self._is_ended = is_ended
        self._awaited, self._late_seconds = AwaitedKeys(), bucket.late_seconds
        self._tried: set[str] = set()
        """The keys at which this process may have put something."""
        self._pool = ThreadPoolExecutor(COPIES, "promote")

    def run(
        self,
        of: PromotionRow,
        volume: str,
        wanted: Sequence[tuple[PromotedMember, OriginalObject]],
        *,
        is_resumed: bool,
        tags: bool,
    ) -> list[Result | None]:
        """Copy objects. Returns the result of each in order, or None if it was not begun.

        Args:
            volume: the id of the namespace.
            is_resumed: whether an earlier process may have made some of them.
            tags: whether they get the tag.
        """

        def copy(pair: tuple[PromotedMember, OriginalObject]) -> Result | None:
            if self._is_ended():
                return None
            try:
                head = self._head(pair[1])
                is_there = self._is_there(of, volume, pair[0], is_resumed)
                return self._copy(of, volume, *pair, head, is_there=is_there, tags=tags)
            except StoreError as exc:
                return exc

        return list(self._pool.map(copy, wanted))

    def etags_of(
        self, of: PromotionRow, volume: str, stored: Sequence[CopiedObject]
    ) -> Iterator[str | None]:
        """Yield the ETag that each object of a copy has now, or None if it is not this copy's."""
        return self._pool.map(partial(self._etag_of, of, volume), stored)

    def release(self, held: Sequence[str]) -> None:
        """Release objects from their legal hold. Raises StoreError.

        Args:
            held: their keys.
        """
        list(self._pool.map(self._store.release, held))

    def _etag_of(self, of: PromotionRow, volume: str, stored: CopiedObject) -> str | None:
        head = self._store.head(stored.key)
        if head is None or head.size != stored.size:
            return None
        if head.etag != stored.etag and not origin.is_copy_of(head, of, volume, stored.ino, True):
            return None
        if of.legal_hold:
            # A copy that came late is another version.
            self._store.hold(stored.key)
        return head.etag

    def _head(self, source: OriginalObject) -> Head:
        """Return what is at the key of an original. Raises ObjectRefused if it is not what the row
        of its object says."""
        head = self._store.head(source.key, with_sum=True)
        if head is None or (head.size, head.etag) != (source.size, source.etag):
            raise ObjectRefused(f"{source.key}: the bucket does not have the object of the record")
        return head

    def _is_there(
        self, of: PromotionRow, volume: str, member: PromotedMember, is_resumed: bool
    ) -> bool:
        """Return whether this promotion put something at the key: a copy that got no answer.

        Raises ForeignObject if what is there is of another one: of a promotion that this database
        does not know of, for example, because it is older."""
        key = _key(member)

        def is_ours(head: Head) -> bool:
            return origin.is_copy_of(
                head, of, volume, member.copy, is_resumed or key in self._tried
            )

        return foreign.look(self._store, key, is_ours, origin.REMEDY) != ABSENT

    def _copy(
        self,
        of: PromotionRow,
        volume: str,
        member: PromotedMember,
        source: OriginalObject,
        head: Head,
        *,
        is_there: bool,
        tags: bool,
    ) -> Copied:
        key = _key(member)
        self._tried.add(key)
        described = {
            **head.metadata,
            **origin.copy_metadata(of, volume, member.copy),
        }
        rest = key_mapper.rest_of(*place_of(self._prefix, of.name, of.key_prefix, member.path))
        wanted = metadata.with_rest(rest, described)
        made = self._store.copied(key, head, wanted) if is_there else None
        if made is None:
            with self._awaited.request(key, self._late_seconds):
                there = None if is_there else ABSENT
                made = self._store.copy(source.key, key, head, wanted, there=there)
        self._awaited.ended(key)
        return Copied(made.etag, label(self._store, of, key, tags=tags))


def sources_of(session: Session, members: Sequence[PromotedMember]) -> dict[int, OriginalObject]:
    """Return the objects of originals that are what is promoted, by inode."""
    rows = session.all(SOURCES, inos=rows_of([(member.ino,) for member in members]))
    original_objects = {row[0]: OriginalObject(*row) for row in rows}
    return {
        member.ino: original_objects[member.ino]
        for member in members
        if member.ino in original_objects and original_objects[member.ino].is_of(member)
    }


def lacks(store: HoldingStore, of: PromotionRow, *, tags: bool) -> str | None:
    """Return what the bucket cannot do of what a person wants, or None. Raises StoreUnavailable,
    StoreRefused.

    Args:
        tags: whether the store keeps them.
    """
    if of.legal_hold and not store.has_lock():
        return NO_LOCK
    if of.tags is not None and not tags:
        return "the bucket keeps no tags of objects: promote without --tag"
    return None


def label(store: HoldingStore, of: PromotionRow, key: str, *, tags: bool) -> bool:
    """Give an object of a copy its tags and its legal hold. Returns whether it has the tags.

    Raises StoreError, about tags only if a person wanted some.

    Args:
        tags: whether the store keeps them.
    """
    if of.legal_hold:
        store.hold(key)
    try:
        if tags:
            store.tag(key, of.all_tags)
    except StoreUnavailable:
        raise
    except StoreError:
        if of.tags is not None:
            raise
        return False
    return tags


def _key(member: PromotedMember) -> str:
    assert member.key is not None, "only files are copied"
    return member.key
