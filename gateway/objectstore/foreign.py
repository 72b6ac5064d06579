"""Foreign objects: never replaced, and found before a prefix without an owner object is taken.

Each writer says how it knows its own objects: by their metadata, and where a server keeps none, by
what is recorded. Where the store heeds conditions it decides by itself whether nothing, or exactly
the object that was looked at, is replaced. Elsewhere the key is looked at right before.

The metadata of an object names its namespace (``gateway.objectstore.metadata``). An object without
it, of an earlier Spillway or on a server that keeps none, is this namespace's if the database has
recorded it with this size and ETag. Before a takeover samples are looked at, of what is recorded
and of what is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import select

from gateway.common.errors import ForeignObject, Occupied
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import object_
from gateway.objectstore import key_mapper
from gateway.objectstore.bodies import Body, digest
from gateway.objectstore.checksums import ChecksumKind
from gateway.objectstore.metadata import origin_of
from gateway.objectstore.objects import Head, VerifiedObject
from gateway.objectstore.owner_object import OwnerStore
from gateway.objectstore.request import ABSENT
from gateway.objectstore.s3 import S3Store

IsOurs = Callable[[Head], bool]


def look(store: S3Store, key: str, is_ours: IsOurs, remedy: str, body: Body | None = None) -> str:
    """Return what is at a key: ABSENT, or the ETag of an object of this namespace. Raises
    StoreError; ForeignObject.

    Args:
        remedy: what a person can do about another's.
        body: what is to be put there, if it is small: to replace the same bytes loses nothing of
            another's.
    """
    head = store.head(key)
    if head is None:
        return ABSENT
    is_same = body is not None and head.etag == digest(body, {ChecksumKind.MD5}).md5.hex()
    if not is_same:
        require_ours(key, head, is_ours, remedy)
    return head.etag


def require_ours(key: str, head: Head, is_ours: IsOurs, remedy: str) -> None:
    """Raise ForeignObject unless an object is known to be this namespace's."""
    if not is_ours(head):
        raise ForeignObject(
            f"{key}: an object that this gateway did not put there has the key, and stays: {remedy}"
        )


def put(
    store: S3Store,
    key: str,
    body: Body,
    metadata: Mapping[str, str],
    is_ours: IsOurs,
    remedy: str,
) -> VerifiedObject:
    """Store an object where nothing is, or one of this namespace. Raises as ``look``: then nothing
    was sent."""
    try:
        return store.put(key, body, metadata, ABSENT)
    except Occupied:
        return store.put(key, body, metadata, look(store, key, is_ours, remedy, body))


SAMPLE = 16
"""The objects of each kind that are looked at."""

_FACTS = (object_.c.key, object_.c.size, object_.c.etag)
_FIRST = Statement(select(*_FACTS).order_by(object_.c.ino).limit(b("most")))
_LAST = Statement(select(*_FACTS).order_by(object_.c.ino.desc()).limit(b("most")))


class Recorded(NamedTuple):
    """An object that the database has recorded."""

    key: str
    size: int
    etag: str


class Evidence(NamedTuple):
    """What there is below a prefix."""

    listed: Sequence[str]
    """Some keys. Empty: there is no object."""
    recorded: int
    """How many recorded objects were looked for."""
    ours: int
    """How many objects are known to be this namespace's."""
    foreign: str | None
    """The key of an object of another namespace."""
    overlap: str | None
    """The text of ``overlap_of``."""

    def problem(self, settings: Settings) -> str | None:
        """Return why the prefix cannot be claimed, with the remedy, or None."""
        bucket = settings.bucket
        where = f"bucket {bucket.name}, prefix {bucket.prefix!r}"
        if self.overlap is not None:
            return f"{where}, {self.overlap}spillway adopt bucket --adopt"
        choose = "choose another bucket.prefix, or, if nothing else writes there: spillway adopt"
        if self.foreign is not None:
            return (
                f"{where} has objects of another gateway ({self.foreign}): {choose} bucket --adopt"
            )
        if self.ours or not (self.listed or self.recorded):
            return None
        if self.recorded:
            return (
                f"{where} has none of the objects that are recorded: it is another store, or an "
                "older one: correct bucket.endpoint_url; to send everything there: spillway adopt "
                "bucket" + (" --adopt" if self.listed else "")
            )
        return f"{where} has objects ({self.listed[0]}) and no owner: {choose} bucket --adopt"


def recorded(session: Session) -> list[Recorded]:
    """Return some of the objects that the database has recorded."""
    rows = [*session.all(_FIRST, most=SAMPLE), *session.all(_LAST, most=SAMPLE)]
    return [Recorded(*row) for row in dict.fromkeys(map(tuple, rows))]


def gather(store: OwnerStore, namespace: str, known: Sequence[Recorded]) -> Evidence:
    """Ask the store. Raises StoreError.

    Args:
        namespace: id of this one.
        known: objects that the database has recorded.
    """
    listed = store.listed()
    overlap = overlap_of(store, namespace, listed)
    by_key = {known_object.key: known_object for known_object in known}
    step = max(1, len(listed) // SAMPLE)
    ours, foreign = 0, None
    for key in dict.fromkeys([*by_key, *listed[::step][:SAMPLE], *listed[-1:]]):
        head = store.head(key)
        if head is None:
            continue
        volume = origin_of(head.metadata).volume
        if volume is not None and volume != namespace:
            foreign = key
            break
        ours += volume == namespace or _is(head, by_key.get(key))
    return Evidence(listed, len(known), ours, foreign, overlap)


def overlap_of(store: OwnerStore, namespace: str, listed: Sequence[str]) -> str | None:
    """Return which gateway's prefix contains this one, or is contained: a text to which the command
    of the remedy is added. None: none is known. Raises StoreError.

    Each would take objects of the other for garbage of its own, or for foreign ones. Only owner
    objects of prefixes above, and among the keys that were listed, are looked for.
    """
    names = store.prefix.split("/") if store.prefix else []
    above = ["/".join(names[:at]) for at in range(len(names))]
    below = [
        owned_prefix for key in listed if (owned_prefix := key_mapper.owned_prefix(key)) is not None
    ]
    for other in (*above, *below):
        if (owner := store.stranger(other, namespace)) is not None:
            how = "is inside of" if other in above else "contains"
            return (
                f"{how} the prefix {other!r}, which belongs to another gateway, {owner}: choose a "
                "bucket.prefix beside it; if that one is gone for good: "
            )
    return None


def _is(head: Head, known: Recorded | None) -> bool:
    return known is not None and (head.size, head.etag) == (known.size, known.etag)
