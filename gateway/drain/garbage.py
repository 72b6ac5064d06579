"""What must leave the bucket: deleted files' objects, and what interrupted uploads left.

A ``deletion`` row is the only licence to delete; no listing of the bucket ever leads to a delete.
So an empty or restored database deletes nothing. A multipart upload (never an object) is also
aborted when it was found by listing, but only at a key for which we recorded that we were at work.
"""

from __future__ import annotations

import logging
from datetime import datetime

from gateway.db import statements as sql
from gateway.drain import statements as own
from gateway.drain.context import Context, View
from gateway.drain.paths import file_of, intent_of, object_at
from gateway.drain.upload import Outcome

log = logging.getLogger("drain")


def is_pending(view: View, key: str) -> bool:
    """Whether a deletion must wait: a live file's object will replace what is there, atomically."""
    return object_at(view.session, key) is None and view.paths.owner(key) is not None


def delete(context: Context, key: str) -> Outcome:
    """Carry out one deletion, or drop it when an object row names the key again.

    The caller holds the claim of the key. Raises BucketError.
    """
    with context.reading() as view:
        licensed = view.session.one(sql.DELETION, key=key) is not None
        named = object_at(view.session, key) is not None
        if not licensed or is_pending(view, key):
            return Outcome.OUTDATED
    if not named:
        context.store.delete(key)
    with context.writing() as view:
        # The client may have deleted that file too meanwhile: then the licence is needed again.
        if named and object_at(view.session, key) is None:
            return Outcome.OUTDATED
        view.session.run(own.DELETION_DELETE, the_key=key)
    if not named:
        log.info("deleted %s", key)
    return Outcome.DONE


def is_settled(view: View, intent: own.Intent) -> bool:
    """Whether an interrupted upload only waits for the next try, whose intent replaces this."""
    file = file_of(view.session, intent.ino)
    return intent.upload_id is None and file is not None and file.is_dirty


def settle(context: Context, intent: own.Intent) -> Outcome:
    """Clean up after an upload that was interrupted.

    While its file is there and dirty, the row stays and keeps naming what may be at the key: the
    next try takes it over. Deleting at once could take the last copy of a file whose local bytes
    are lost. The caller holds the claims of the inode and of the key. Raises BucketError.
    """
    if intent.upload_id is not None:
        context.store.abort(intent.key, intent.upload_id)
    with context.writing() as view:
        if intent_of(view.session, intent.ino) != intent:
            return Outcome.OUTDATED
        if is_settled(view, intent._replace(upload_id=None)):
            view.session.run(own.UPLOAD_ID, the_ino=intent.ino, new_id=None)
            return Outcome.DONE
        if object_at(view.session, intent.key) is None:
            view.license_deletion(intent.key)
        view.session.run(own.UPLOAD_DELETE, the_ino=intent.ino)
    return Outcome.DONE


def abort_unrecorded(context: Context, started: datetime) -> None:
    """Abort multipart uploads whose id was never recorded (killed between request and row).

    Parameters: started, when this drain did; call this before its first upload. Raises BucketError.
    """
    prefix = f"{context.prefix}/" if context.prefix else ""
    found = [upload for upload in context.store.uploads(prefix) if upload.initiated < started]
    with context.reading() as view:
        intents = [own.Intent(*row) for row in view.session.all(own.UPLOADS)]
        recorded = {intent.upload_id for intent in intents}
        at_work = {intent.key for intent in intents}
        ours = [
            upload
            for upload in found
            if upload.upload_id not in recorded
            # The intent of an upload, or of a copy in parts.
            and (upload.key in at_work or view.session.one(sql.DELETION, key=upload.key))
        ]
    for upload in ours:
        context.store.abort(upload.key, upload.upload_id)
        log.info("aborted an unfinished upload of %s", upload.key)
