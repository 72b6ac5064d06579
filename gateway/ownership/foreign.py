"""Puts nothing over an object that this namespace did not put at a key.

Each writer says how it knows its own objects: by their metadata, and where a server keeps none, by
what is recorded. Where the store heeds conditions it decides by itself whether nothing, or exactly
the object that was looked at, is replaced. Elsewhere the key is looked at right before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.errors import ObjectRefused, Occupied
from gateway.objectstore.body import Body, digest
from gateway.objectstore.checksums import Kind
from gateway.objectstore.conditions import ABSENT
from gateway.objectstore.objects import Head, Stored
from gateway.objectstore.s3 import S3Store

IsOurs = Callable[[Head], bool]


class ForeignObject(ObjectRefused):
    """Another program's object has the key. It stays, and what is to be there waits."""


def look(store: S3Store, key: str, is_ours: IsOurs, remedy: str, body: Body | None = None) -> str:
    """Return what is at a key: ABSENT, or the ETag of an object of this namespace. Raises
    StoreError; ForeignObject.

    Parameters: remedy, what a person can do about another's; body, what is to be put there, if it
    is small: to replace the same bytes loses nothing of another's.
    """
    head = store.head(key)
    if head is None:
        return ABSENT
    is_same = body is not None and head.etag == digest(body, {Kind.MD5}).md5.hex()
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
) -> Stored:
    """Store an object where nothing is, or one of this namespace. Raises as ``look``: then nothing
    was sent."""
    try:
        return store.put(key, body, metadata, ABSENT)
    except Occupied:
        return store.put(key, body, metadata, look(store, key, is_ours, remedy, body))
