"""The rows of an upload: intent before the first byte, object after the store's word.

1. The intent (an ``upload`` row) is durable before any byte goes out: what a crash leaves in the
   bucket is always named by a row.
2. One transaction publishes an object. If the file lost its name meanwhile, the object is garbage
   and gets its ``deletion``; if it got another name, a ``rekey``.

The caller holds the claims of the inode and of the key: nothing else touches either meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from gateway import clock
from gateway.db import statements as sql
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.paths import file_of, intent_of, object_at, object_of
from gateway.objectstore.objects import PART_BYTES

log = logging.getLogger("drain")

PATH_REST = "path-rest"
VOLUME = "volume"
GENERATION = "generation"
"""Metadata: of which namespace the object is, and of which inode with that number. Objects of
earlier versions of Spillway have neither."""
SNAPSHOT = "snapshot-ns"
"""Metadata of the object of a file that was open: the moment it shows."""


class Started(NamedTuple):
    """An upload whose intent is durable."""

    file: own.File
    """Of a snapshot: with the size and the mtime of the copy that is sent."""
    key: str
    prior: own.Intent | None
    """What an earlier try with the same key left: its bytes may be at the key."""
    resumed: own.Intent | None
    """The same version's multipart upload, which was interrupted: it goes on."""
    rest: str
    """What the key does not tell of the path."""
    volume: str
    """The namespace, as in metadata."""
    snapshot_ns: int | None = None
    """The moment that a snapshot shows; None: it is a version that is complete."""


class Sent(NamedTuple):
    """An object that the store confirmed and no row names yet."""

    etag: str
    checksum: str
    is_doubtful: bool = False
    """An earlier try of the request was not answered, and may be carried out after others."""


def current(view: View, planned: own.File, key: str) -> own.File | None:
    """The file, if it is still that version, whole, complete or open as planned, and has that
    key."""
    file = file_of(view.session, planned.ino)
    if file is None or file.content_version != planned.content_version:
        return None
    if file.write_open != planned.write_open:
        return None
    if view.session.one(own.DAMAGE, ino=file.ino) is not None:
        return None
    return file if view.paths.key_of(planned.ino) == key else None


def is_current(context: Context, started: Started) -> bool:
    """Whether the upload is still wanted."""
    with context.reading() as view:
        return current(view, started.file, started.key) is not None


def can_resume(view: View, intent: own.Intent) -> bool:
    """Whether an interrupted multipart upload is of the version that is wanted at its key.

    That of a snapshot has no part size: its metadata would be wrong for the version's own bytes.
    """
    if intent.upload_id is None or intent.part_bytes is None:
        return False
    file = file_of(view.session, intent.ino)
    return (
        file is not None
        and file.is_dirty
        and not file.write_open
        and file.content_version == intent.content_version
        and intent.generation in (0, file.generation)
        and view.paths.key_of(intent.ino) == intent.key
    )


def intend(
    view: View, planned: own.File, key: str, snapshot_ns: int | None = None
) -> Started | None:
    """Record the intent; None: the file changed, or something is in the way."""
    session = view.session
    file = current(view, planned, key)
    if file is None or not file.is_dirty:
        return None
    if snapshot_ns is not None:
        # While it is open its row knows neither.
        file = file._replace(size=planned.size, mtime_ns=planned.mtime_ns)
    elif file.size != planned.size:
        return None
    occupant = object_at(session, key)
    if occupant is not None and occupant.ino != file.ino:
        return None
    if session.one(own.UPLOAD_AT, key=key, ino=file.ino) is not None:
        # Until that multipart upload is aborted, a late completion of it could land here.
        return None
    prior, rest, volume = intent_of(session, file.ino), view.paths.rest_of(file.ino), view.volume
    if prior is not None:
        if prior.upload_id is not None and not can_resume(view, prior):
            return None
        # How its requests ended is not known: one may reach the store after those of this try.
        view.doubt_later(prior.key, prior.ino)
        if prior.upload_id is not None:
            return Started(file, key, prior, prior, rest, volume)
        occupant = object_at(session, prior.key)
        if prior.key != key and (occupant is None or occupant.ino == file.ino):
            # Also over the file's own object, which may be of this version by now: the licence
            # waits until the file's object is elsewhere.
            view.license_deletion(
                prior.key, prior.ino, prior.content_version, generation=prior.generation
            )
        session.run(own.UPLOAD_DELETE, the_ino=file.ino)
    session.run(
        own.UPLOAD_INSERT,
        ino=file.ino,
        content_version=file.content_version,
        key=key,
        upload_id=None,
        part_bytes=None,
        started_ns=clock.now_ns(),
        generation=file.generation,
    )
    at_key = prior if prior is not None and prior.key == key else None
    return Started(file, key, at_key, None, rest, volume, snapshot_ns)


