"""Sends nothing over an object that this gateway did not put there.

A key at which no object of the file is recorded may have one all the same: what a deleted file left
there, what an earlier try put there whose answer was lost, or what another program put there. The
metadata tells them apart. Where the store heeds conditions it decides by itself whether nothing, or
exactly the object that was looked at, is replaced. Elsewhere the key is looked at right before.
"""

from __future__ import annotations

from gateway.db.compiled import rows_of
from gateway.drain import statements as own
from gateway.drain.context import Context
from gateway.drain.metadata import origin_of
from gateway.drain.send import intent
from gateway.drain.send.intent import Started
from gateway.errors import ObjectRefused, Occupied
from gateway.objectstore.body import digest
from gateway.objectstore.checksums import Kind
from gateway.objectstore.conditions import ABSENT
from gateway.objectstore.objects import Head, Stored


class ForeignObject(ObjectRefused):
    """Another program's object has the key of a file. It stays, and the file waits."""


def expected(started: Started) -> str | None:
    """Return what a request for a key should find there, as far as that needs no look: ABSENT, or
    None where the file's own object is recorded."""
    return ABSENT if started.is_first else None


def put(context: Context, started: Started, body: bytes) -> Stored:
    """Store an object in one request. Raises BucketError; ForeignObject, and nothing was sent."""
    store, metadata = context.store, intent.metadata(started)
    if started.is_first and started.is_replacing:
        return store.put(started.key, body, metadata, look(context, started, body))
    try:
        return store.put(started.key, body, metadata, expected(started))
    except Occupied:
        return store.put(started.key, body, metadata, look(context, started, body))


def look(context: Context, started: Started, body: bytes | None = None) -> str:
    """Return what is at the key of an upload: ABSENT, or the ETag of an object of this namespace.
    Raises BucketError; ForeignObject.

    Parameters: body, of the file, if it is in memory.
    """
    head = context.store.head(started.key)
    if head is None:
        return ABSENT
    if body is not None and head.etag == digest(body, {Kind.MD5}).md5.hex():
        return head.etag  # the same bytes: nothing of another is lost
    require_ours(context, started.key, head)
    return head.etag


def require_ours(context: Context, key: str, head: Head) -> None:
    """Raise ForeignObject unless an object is known to be this namespace's.

    Servers that keep no metadata tell nothing: then the ETag of what was recorded there decides.
    An object of an earlier Spillway has no volume. This prefix is this gateway's, and so is it.
    """
    origin = origin_of(head.metadata)
    with context.reading() as view:
        if origin.volume == view.volume or (origin.volume is None and origin.ino is not None):
            return
        recorded = view.session.all(own.TOMBSTONES_AT, keys=rows_of([(key,)]))
    if origin.volume is None and any(head.etag == row[3] for row in recorded):
        return
    raise ForeignObject(
        f"{key}: an object that this gateway did not put there has the key, and stays: move it "
        "away, or rename the file"
    )
