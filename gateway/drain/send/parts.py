"""Upload in parts, several at a time, which resumes where an earlier try was interrupted.

A part that the store lists counts only if its ETag or checksum is that of the local bytes, which
are read again for it. So the parts of an upload always add up to the file as it is now. The block
digests come from the same readings. An object that an earlier try completed without an answer also
counts only if it is of the local bytes. Then nothing is sent again. Each part in flight takes one
block of 1 MiB of memory, whatever the size of the parts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import nullcontext
from typing import BinaryIO

from gateway.common.errors import (
    DataFileError,
    ForeignObject,
    ObjectRefused,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from gateway.drain import statements as own
from gateway.drain.context import Context
from gateway.drain.send import checksum, foreign, intent
from gateway.drain.send.intent import Sent, Started
from gateway.objectstore.bodies import FileRange, digest
from gateway.objectstore.checksums import ChecksumKind, sum_of
from gateway.objectstore.metadata import SNAPSHOT
from gateway.objectstore.objects import Head, ListedPart, Part, part_bytes_of
from gateway.objectstore.pace import always, patiently
from gateway.objectstore.part_copies import in_flight

log = logging.getLogger("drain")


def send_parts(
    context: Context, started: Started, data: BinaryIO, expected: str | None
) -> Sent | None:
    """Send a file as a multipart upload.

    Returns None if the file changed (nothing is left in the bucket) or the drain stops (the upload
    stays, to resume later). Raises: StoreError, DataFileError; the upload stays.

    Args:
        expected: the checksum of the file when it was sealed, or None if it is not known.
    """
    key = started.key
    there = _completed(context, started)
    with context.lasting(key) if there is None else nullcontext():
        return _send_parts(context, started, data, expected, there)


def _completed(context: Context, started: Started) -> Head | None:
    """Return the object that an earlier try may have completed without an answer."""
    if started.resumed is None:
        return None
    head = context.store.head(started.key, with_sum=True)
    if head is None or not intent.is_of(head, started):
        return None
    log.info("%s is there: an earlier upload was completed without an answer", started.key)
    context.awaited.ended(started.key)
    return head


def _send_parts(
    context: Context, started: Started, data: BinaryIO, expected: str | None, there: Head | None
) -> Sent | None:
    """Send the parts and complete the upload, or compare what is there."""
    file, key = started.file, started.key
    if started.is_first and there is None:
        _require_free(context, started)
    upload_id, part_bytes, listed = _begin(context, started, there)
    kinds = checksum.kinds_for(context.store.kind, expected)
    count = -(-file.size // part_bytes)
    done_bytes = 0

    def send_one(number: int) -> Part:
        start = (number - 1) * part_bytes
        section = checksum.section_of(data, start, min(part_bytes, file.size - start), file.size)
        if there is not None:
            return Part(number, "", digest(section, kinds))
        return _send_one(context, started, upload_id, number, section, listed.get(number), kinds)

    def go_on(part: Part) -> bool:
        nonlocal done_bytes
        done_bytes = min(file.size, part.number * part_bytes)
        context.on_progress(key, done_bytes, file.size)
        return not context.stop.is_set() and intent.is_current(context, started)

    context.on_progress(key, 0, file.size)
    completing = False
    try:
        concurrency = context.settings.drain.part_concurrency
        parts = in_flight(range(1, count + 1), concurrency, send_one, go_on)
        if parts is not None:
            # After all bytes were read, the last go_on() was the check that lets the object become
            # visible.
            digests = [part.digests for part in parts]
            checksum.require_parts(expected, part_bytes, digests, key)
            is_new = started.is_first and there is None
            replaces = foreign.look(context, started) if is_new else None
            completing = True
            head = there or _complete(context, started, upload_id, part_bytes, parts, replaces)
            if there is not None:
                kind = context.store.kind
                context.store.compare(key, there, file.size, sum_of(digests, kind))
    except (StoreError, DataFileError) as exc:
        # Bytes that change while they are sent do not match their own checksum.
        if completing or intent.is_current(context, started):
            if isinstance(exc, ObjectRefused):
                _begin_anew(context, started, upload_id)
            raise
        parts = None
    if parts is None:
        if not context.stop.is_set():
            context.store.abort(key, upload_id)
            with context.writing() as view:
                intent.withdraw(view, started)
        return None
    sent = checksum.ChecksumForm(context.store.kind, part_bytes).of(digests)
    return Sent(head.etag, sent, checksum.blocks_of(file.size, digests))


def _require_free(context: Context, started: Started) -> None:
    """Raise ForeignObject if another program's object has the key, before any part is sent."""
    try:
        foreign.look(context, started)
    except ForeignObject:
        if started.resumed is None:
            with context.writing() as view:
                intent.forget(view, [started])
        raise


