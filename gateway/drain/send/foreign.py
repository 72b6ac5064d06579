"""Guard of uploads: nothing is sent over an object that this gateway did not put there.

A key at which no object of the file is recorded may have one all the same: what a deleted file left
there, what an earlier try put there whose answer was lost, or what another program put there
(``gateway.objectstore.foreign``). An object that another program made, and that became a file
(`spillway reconcile --import`), is replaced only while it is the one that is recorded.
"""

from __future__ import annotations

from functools import partial

from gateway.common.errors import Occupied, StoreBusy, StoreUnavailable
from gateway.db.compiled import rows_of
from gateway.drain import statements as own
from gateway.drain.context import Context
from gateway.drain.paths import object_at
from gateway.drain.send import intent
from gateway.drain.send.intent import Started
from gateway.objectstore import foreign
from gateway.objectstore.metadata import origin_of
from gateway.objectstore.objects import Head, VerifiedObject
from gateway.objectstore.request import ABSENT

REMEDY = "move it away, or rename the file"


def expected(started: Started) -> str | None:
    """Return what a request for a key should find there, as far as that needs no look: ABSENT, or
    None where the file's own object is recorded."""
    return ABSENT if started.is_first else None


def put(context: Context, started: Started, body: bytes) -> VerifiedObject:
    """Store an object in one request. Raises StoreError; ForeignObject, and nothing was sent."""
    store, metadata = context.store, intent.metadata(started)
    if started.is_first and started.is_replacing:
        return store.put(started.key, body, metadata, look(context, started, body))
    try:
        return store.put(started.key, body, metadata, expected(started))
    except Occupied:
        return replace(context, started, body)


def replace(context: Context, started: Started, body: bytes) -> VerifiedObject:
    """Store an object in place of what an upload has just found at its key.

    That may be what an earlier try of the same request put there, whose answer was lost. So this
    never says that the store took nothing up: the intent would go, and no row would name the
    object.

    Raises:
        StoreError: but no StoreBusy.
        ForeignObject: nothing was sent.
    """
    store, metadata = context.store, intent.metadata(started)
    try:
        return store.put(started.key, body, metadata, look(context, started, body))
    except StoreBusy as exc:
        raise StoreUnavailable(str(exc)) from exc


def look(context: Context, started: Started, body: bytes | None = None) -> str:
    """Return what is at the key of an upload: ABSENT, or the ETag of an object of this namespace.
    Raises StoreError; ForeignObject.

    Args:
        body: body of the file, if it is in memory.
    """
    is_ours = partial(_is_ours, context, started.key)
    return foreign.look(context.store, started.key, is_ours, REMEDY, body)


def require_ours(context: Context, key: str, head: Head) -> None:
    """Raise ForeignObject unless an object is known to be this namespace's."""
    foreign.require_ours(key, head, partial(_is_ours, context, key), REMEDY)


def _is_ours(context: Context, key: str, head: Head) -> bool:
    """Return whether an object is known to be this namespace's.

    Servers that keep no metadata tell nothing: then the ETag of what was recorded there decides.
    An object of an earlier Spillway has no volume. This prefix is this gateway's, and so is it.
    """
    origin = origin_of(head.metadata)
    with context.reading() as view:
        if origin.volume == view.volume or (origin.volume is None and origin.ino is not None):
            return True
        recorded = view.session.all(own.TOMBSTONES_AT, keys=rows_of([(key,)]))
        stored = object_at(view.session, key)
    if stored is not None and (head.size, head.etag) == (stored.size, stored.etag):
        return True  # of another program at first, and taken for a file as it is
    return origin.volume is None and any(head.etag == row[3] for row in recorded)