def record_parts(view: View, started: Started, upload_id: str, part_bytes: int) -> None:
    """Record the multipart upload of an intent."""
    ino = started.file.ino
    resumable = part_bytes if started.snapshot_ns is None else None
    view.session.run(own.UPLOAD_ID, the_ino=ino, new_id=upload_id, new_part_bytes=resumable)


def withdraw(view: View, started: Started) -> None:
    """End an upload that put nothing at its key. What an earlier try put there stays named."""
    ino = started.file.ino
    if started.prior is None:
        view.session.run(own.UPLOAD_DELETE, the_ino=ino)
    else:
        view.session.run(own.UPLOAD_ID, the_ino=ino, new_id=None, new_part_bytes=None)
    log.info("withdrew the upload of %s: the file changed", started.key)


def publish(view: View, started: Started, sent: Sent) -> None:
    """Make the bucket's object the file's object."""
    file, key, session = started.file, started.key, view.session
    session.run(own.UPLOAD_DELETE, the_ino=file.ino)
    if sent.is_doubtful:
        view.doubt_later(key, file.ino)
    if file_of(session, file.ino) is None:
        view.license_deletion(
            key, file.ino, file.content_version, sent.etag, generation=file.generation
        )
        log.info("%s was deleted while it was uploaded", key)
        return
    old = object_of(session, file.ino)
    if old is not None and old.key != key:
        view.license_deletion(
            old.key, old.ino, old.content_version, old.etag, generation=file.generation
        )
    session.run(sql.OBJECT_DELETE, the_ino=file.ino)
    session.run(
        own.OBJECT_INSERT,
        ino=file.ino,
        key=key,
        content_version=file.content_version,
        size=file.size,
        etag=sent.etag,
        checksum=sent.checksum,
        stored_ns=clock.now_ns() if started.snapshot_ns is None else started.snapshot_ns,
    )
    if started.snapshot_ns is None:
        session.run(own.DRAINED, the_ino=file.ino, version=file.content_version)
    # Whatever was at the key, of any inode, is replaced.
    if session.run(own.DELETION_DELETE, the_key=key):
        # A drain that was killed may have asked for it, and the store may still carry that out.
        view.doubt_later(key, file.ino)
    if view.paths.key_of(file.ino) != key:
        view.note_rekey(file.ino)
    log.info("uploaded %s (%d bytes)", key, file.size)


def metadata(started: Started, part_bytes: int | None = None) -> dict[str, str]:
    """What an object carries beside its bytes. Parameters: part_bytes, of one sent in parts."""
    file, snapshot_ns = started.file, started.snapshot_ns
    moment = {} if snapshot_ns is None else {SNAPSHOT: str(snapshot_ns)}
    parts = {} if part_bytes is None else {PART_BYTES: str(part_bytes)}
    return with_rest(
        started.rest,
        moment
        | parts
        | {
            "mode": f"{file.mode:04o}",
            "uid": str(file.uid),
            "gid": str(file.gid),
            "mtime-ns": str(file.mtime_ns),
            "content-version": str(file.content_version),
            "ino": str(file.ino),
            GENERATION: str(file.generation),
            VOLUME: started.volume,
        },
    )


def with_rest(rest: str, others: Mapping[str, str]) -> dict[str, str]:
    """The metadata with what the key does not tell of the path."""
    kept = {name: value for name, value in others.items() if name != PATH_REST}
    return {**kept, PATH_REST: rest} if rest else kept
