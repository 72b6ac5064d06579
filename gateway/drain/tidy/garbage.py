"""Deletions from the bucket: objects of deleted files, and what interrupted uploads left.

A ``tombstone`` row is the only permission to delete: no listing of the bucket leads to a delete. So
an empty or restored database deletes nothing. A multipart upload (never an object) is also aborted
when it was found by listing, but only at a key for which a row says that this gateway worked there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from gateway.common.errors import Deferred, ObjectRefused, StoreBusy, StoreError, StoreUnavailable
from gateway.db.compiled import rows_of
from gateway.db.statements import TombstoneRow
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import JobOutcome
from gateway.drain.paths import file_of, intent_of, object_at, object_of, objects_at
from gateway.drain.rows import File, Intent, ObjectRow
from gateway.drain.send.intent import can_resume, can_resume_copy
from gateway.objectstore.metadata import origin_of
from gateway.objectstore.objects import Head, PendingUpload

log = logging.getLogger("drain")

HEADS = 8
"""The number of objects whose metadata is read at a time, before they are deleted."""


def due(
    view: DrainView, keys: Sequence[str], occupants: Mapping[str, ObjectRow]
) -> dict[str, set[TombstoneRow]]:
    """Return the tombstones that may be used now, by key.

    Args:
        occupants: the objects that are recorded at the keys.
    """
    return {
        key: tombstones
        for key, tombstones in _tombstones(view, keys).items()
        if tombstones and not _is_pending(view, key, tombstones, occupants.get(key))
    }


def _is_pending(
    view: DrainView, key: str, tombstones: Collection[TombstoneRow], occupant: ObjectRow | None
) -> bool:
    """Return whether a deletion must wait, for one of four reasons.

    A live file's object will replace what is there, atomically. Or an upload newer than the
    object's row was begun, and its file goes to another key now. Or no object is recorded for a
    file that is absent or still to be sent, so what is there may be all that the bucket has of it.
    Or it was copied for an absent file, and a request that was given up may still delete the copy.
    """
    if occupant is None:
        return view.paths.owner(key) is not None or any(
            _is_needed(view, tombstone) for tombstone in tombstones
        )
    return any(
        tombstone.ino == occupant.ino and tombstone.content_version > occupant.content_version
        for tombstone in tombstones
    )


def _is_needed(view: DrainView, tombstone: TombstoneRow) -> bool:
    """Return whether what is at the key is the only copy of a file, or may be soon."""
    living_file = _living(view, tombstone.ino, tombstone.generation)
    if living_file is None:
        return False
    file, stored = living_file
    if stored is None:
        return True
    return (
        not file.is_resident
        and view.session.one(own.INDETERMINATE_WRITE, key=stored.key) is not None
    )


def _living(view: DrainView, ino: int, generation: int) -> tuple[File, ObjectRow | None] | None:
    """Return the file that an inode is now, and its recorded object. None: it is gone, or of
    another generation, or it has nothing that the bucket must keep.

    Args:
        generation: 0 if it is not known.
    """
    file = file_of(view.session, ino)
    if file is None or generation not in (0, file.generation):
        return None
    stored = object_of(view.session, ino)
    if stored is None and file.is_resident and not file.is_dirty:
        return None
    return file, stored


def delete_many(context: Context, keys: Sequence[str]) -> list[JobOutcome | Exception]:
    """Carry out deletions, or drop those that an object row or the object itself contradicts.

    The metadata of the object says whose it is: rows of an older database, restored, must not
    delete what was written since. If its file is there, the bucket must have the object that is
    recorded for that file, or nothing is deleted. The caller holds the claims of the keys. Returns
    the result of each, in order. Raises StoreError when the failure is the same for all.
    """
    with context.reading() as view:
        volume = view.volume
        occupants = objects_at(view.session, keys)
        tombstones = due(view, keys, occupants)
        dropped = tombstones.keys() & occupants.keys()
    heads = _heads(context, [key for key in tombstones if key not in dropped])
    covered = {
        key: inodes
        for key, head in heads.items()
        if head and (inodes := covered_inodes(head, tombstones[key], volume))
    }
    results: dict[str, StoreError | None] = {**_last_copies(context, covered)}
    if doomed := [key for key in covered if key not in results]:
        results |= _delete(context, doomed, tombstones)
    outcomes: dict[str, JobOutcome | Exception] = dict.fromkeys(keys, JobOutcome.OUTDATED)
    done: list[str] = []
    with context.writing() as view:
        now = _tombstones(view, list(tombstones))
        for key, tombstone in tombstones.items():
            if (error := results.get(key)) is not None:
                outcomes[key] = error
                if isinstance(error, StoreUnavailable):
                    _mark_indeterminate(view, key, tombstone)
            elif now[key] != tombstone:
                continue  # What got a tombstone meanwhile was not looked at.
            elif key not in dropped or object_at(view.session, key) is not None:
                # Otherwise a client deleted that file too meanwhile, and the tombstone is needed
                # again.
                done.append(key)
                outcomes[key] = JobOutcome.DONE
        view.drop_tombstones(done)
    for key, head in heads.items():
        if key in results and results[key] is None:
            log.info("deleted %s", key)
        elif head is not None and key not in results:
            log.warning("kept %s: the object there is not the one that was to be deleted", key)
    return [outcomes[key] for key in keys]


def _last_copies(
    context: Context, covered: Mapping[str, Collection[tuple[int, int]]]
) -> dict[str, StoreError]:
    """Return, by key, why objects stay that may be the last copies of files.

    The database may be older than the bucket: since its backup, an object may have moved from the
    key where it is recorded to the one that is to be emptied. Local bytes do not count. They may be
    lost with the disk, and the file may be promised to be in the bucket.

    Args:
        covered: by key, the inodes whose object may be there, each with its generation.
    """
    with context.reading() as view:
        living = [
            (key, *living_file)
            for key, inodes in covered.items()
            for ino, generation in inodes
            if (living_file := _living(view, ino, generation)) is not None
        ]
    heads = _heads(context, list({stored.key for *_, stored in living if stored is not None}))
    store_errors: dict[str, StoreError] = {}
    for key, file, stored in living:
        head = None if stored is None else heads[stored.key]
        if stored is None:
            lacking = "no object is recorded for it"
        elif head is None or (head.size, head.etag) != (stored.size, stored.etag):
            lacking = f"the bucket does not have the object that is recorded at {stored.key}"
        else:
            continue
        kind = Deferred if file.is_dirty else ObjectRefused
        store_errors[key] = kind(f"{key} stays: it may be the last copy of its file: {lacking}")
    return store_errors


def _delete(
    context: Context, keys: Sequence[str], tombstones: Mapping[str, set[TombstoneRow]]
) -> dict[str, StoreError | None]:
    try:
        return context.store.delete_many(keys)
    except StoreBusy:
        raise
    except StoreUnavailable:
        with context.writing() as view:
            for key in keys:
                _mark_indeterminate(view, key, tombstones[key])
        raise


def _mark_indeterminate(view: DrainView, key: str, tombstones: Collection[TombstoneRow]) -> None:
    """Record that a deletion was given up: the store may still delete what is put at the key from
    now on."""
    view.mark_indeterminate(key, max(tombstone.ino for tombstone in tombstones))


def _tombstones(view: DrainView, keys: Sequence[str]) -> dict[str, set[TombstoneRow]]:
    tombstones: dict[str, set[TombstoneRow]] = {key: set() for key in keys}
    for row in view.session.all(own.TOMBSTONES_AT, keys=rows_of([(key,) for key in keys])):
        tombstone = TombstoneRow(*row)
        tombstones[tombstone.key].add(tombstone)
    return tombstones


def _heads(context: Context, keys: Sequence[str]) -> dict[str, Head | None]:
    if not keys:
        return {}
    with ThreadPoolExecutor(min(len(keys), HEADS), thread_name_prefix="drain-head") as pool:
        return dict(zip(keys, pool.map(context.store.head, keys), strict=True))


def covered_inodes(
    head: Head, tombstones: Collection[TombstoneRow], volume: str
) -> set[tuple[int, int]]:
    """Return the inodes whose object may be deleted, each with its generation. Empty: the object is
    of none of them. Some servers do not keep metadata; then the recorded ETag decides.

    Args:
        volume: the id of this namespace.
    """
    origin = origin_of(head.metadata)
    if origin.volume not in (None, volume):
        # Two namespaces have one prefix, and their numbers of inodes are the same.
        return set()

    def is_covered(tombstone: TombstoneRow) -> bool:
        if tombstone.generation and origin.generation not in (0, tombstone.generation):
            return False
        if tombstone.ino == 0:
            return True
        if origin.ino is None or origin.content_version is None:
            return tombstone.etag is not None and tombstone.etag == head.etag
        return origin.ino == tombstone.ino and origin.content_version <= tombstone.content_version

    return {
        (origin.ino or tombstone.ino, origin.generation or tombstone.generation)
        for tombstone in tombstones
        if is_covered(tombstone)
    }


def is_settled(view: DrainView, intent: Intent) -> bool:
    """Return whether an interrupted upload only waits for the next try, which resumes it or
    replaces its intent."""
    if can_resume(view, intent):
        return True
    if intent.upload_id is not None:
        return can_resume_copy(view, intent)
    file = file_of(view.session, intent.ino)
    return file is not None and file.is_dirty


def settle(context: Context, intent: Intent) -> JobOutcome:
    """Clean up after an upload, or a copy in parts, that was interrupted.

    While its file exists and is dirty, the row stays and keeps naming what may be at the key. The
    next try takes the row over. Deleting at once could delete the last copy of a file whose local
    bytes are lost. The caller holds the claims of the inode and of the key. Raises StoreError.
    """
    with context.reading() as view:
        if is_settled(view, intent):
            return JobOutcome.OUTDATED
    if intent.upload_id is not None:
        context.store.abort(intent.key, intent.upload_id)
    with context.writing() as view:
        if intent_of(view.session, intent.ino) != intent:
            return JobOutcome.OUTDATED
        if is_settled(view, intent._replace(upload_id=None)):
            view.session.run(own.UPLOAD_ID, the_ino=intent.ino, new_id=None, new_part_bytes=None)
            return JobOutcome.DONE
        view.mark_indeterminate(intent.key, intent.ino)
        if object_at(view.session, intent.key) is None:
            view.add_tombstone(
                intent.key, intent.ino, intent.content_version, generation=intent.generation
            )
        view.session.run(own.UPLOAD_DELETE, inos=rows_of([(intent.ino,)]))
    return JobOutcome.DONE


def abort_unrecorded(context: Context, started: datetime, aged: datetime) -> None:
    """Abort multipart uploads whose id was never recorded, only at keys that rows name.

    The id is lost if the drain was killed between request and row, or the answer was lost.

    Raises StoreError.

    Args:
        started: the start of this drain: older uploads are aborted at keys where work was
            interrupted.
        aged: a day ago: older uploads are aborted at the keys of recorded objects (never those of a
            copy that still runs: no object is at its key).
    """
    prefix = f"{context.prefix}/" if context.prefix else ""
    before = max(started, aged)
    uploads = [upload for upload in context.store.uploads(prefix) if upload.initiated < before]
    with context.reading() as view:

        def is_ours(upload: PendingUpload) -> bool:
            at_key = {
                upload_id for _ino, upload_id in view.session.all(own.UPLOADS_AT, key=upload.key)
            }
            if upload.upload_id in at_key:
                return False
            if view.session.one(own.CLAIM, key=own.claim_name(upload.key)) is not None:
                # Another drain works on it, perhaps between its request and its row.
                return False
            if upload.initiated < started and (
                # A row is there: the intent of an upload or of a copy in parts, or what settling it
                # left.
                at_key
                or any(_tombstones(view, [upload.key]).values())
                or view.session.one(own.INDETERMINATE_WRITE, key=upload.key) is not None
            ):
                return True
            return upload.initiated < aged and object_at(view.session, upload.key) is not None

        ours = [pending_upload for pending_upload in uploads if is_ours(pending_upload)]
    for upload in ours:
        context.store.abort(upload.key, upload.upload_id)
        log.info("aborted an unfinished upload of %s", upload.key)