def _complete(
    context: Context,
    started: Started,
    upload_id: str,
    part_bytes: int,
    parts: list[Part],
    replaces: str | None,
) -> Head:
    """Return the object of the parts. Raises StoreError.

    Args:
        replaces: what is at the key now, as of ``S3Store.put``.
    """
    key, size, store = started.key, started.file.size, context.store
    metadata = intent.metadata(started, part_bytes)
    head = store.complete(key, upload_id, parts, size, metadata, replaces)
    snapshot = head.metadata.get(SNAPSHOT)
    if snapshot is not None and snapshot != metadata.get(SNAPSHOT):
        # The upload is gone, and the object that was found there is an earlier snapshot.
        raise ObjectRefused(f"{key}: the multipart upload is gone; it will be sent again")
    return head


def _send_one(
    context: Context,
    started: Started,
    upload_id: str,
    number: int,
    section: FileRange,
    part: ListedPart | None,
    kinds: Collection[ChecksumKind],
) -> Part:
    """Send a part, unless the store has it.

    Args:
        part: the part as the store lists it.
        kinds: the checksums of the part that are wanted.
    """
    if part is not None and part.size == len(section):
        digests = digest(section, kinds)
        if part.has(digests, context.store.kind):
            return Part(number, f'"{part.etag}"', digests)
    goes_first = always if context.is_first else patiently()
    return context.store.put_part(started.key, upload_id, number, section, kinds, goes_first)


def _begin_anew(context: Context, started: Started, upload_id: str) -> None:
    """Abort an upload that cannot be resumed. The intent stays: there may be something at the
    key."""
    context.store.abort(started.key, upload_id)
    with context.writing() as view:
        ino = started.file.ino
        view.session.run(own.UPLOAD_ID, the_ino=ino, new_id=None, new_part_bytes=None)


def _begin(
    context: Context, started: Started, there: Head | None
) -> tuple[str, int, dict[int, ListedPart]]:
    """Return the upload's id, the size of its parts, and the parts that the store has already.

    Args:
        there: the object that it was completed to.
    """
    file, key, resumed = started.file, started.key, started.resumed
    if resumed is not None and resumed.upload_id and resumed.part_bytes:
        if there is not None:
            return resumed.upload_id, resumed.part_bytes, {}
        listed = context.store.parts(key, resumed.upload_id)
        if listed is not None:
            log.info("resuming the upload of %s: %d parts are there", key, len(listed))
            return resumed.upload_id, resumed.part_bytes, listed
    part_bytes = part_bytes_of(file.size, context.settings.drain.part_bytes)
    try:
        upload_id = context.store.begin(key, intent.metadata(started, part_bytes))
    except StoreBusy:
        with context.writing() as view:
            intent.forget(view, [started])
        raise
    except StoreUnavailable:
        # The upload may have begun, and the rows that name the key may be gone before any look at
        # it.
        context.mark_all_indeterminate((file.ino, key))
        raise
    # If the drain is killed here, the upload has an intent but its id is lost: abort_unrecorded()
    # finds it.
    with context.writing() as view:
        intent.record_parts(view, started, upload_id, part_bytes)
    return upload_id, part_bytes, {}
