"""Moves one object inside the bucket after a rename: copy, make sure, record, then delete.

Two kinds of move: to the key the file has now, and out of the way, to a staging key, when another
file must have the old key first (two names that were swapped). Never is the last copy lost:

1. A ``deletion`` of the target is durable before anything is copied. Killed in the middle, the
   half of a move is garbage with a licence, not an object without a row.
2. The source must be what its ``object`` row says, or nothing is copied.
3. One transaction makes the ``object`` row name the copy, takes the target's ``deletion`` back
   and licenses the deletion of the source. Until then the source is the object.

The caller holds the claims of the inode and of both keys.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from gateway.drain import doubt
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.intent import with_rest
from gateway.drain.paths import file_of, object_at, object_of
from gateway.drain.upload import Outcome
from gateway.errors import ObjectRefused, StoreUnavailable
from gateway.objectstore.keys import staging_key

log = logging.getLogger("drain")


class Move(NamedTuple):
    """The object of an inode belongs at another key."""

    ino: int
    source: str
    target: str


def move(context: Context, planned: Move) -> Outcome:
    """Carry out a move that is still right. Raises BucketError."""
    ino, source, target = planned
    with context.writing() as view:
        stored = _still_right(context, view, planned)
        if stored is None:
            return Outcome.OUTDATED
        rest = view.paths.rest_of(ino)
        view.license_deletion(target, ino, stored.content_version)
    head = context.store.head(source)
    if head is None or (head.size, head.etag) != (stored.size, stored.etag):
        raise ObjectRefused(f"{source}: the bucket does not have the object that was recorded")
    try:
        copied = context.store.copy(source, target, head, with_rest(rest, head.metadata))
    except StoreUnavailable:
        # A copy in parts may have left some.
        doubt.note(context, (ino, target))
        raise
    with context.writing() as view:
        moved = view.session.run(
            own.OBJECT_MOVE, the_ino=ino, old_key=source, new_key=target, new_etag=copied.etag
        )
        if not moved:
            # Its file was deleted meanwhile: the copy is garbage, and has its licence.
            return Outcome.OUTDATED
        view.session.run(own.DELETION_DELETE, the_key=target)
        view.license_deletion(source, ino, stored.content_version, stored.etag)
        if view.paths.key_of(ino) != target:
            view.note_rekey(ino)
    log.info("moved %s to %s", source, target)
    return Outcome.DONE


def next_move(context: Context, view: View, stored: own.Stored) -> Move | None:
    """The move that brings an object nearer to where it belongs.

    None: it is there, or its name is held, or its file is dirty and the coming upload moves it.
    """
    target = _destination(view, stored)
    if target is None:
        return None
    occupant = object_at(view.session, target)
    if occupant is None:
        return Move(stored.ino, stored.key, target)
    return make_way(context, view, occupant)


def make_way(context: Context, view: View, occupant: own.Stored) -> Move:
    """The move of an object off a key that now belongs to another file."""
    target = _destination(view, occupant)
    if target is None or object_at(view.session, target) is not None:
        target = staging_key(context.prefix, occupant.ino)
    return Move(occupant.ino, occupant.key, target)


def _destination(view: View, stored: own.Stored) -> str | None:
    key = view.paths.key_of(stored.ino)
    file = file_of(view.session, stored.ino)
    if key in (None, stored.key) or file is None or file.is_dirty or file.write_open:
        return None
    return key


def _still_right(context: Context, view: View, planned: Move) -> own.Stored | None:
    session = view.session
    stored = object_of(session, planned.ino)
    if stored is None or stored.key != planned.source:
        return None
    if object_at(session, planned.target) is not None:
        return None
    if session.one(own.UPLOAD_AT, key=planned.target, ino=planned.ino) is not None:
        # Until that multipart upload is aborted, a late completion of it could land here.
        return None
    if planned.target == staging_key(context.prefix, planned.ino):
        belongs_here = view.paths.key_of(planned.ino) == planned.source
        return None if belongs_here else stored
    return stored if _destination(view, stored) == planned.target else None
