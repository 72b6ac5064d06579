"""Uploads one file: intent, bytes, check, object, publish. Safe to be killed at every step.

1. The intent (an ``upload`` row) is durable before any byte goes out: what a crash leaves in the
   bucket is always named by a row.
2. The bytes are read. A version's number moves durably before its first byte is written, so when
   the number is still the same after the last byte was read, no byte is of another version.
3. That is checked, with everything else that makes the file worth an object, before the object
   can become visible; otherwise the upload is withdrawn.
4. The object is made, and the store is asked whether it has it.
5. One transaction publishes it. If the file lost its name meanwhile, the object is garbage and
   gets its ``deletion``; if it got another name, a ``rekey``.

The caller holds the claim of the inode and of the key: nothing else touches either meanwhile.
"""

from __future__ import annotations

import hashlib
import io
import logging
from enum import Enum
from typing import BinaryIO, NamedTuple

from gateway import clock
from gateway.db import statements as sql
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.paths import file_of, intent_of, object_at, object_of
from gateway.errors import DataFileError
from gateway.objectstore.s3 import Head, Part, multipart_etag, part_bytes_of

log = logging.getLogger("drain")


class Outcome(Enum):
    """How a job ended when nothing failed."""

    DONE = "done"
    """The bucket and the database agree on it."""
    OUTDATED = "outdated"
    """The namespace changed; the next pass decides anew."""


class Sent(NamedTuple):
    """An object that the store confirmed and no row names yet."""

    head: Head
    checksum: str


class Started(NamedTuple):
    """An upload whose intent is durable."""

    file: own.File
    key: str
    prior: own.Intent | None
    """What an earlier try with the same key left: its bytes may be at the key."""


def upload(context: Context, planned: own.File, key: str) -> Outcome:
    """Bring one dirty file into the bucket.

    Parameters: planned, the file, and its key, as the plan saw them.
    Raises: DataFileError, BucketError; the intent stays, the next pass settles it.
    """
    # Before the intent: a file whose bytes are lost must not change anything in the bucket.
    with _open_data(context, planned) as data:
        started = _intend(context, planned, key)
        if started is None:
            return Outcome.OUTDATED
        if planned.size <= context.settings.drain.part_bytes:
            sent = _send_whole(context, started, data)
        else:
            sent = _send_parts(context, started, data)
    if sent is None:
        return Outcome.OUTDATED
    _publish(context, started, sent)
    return Outcome.DONE


def _open_data(context: Context, file: own.File) -> BinaryIO:
    path = context.files.path(file.ino, file.epoch)
    try:
        data = path.open("rb")
    except FileNotFoundError:
        if file.size == 0:
            return io.BytesIO()
        raise DataFileError(f"data file {path} is missing, {file.size} bytes expected") from None
    found = data.seek(0, io.SEEK_END)
    data.seek(0)
    if found != file.size:
        data.close()
        raise DataFileError(f"data file {path} has {found} bytes, {file.size} expected")
    return data


def _read(data: BinaryIO, size: int) -> bytes:
    body = data.read(size)
    if len(body) != size:
        raise DataFileError(f"data file ended {size - len(body)} bytes early")
    return body


def _current(view: View, planned: own.File, key: str) -> own.File | None:
    """The file, if the planned version of it is still complete and still belongs at the key."""
    file = file_of(view.session, planned.ino)
    if file is None or file.write_open or file.content_version != planned.content_version:
        return None
    return file if view.paths.key_of(planned.ino) == key else None


def _intend(context: Context, planned: own.File, key: str) -> Started | None:
    with context.writing() as view:
        session = view.session
        file = _current(view, planned, key)
        if file is None or not file.is_dirty or file.size != planned.size:
            return None
        occupant = object_at(session, key)
        if occupant is not None and occupant.ino != file.ino:
            return None
        if session.one(own.UPLOAD_AT, key=key, ino=file.ino) is not None:
            # Until that multipart upload is aborted, a late completion of it could land here.
            return None
        prior = intent_of(session, file.ino)
        if prior is not None:
            if prior.upload_id is not None:
                return None
            if prior.key != key and object_at(session, prior.key) is None:
                view.license_deletion(prior.key)
            session.run(own.UPLOAD_DELETE, the_ino=file.ino)
        session.run(
            own.UPLOAD_INSERT,
            ino=file.ino,
            content_version=file.content_version,
            key=key,
            upload_id=None,
            started_ns=clock.now_ns(),
        )
        return Started(file, key, prior if prior is not None and prior.key == key else None)


