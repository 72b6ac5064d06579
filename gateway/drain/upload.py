"""Uploads files: bytes, intent, object, publish. Safe to be killed at every step.

A version's number moves durably before its first byte is written, so when the number is still the
same after the last byte was read, no byte is of another version. That is checked, with everything
else that makes the file worth an object, before the object can become visible: for a file that is
read into memory in the transaction of its intent, for one sent in parts before the parts are made
an object. The rows are the business of gateway.drain.intent.

Small files go in batches: one transaction for their intents, one for their publishing.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Sequence
from enum import Enum
from typing import BinaryIO

from gateway.drain import intent
from gateway.drain import statements as own
from gateway.drain.context import Context
from gateway.drain.intent import Sent, Started
from gateway.drain.messages import Small
from gateway.drain.parts import send_parts
from gateway.drain.senders import send_here
from gateway.errors import DataFileError, GatewayError
from gateway.objectstore.objects import MIB, Stored

log = logging.getLogger("drain")

SMALL_BYTES = MIB
"""Files up to this size are sent in batches."""
BATCH_FILES = 64
BATCH_BYTES = 4 * MIB
WHOLE_BYTES = 16 * MIB
"""Files up to this size, or one part, are sent in one request, from memory."""


class Outcome(Enum):
    """How a job ended when nothing failed."""

    DONE = "done"
    """The bucket and the database agree on it."""
    OUTDATED = "outdated"
    """The namespace changed; the next pass decides anew."""


def upload(context: Context, planned: own.File, key: str) -> Outcome:
    """Bring one dirty file into the bucket.

    Parameters: planned, the file, and its key, as the plan saw them.
    Raises: DataFileError, BucketError; the intent stays, the next pass settles it.
    """
    context.on_progress(key, 0, planned.size)
    # Before the intent: a file whose bytes are lost must not change anything in the bucket.
    with _open_data(context, planned) as data:
        whole = planned.size <= min(WHOLE_BYTES, context.settings.drain.part_bytes)
        body = _read(data, planned.size) if whole else b""
        with context.writing() as view:
            started = intent.intend(view, planned, key)
        if started is None or context.stop.is_set():
            return Outcome.OUTDATED
        if whole:
            if started.resumed is not None:
                # Begun in parts, with another configuration.
                context.store.abort(key, started.resumed.upload_id or "")
            sent = _sent(context.store.put(key, body, intent.metadata(started)))
        elif (found := send_parts(context, started, data)) is None:
            return Outcome.OUTDATED
        else:
            sent = found
    with context.writing() as view:
        intent.publish(view, started, sent)
    return Outcome.DONE


def upload_many(
    context: Context, planned: Sequence[tuple[own.File, str]]
) -> list[Outcome | GatewayError]:
    """Bring small files into the bucket; returns what became of each, in order.

    Raises: BucketError, NamespaceError when that is the same for all; the intents stay.
    """
    results: list[Outcome | GatewayError] = [Outcome.OUTDATED] * len(planned)
    bodies: dict[int, bytes] = {}
    for index, (file, key) in enumerate(planned):
        context.on_progress(key, 0, file.size)
        try:
            with _open_data(context, file) as data:
                bodies[index] = _read(data, file.size)
        except DataFileError as exc:
            results[index] = exc
    started: dict[int, Started] = {}
    with context.writing() as view:
        for index in bodies:
            if (begun := intent.intend(view, *planned[index])) is not None:
                started[index] = begun
    if not started or context.stop.is_set():
        return results
    objects = [Small(one.key, bodies[at], intent.metadata(one)) for at, one in started.items()]
    if context.senders is None:
        answers = send_here(context.store, objects)
    else:
        answers = context.senders.send(objects)
    with context.writing() as view:
        for (index, one), answer in zip(started.items(), answers, strict=True):
            if isinstance(answer, Stored):
                intent.publish(view, one, _sent(answer))
                results[index] = Outcome.DONE
            elif answer is not None:
                results[index] = answer
    return results


def _sent(stored: Stored) -> Sent:
    return Sent(stored.head.etag, "md5:" + stored.md5.hex())


def _open_data(context: Context, file: own.File) -> BinaryIO:
    path = context.files.path(file.ino, file.epoch)
    try:
        data = path.open("rb", buffering=0)
    except FileNotFoundError:
        if file.size == 0:
            return io.BytesIO()
        raise DataFileError(f"data file {path} is missing, {file.size} bytes expected") from None
    found = os.fstat(data.fileno()).st_size
    if found != file.size:
        data.close()
        raise DataFileError(f"data file {path} has {found} bytes, {file.size} expected")
    return data


def _read(data: BinaryIO, size: int) -> bytes:
    body = data.read(size)
    if len(body) != size:
        raise DataFileError(f"data file ended {size - len(body)} bytes early")
    return body
