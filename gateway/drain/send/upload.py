"""Upload of files: intent, bytes, object, publish. A kill is safe at every step.

A version's number moves durably before its first byte is written. So if the number is still the
same after the last byte was read, no byte is of another version. That is checked, with everything
else that makes the file worth an object, before the object can become visible. A file that is read
into memory is checked in the transaction of its intent, a file sent in parts before the parts
become an object. gateway.drain.send.intent handles the rows.

Small files go in batches: one transaction for their intents, one for their publishing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import BinaryIO

from gateway.common.errors import (
    DataFileError,
    ForeignObject,
    Occupied,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from gateway.drain.context import Context
from gateway.drain.job import JobOutcome
from gateway.drain.messages import Result, SmallObject
from gateway.drain.rows import File
from gateway.drain.send import checksum, foreign, intent
from gateway.drain.send.intent import Sent, Started
from gateway.drain.send.parts import send_parts
from gateway.objectstore.bodies import digest
from gateway.objectstore.objects import MIB, VerifiedObject

log = logging.getLogger("drain")

SMALL_BYTES = MIB
"""Files up to this size are sent in batches."""
BATCH_FILES = 32
BATCH_BYTES = 4 * MIB


def upload(context: Context, planned: File, key: str) -> JobOutcome:
    """Bring one dirty file into the bucket.

    Args:
        planned, key: the file and its key as the plan saw them.

    Raises:
        DataFileError, StoreError: the intent stays, and the next pass settles it.
    """
    # The file is opened before the intent: a file whose bytes are lost must change nothing in the
    # bucket.
    with checksum.open_data(context.files, planned) as data:
        return send(context, planned, key, data)


def send(
    context: Context,
    planned: File,
    key: str,
    data: BinaryIO,
    snapshot_ns: int | None = None,
) -> JobOutcome:
    """Bring the bytes of a file into the bucket.

    Args:
        data: the bytes.
        snapshot_ns: the moment that they show, for a file that stays open.

    Raises:
        DataFileError, StoreError: the intent stays.
    """
    with context.oversize.sending(key, planned.size):
        return _send(context, planned, key, data, snapshot_ns)


def _send(
    context: Context, planned: File, key: str, data: BinaryIO, snapshot_ns: int | None
) -> JobOutcome:
    context.on_progress(key, 0, planned.size)
    expected = checksum.of_seal(context, [planned]).get(planned.ino)
    whole = checksum.is_whole(context.settings.drain, planned.size)
    body = checksum.read(data, planned.size) if whole else b""
    if whole and not _is_as_sealed(context, planned, key, expected, body):
        return JobOutcome.OUTDATED
    if _waiting(context, [(planned, body if whole else None)]):
        return JobOutcome.OUTDATED
    with context.writing() as view:
        started = intent.intend(view, [(planned, key)], snapshot_ns).get(planned.ino)
    if started is None:
        return JobOutcome.OUTDATED
    if context.stop.is_set():
        # The next drain would take it for a request that may reach the store late.
        with context.writing() as view:
            intent.forget(view, [started])
        return JobOutcome.OUTDATED
    if whole:
        if started.resumed is not None:
            # The upload was begun in parts, with another configuration.
            context.store.abort(key, started.resumed.upload_id or "")
        sent = _sent(context, len(body), _put(context, started, body))
    elif (outcome := send_parts(context, started, data, expected)) is None:
        return JobOutcome.OUTDATED
    else:
        sent = outcome
    with context.writing() as view:
        lines = intent.publish(view, [(started, sent)])
    _tell(lines)
    return JobOutcome.DONE


def _put(context: Context, started: Started, body: bytes) -> VerifiedObject:
    """Send a whole object, unless an earlier try that got no answer has put it there."""
    store, key = context.store, started.key
    if started.prior is not None:
        digests = digest(body, {store.kind})
        head = store.head(key, with_sum=True)
        if head is not None and intent.is_of(head, started) and store.has(head, digests):
            return VerifiedObject(head, digests)
    try:
        return foreign.put(context, started, body)
    except (StoreBusy, ForeignObject):
        with context.writing() as view:
            intent.forget(view, [started])
        raise


def upload_many(
    context: Context, planned: Sequence[tuple[File, str]]
) -> list[JobOutcome | Exception]:
    """Bring small files into the bucket. Returns the result of each, in order.

    Raises: StoreError, NamespaceError when that is the same for all; the intents stay.
    """
    results: list[JobOutcome | Exception] = [JobOutcome.OUTDATED] * len(planned)
    bodies: dict[int, bytes] = {}
    expected = checksum.of_seal(context, [file for file, _key in planned])
    for index, (file, key) in enumerate(planned):
        context.on_progress(key, 0, file.size)
        try:
            with checksum.open_data(context.files, file) as data:
                body = checksum.read(data, file.size)
            if _is_as_sealed(context, file, key, expected.get(file.ino), body):
                bodies[index] = body
        except (DataFileError, OSError) as exc:
            results[index] = exc
    waiting = _waiting(context, [(planned[at][0], body) for at, body in bodies.items()])
    bodies = {at: body for at, body in bodies.items() if planned[at][0].ino not in waiting}
    if not bodies:
        return results
    with context.writing() as view:
        begun = intent.intend(view, [planned[index] for index in bodies])
    started = {at: begun[planned[at][0].ino] for at in bodies if planned[at][0].ino in begun}
    if not started:
        return results
    answers = _answers(
        context, [(started_upload, bodies[at]) for at, started_upload in started.items()]
    )
    sent: list[tuple[Started, Sent]] = []
    unsent: list[Started] = []
    for (index, started_upload), answer in zip(started.items(), answers, strict=True):
        if isinstance(answer, VerifiedObject):
            sent.append((started_upload, _sent(context, len(bodies[index]), answer)))
            results[index] = JobOutcome.DONE
        elif answer is not None:
            results[index] = answer
        if answer is None or isinstance(answer, (StoreBusy, ForeignObject)):
            # Its row would mark a request as indeterminate that cannot be carried out.
            unsent.append(started_upload)
    if sent or unsent:
        with context.writing() as view:
            lines = intent.publish(view, sent)
            intent.forget(view, unsent)
        _tell(lines)
    return results


def _answers(context: Context, uploads: Sequence[tuple[Started, bytes]]) -> list[Result | None]:
    """Send small files. Returns the result of each, or None if it was not sent."""
    assert context.senders is not None, "only a drain uploads"
    if context.stop.is_set():
        return [None] * len(uploads)
    # What is known to be at a key is looked at first.
    sent = [
        not (started_upload.is_first and started_upload.is_replacing)
        for started_upload, _body in uploads
    ]
    objects = [
        SmallObject(
            started_upload.key,
            body,
            intent.metadata(started_upload),
            foreign.expected(started_upload),
        )
        for (started_upload, body), is_sent in zip(uploads, sent, strict=True)
        if is_sent
    ]
    answers = iter(context.senders.send(objects) if objects else [])
    results: list[Result | None] = [next(answers) if is_sent else None for is_sent in sent]
    failure: StoreError | None = None
    for at, (started_upload, body) in enumerate(uploads):
        if sent[at] and not isinstance(results[at], Occupied):
            continue
        if failure is not None:
            # What was sent may be what is at its key (occupied.replace), so its intent stays.
            results[at] = failure if sent[at] else None
            continue
        store = foreign.replace if sent[at] else foreign.put
        try:
            results[at] = store(context, started_upload, body)
        except StoreError as exc:
            results[at] = exc
            if isinstance(exc, (StoreRefused, StoreUnavailable)):
                # A busy store took nothing up, which is not so of what was sent before.
                failure = StoreUnavailable(str(exc)) if isinstance(exc, StoreBusy) else exc
    return results


def _waiting(context: Context, files: Sequence[tuple[File, bytes | None]]) -> set[int]:
    """Return the files that must wait for others, by the bytes that are about to be sent: what a
    plan has judged may be old.

    Args:
        files: each with its bytes, if they are in memory.
    """
    if not files:
        return set()
    with context.reading() as view:
        view.paths.read_names(file.ino for file, _body in files)
        return {file.ino for file, body in files if view.precedence.wait_of(file, body)}


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        log.info("%s", line)


def _sent(context: Context, size: int, stored: VerifiedObject) -> Sent:
    parts = [stored.digests]
    sent_checksum = checksum.ChecksumForm(context.store.kind, None).of(parts)
    return Sent(
        stored.head.etag, sent_checksum, checksum.blocks_of(size, parts), stored.is_indeterminate
    )


def _is_as_sealed(
    context: Context, planned: File, key: str, expected: str | None, body: bytes
) -> bool:
    """Return whether the bytes are as they were sealed, or False if a client changed the file
    meanwhile.

    Raises DataFileError if no client changed it.
    """
    if expected is None:
        return True
    try:
        form = checksum.form_of(expected)._replace(part_bytes=None)
        checksum.require(expected, form.of([digest(body, {form.kind})]), key)
    except DataFileError:
        with context.reading() as view:
            if intent.current(view, planned, key) is None:
                return False
        raise
    return True