def _send_whole(context: Context, started: Started, data: BinaryIO) -> Sent | None:
    file, key = started.file, started.key
    context.on_progress(key, 0, file.size)
    body = _read(data, file.size)
    if not _is_wanted(context, started):
        _withdraw(context, started)
        return None
    head = context.store.put(key, body, _metadata(file))
    context.on_progress(key, file.size, file.size)
    return Sent(head, "md5:" + hashlib.md5(body, usedforsecurity=False).hexdigest())


def _send_parts(context: Context, started: Started, data: BinaryIO) -> Sent | None:
    file, key = started.file, started.key
    part_bytes = part_bytes_of(file.size, context.settings.drain.part_bytes)
    upload_id = context.store.begin(key, _metadata(file))
    # Killed here, the upload has an intent but its id is lost: abort_unrecorded() finds it.
    with context.writing() as view:
        view.session.run(own.UPLOAD_ID, the_ino=file.ino, new_id=upload_id)
    parts: list[Part] = []
    for number, start in enumerate(range(0, file.size, part_bytes), 1):
        context.on_progress(key, start, file.size)
        body = _read(data, min(part_bytes, file.size - start))
        parts.append(context.store.put_part(key, upload_id, number, body))
        del body
        # After the last part this is the check that lets the object become visible.
        if not _is_wanted(context, started):
            context.store.abort(key, upload_id)
            _withdraw(context, started)
            return None
    head = context.store.complete(key, upload_id, parts, file.size, _metadata(file))
    digest = multipart_etag([part.digest for part in parts]).partition("-")[0]
    return Sent(head, f"md5-parts:{part_bytes}:{digest}")


def _is_wanted(context: Context, started: Started) -> bool:
    if context.stop.is_set():
        return False
    with context.reading() as view:
        return _current(view, started.file, started.key) is not None


def _withdraw(context: Context, started: Started) -> None:
    """End an upload that put nothing at its key. What an earlier try put there stays named."""
    ino = started.file.ino
    with context.writing() as view:
        if started.prior is None:
            view.session.run(own.UPLOAD_DELETE, the_ino=ino)
        else:
            view.session.run(own.UPLOAD_ID, the_ino=ino, new_id=None)
    log.info("withdrew the upload of %s: the file changed, or the drain stops", started.key)


def _publish(context: Context, started: Started, sent: Sent) -> None:
    file, key = started.file, started.key
    with context.writing() as view:
        session = view.session
        session.run(own.UPLOAD_DELETE, the_ino=file.ino)
        if file_of(session, file.ino) is None:
            view.license_deletion(key)
            log.info("%s was deleted while it was uploaded", key)
            return
        old = object_of(session, file.ino)
        if old is not None and old.key != key:
            view.license_deletion(old.key)
        session.run(sql.OBJECT_DELETE, the_ino=file.ino)
        session.run(
            own.OBJECT_INSERT,
            ino=file.ino,
            key=key,
            content_version=file.content_version,
            size=file.size,
            etag=sent.head.etag,
            checksum=sent.checksum,
            stored_ns=clock.now_ns(),
        )
        session.run(own.DRAINED, the_ino=file.ino, version=file.content_version)
        session.run(own.DELETION_DELETE, the_key=key)
        if view.paths.key_of(file.ino) != key:
            view.note_rekey(file.ino)
    log.info("uploaded %s (%d bytes)", key, file.size)


def _metadata(file: own.File) -> dict[str, str]:
    return {
        "mode": f"{file.mode:04o}",
        "uid": str(file.uid),
        "gid": str(file.gid),
        "mtime-ns": str(file.mtime_ns),
        "content-version": str(file.content_version),
        "ino": str(file.ino),
    }
