"""Rows of an upload: the intent before its first byte, object and block digests after its last.

1. The intent (an ``upload`` row) is durable before any byte is sent: a row always names what a
   crash leaves in the bucket.
2. One transaction publishes an object that the store confirmed. If the file lost its name
   meanwhile, the object is garbage and gets its ``tombstone``. If the file got another name, it
   gets a ``rekey``.

The caller holds the claims of the inode and of the key, so nothing else touches either meanwhile.
Block digests belong to the row of their object: replacing the object deletes the digests of the old
one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from sqlalchemy import insert, select

from gateway.common import clock
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, rows_of
from gateway.db.journal import STORED
from gateway.db.statements import block_digest
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.paths import file_of, object_at
from gateway.drain.rows import File, Intent, ObjectRow
from gateway.objectstore.checksums import BlockDigests
from gateway.objectstore.metadata import (
    CONTENT_VERSION,
    GENERATION,
    GID,
    INO,
    MODE,
    MTIME,
    SNAPSHOT,
    UID,
    VOLUME,
    origin_of,
    with_rest,
)
from gateway.objectstore.objects import PART_BYTES, BegunCopy, Head

BLOCKS = Statement(
    select(block_digest.c.block_bytes, block_digest.c.crcs).where(block_digest.c.ino == b("ino"))
)
BLOCKS_INSERT = Statement(insert(block_digest))


def insert_many(session: Session, found: Iterable[tuple[int, BlockDigests]]) -> None:
    """Record digests, each with the inode of an object that has none yet."""
    session.run_each(BLOCKS_INSERT, [{"ino": ino, **blocks._asdict()} for ino, blocks in found])


def of_object(session: Session, ino: int) -> BlockDigests | None:
    """Return the block digests of the object of an inode, or None."""
    row = session.one(BLOCKS, ino=ino)
    return None if row is None else BlockDigests(row[0], bytes(row[1]))


log = logging.getLogger("drain")


class Started(NamedTuple):
    """An upload whose intent is durable."""

    file: File
    """The file. For a snapshot it has the size and the mtime of the copy that is sent."""
    key: str
    prior: Intent | None
    """The intent of an earlier try with the same key, whose bytes may be at the key."""
    resumed: Intent | None
    """The interrupted multipart upload of the same version, which is resumed."""
    rest: str
    """The part of the path that the key does not contain."""
    volume: str
    """The id of the namespace, as in metadata."""
    snapshot_ns: int | None = None
    """The moment that a snapshot shows, or None for a complete version."""
    is_first: bool = False
    """Whether no object of the file is recorded at the key."""
    is_replacing: bool = False
    """Whether something of this namespace is known to be at the key nevertheless."""


class Sent(NamedTuple):
    """An object that the store confirmed and no row names yet."""

    etag: str
    checksum: str
    blocks: BlockDigests
    is_indeterminate: bool = False
    """Whether an earlier try of the request got no answer. The store may carry it out after
    others."""


class UploadRows(NamedTuple):
    """The rows about a file with a name, and about the key that it is to be sent to."""

    file: File
    is_damaged: bool
    intent: Intent | None
    """The intent of an earlier upload of the file that was not published."""
    stored: ObjectRow | None
    """The object of the file."""
    occupant: int | None
    """The inode whose object is at the key."""
    is_reserved: bool
    """Whether a multipart upload of another inode may still reach the key."""
    has_tombstone: bool
    """Whether a deletion of what was at the key is wanted. The upload replaces the deletion."""
    may_change: bool
    """Whether the copy of an object onto itself may still change what is at the key."""

    @property
    def is_whole(self) -> bool:
        """Whether the bytes of the file are on the local disk, and not known to be damaged."""
        return self.file.is_resident and not self.is_damaged


def standings(view: DrainView, wanted: Iterable[tuple[int, str]]) -> dict[int, UploadRows]:
    """Return the rows about files and their keys, by inode. A file without a name has no entry."""
    wanted = list(wanted)
    view.paths.read_names(ino for ino, _key in wanted)
    standing_by_ino = {}
    for row in view.session.all(own.BEFORE_UPLOAD, wanted=rows_of(wanted)):
        cells = iter(row)
        file = File(*islice(cells, len(File._fields)))
        is_damaged = next(cells) is not None
        begun = Intent(*islice(cells, len(Intent._fields)))
        stored = ObjectRow(*islice(cells, len(ObjectRow._fields)))
        occupant, is_reserved, has_tombstone, may_change = cells
        if file.nlink > 0:
            standing_by_ino[file.ino] = UploadRows(
                file,
                is_damaged,
                None if begun.ino is None else begun,
                None if stored.ino is None else stored,
                occupant,
                bool(is_reserved),
                bool(has_tombstone),
                bool(may_change),
            )
    return standing_by_ino


def current(view: DrainView, planned: File, key: str) -> File | None:
    """Return the file, if it is still of that version, whole, complete or open as planned, and has
    that key."""
    rows = standings(view, [(planned.ino, key)]).get(planned.ino)
    return rows.file if rows is not None and _is_current(view, rows, planned, key) else None


def _is_current(view: DrainView, rows: UploadRows, planned: File, key: str) -> bool:
    file = rows.file
    return (
        file.content_version == planned.content_version
        and file.write_open == planned.write_open
        and rows.is_whole
        and view.paths.key_of(file.ino) == key
    )


def is_current(context: Context, started: Started) -> bool:
    """Return whether the upload is still wanted."""
    with context.reading() as view:
        return current(view, started.file, started.key) is not None


def can_resume(view: DrainView, intent: Intent) -> bool:
    """Return whether an interrupted multipart upload is of the version that is wanted at its key.

    The upload of a snapshot has no part size: its metadata would be wrong for the bytes of the
    version.
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


def is_of_copy(standing: UploadRows) -> bool:
    """Return whether the intent of a file is that of a copy in parts, of the object that it has."""
    begun, stored, file = standing.intent, standing.stored, standing.file
    return (
        begun is not None
        and begun.upload_id is not None
        and begun.part_bytes is not None
        and stored is not None
        and not file.is_dirty
        and begun.key != stored.key
        and begun.content_version == stored.content_version
        and begun.generation in (0, file.generation)
    )


def can_resume_copy(view: DrainView, intent: Intent) -> bool:
    """Return whether an intent is that of a copy in parts whose object still has to move: the next
    move resumes it, or ends it."""
    rows = standings(view, [(intent.ino, intent.key)]).get(intent.ino)
    return (
        rows is not None
        and rows.intent == intent
        and is_of_copy(rows)
        and not rows.file.write_open
        and rows.stored is not None
        and view.paths.key_of(intent.ino) != rows.stored.key
    )


def intend(
    view: DrainView, wanted: Sequence[tuple[File, str]], snapshot_ns: int | None = None
) -> dict[int, Started]:
    """Record the intents of files, each to its key. Returns, by inode, the uploads that may begin.
    A file that changed or is blocked is left out."""
    standing_by_ino = standings(view, [(file.ino, key) for file, key in wanted])
    volume = view.volume
    started = {}
    for planned, key in wanted:
        standing = standing_by_ino.get(planned.ino)
        if standing is None or not _is_current(view, standing, planned, key):
            continue
        if snapshot_ns is not None:
            # The row of an open file has neither size nor mtime of the copy.
            file = standing.file._replace(size=planned.size, mtime_ns=planned.mtime_ns)
        else:
            file = standing.file
        if not file.is_dirty or file.size != planned.size:
            continue
        if standing.occupant not in (None, file.ino) or standing.is_reserved:
            # A late completion of that multipart upload could reach the key until the upload is
            # aborted.
            continue
        rest, prior = view.paths.rest_of(file.ino), standing.intent
        is_first = standing.stored is None or standing.stored.key != key
        is_replacing = standing.has_tombstone or prior is not None
        if standing.stored is not None and standing.stored.checksum is None:
            # Another program made the object, and may have replaced it since.
            is_first = is_replacing = True
        upload = Started(file, key, None, None, rest, volume, snapshot_ns, is_first, is_replacing)
        if prior is None:
            started[file.ino] = upload
        elif (again := _begin_again(view, upload, prior)) is not None:
            started[file.ino] = again
    begun = [
        started_upload for started_upload in started.values() if started_upload.resumed is None
    ]
    now_ns = clock.now_ns()
    rows = [
        (
            started_upload.file.ino,
            started_upload.file.content_version,
            started_upload.key,
            now_ns,
            started_upload.file.generation,
        )
        for started_upload in begun
    ]
    if rows:
        view.session.run(own.UPLOAD_DELETE, inos=rows_of([row[:1] for row in rows]))
        view.session.run(own.UPLOAD_INSERT, uploads=rows_of(rows))
    return started


def _begin_again(view: DrainView, started: Started, prior: Intent) -> Started | None:
    """Take over the upload of an earlier try. Returns None if that upload must be settled first."""
    file, key = started.file, started.key
    if prior.upload_id is not None and not can_resume(view, prior):
        return None
    if prior.upload_id is not None:
        # Once that upload is complete or aborted, none of its requests changes anything.
        return started._replace(prior=prior, resumed=prior)
    # It is not known how its request ended: it may reach the store after that of this try.
    view.mark_indeterminate(prior.key, prior.ino)
    occupant = object_at(view.session, prior.key)
    if prior.key != key and (occupant is None or occupant.ino == file.ino):
        # This also covers the file's own object, which may be of this version by now: the tombstone
        # waits until the file's object is elsewhere.
        view.add_tombstone(prior.key, prior.ino, prior.content_version, generation=prior.generation)
    return started._replace(prior=prior if prior.key == key else None)


def record_parts(view: DrainView, started: Started, upload_id: str, part_bytes: int) -> None:
    """Record the multipart upload of an intent."""
    ino = started.file.ino
    resumable = part_bytes if started.snapshot_ns is None else None
    view.session.run(own.UPLOAD_ID, the_ino=ino, new_id=upload_id, new_part_bytes=resumable)


def record_copy(view: DrainView, standing: UploadRows, key: str, begun: BegunCopy) -> None:
    """Record the multipart upload of a copy in parts, in place of any other intent of the file."""
    file, stored = standing.file, standing.stored
    assert stored is not None, "an object is copied"
    row = (file.ino, stored.content_version, key, clock.now_ns(), file.generation)
    forget_copies(view, [file.ino])
    view.session.run(own.UPLOAD_INSERT, uploads=rows_of([row]))
    view.session.run(
        own.UPLOAD_ID,
        the_ino=file.ino,
        new_id=begun.upload_id,
        new_part_bytes=begun.part_bytes,
    )


def forget_copies(view: DrainView, inos: Iterable[int]) -> None:
    """Delete the intents of copies in parts that have become objects, or were aborted."""
    view.session.run(own.UPLOAD_DELETE, inos=rows_of([(ino,) for ino in inos]))


def forget(view: DrainView, uploads: Iterable[Started]) -> None:
    """Delete the intents of uploads of which no request was sent or taken up. What an earlier try
    put at a key stays named by its row."""
    inos = rows_of([(upload.file.ino,) for upload in uploads if upload.prior is None])
    view.session.run(own.UPLOAD_DELETE, inos=inos)


def withdraw(view: DrainView, started: Started) -> None:
    """End an upload that put nothing at its key. What an earlier try put there stays named by its
    row."""
    ino = started.file.ino
    if started.prior is None:
        view.session.run(own.UPLOAD_DELETE, inos=rows_of([(ino,)]))
    else:
        view.session.run(own.UPLOAD_ID, the_ino=ino, new_id=None, new_part_bytes=None)
    log.info("withdrew the upload of %s: the file changed or is held", started.key)


def is_of(head: Head, started: Started) -> bool:
    """Return whether an object says that it is of the version, size and file of an upload."""
    file, origin = started.file, origin_of(head.metadata)
    return (
        head.size == file.size
        and (origin.volume, origin.ino) == (started.volume, file.ino)
        and (origin.generation, origin.content_version) == (file.generation, file.content_version)
        and head.metadata.get(SNAPSHOT) == metadata(started).get(SNAPSHOT)
    )


def publish(view: DrainView, uploads: Sequence[tuple[Started, Sent]]) -> list[str]:
    """Make the bucket's objects the objects of their files. Returns lines for the log: writing them
    is too slow for a transaction that the NFS server waits for."""
    session = view.session
    standing_by_ino = standings(
        view, [(started.file.ino, started.key) for started, _sent in uploads]
    )
    now_ns = clock.now_ns()
    objects: list[tuple[int, str, int, int, str, str, int]] = []
    blocks: list[tuple[int, BlockDigests]] = []
    drained: list[tuple[int, int]] = []
    garbage: list[sql.TombstoneRow] = []
    replaced: list[str] = []
    lines: list[str] = []
    for started, sent in uploads:
        file, key, standing = started.file, started.key, standing_by_ino.get(started.file.ino)
        if sent.is_indeterminate:
            view.mark_indeterminate(key, file.ino)
            lines.append(
                f"{key}: a request got no answer and was repeated: the file counts as durable when "
                f"the object was looked at again, in {view.late_ns // clock.NS} s"
            )
        if standing is None:
            version, generation = file.content_version, file.generation
            garbage.append(sql.TombstoneRow(key, file.ino, version, sent.etag, generation))
            lines.append(f"{key} was deleted while it was uploaded")
            continue
        old, version = standing.stored, file.content_version
        if old is not None and old.key != key:
            generation = file.generation
            garbage.append(
                sql.TombstoneRow(old.key, old.ino, old.content_version, old.etag, generation)
            )
        moment_ns = now_ns if started.snapshot_ns is None else started.snapshot_ns
        objects.append((file.ino, key, version, file.size, sent.etag, sent.checksum, moment_ns))
        blocks.append((file.ino, sent.blocks))
        if started.snapshot_ns is None:
            drained.append((file.ino, version))
        if standing.has_tombstone:
            # The upload replaced whatever was at the key, of any inode.
            replaced.append(key)
        if standing.may_change:
            # A drain that was killed may have asked for the copy.
            view.mark_indeterminate(key, file.ino)
        if view.paths.key_of(file.ino) != key:
            view.note_rekey(file.ino)
        lines.append(f"uploaded {key} ({file.size} bytes)")
    view.add_tombstones(garbage)
    inos = rows_of([(started.file.ino,) for started, _sent in uploads])
    session.run(own.UPLOAD_DELETE, inos=inos)
    session.run(own.OBJECTS_DELETE, inos=rows_of([row[:1] for row in objects]))
    session.run(own.OBJECT_INSERT, objects=rows_of(objects))
    insert_many(session, blocks)
    session.run(own.DRAINED, files=rows_of(drained))
    view.note((row[0] for row in objects), STORED)
    if replaced:
        view.drop_tombstones(replaced)
    return lines


def metadata(started: Started, part_bytes: int | None = None) -> dict[str, str]:
    """Return the metadata of an object.

    Args:
        part_bytes: part bytes of an object that is sent in parts.
    """
    file, snapshot_ns = started.file, started.snapshot_ns
    moment = {} if snapshot_ns is None else {SNAPSHOT: str(snapshot_ns)}
    parts = {} if part_bytes is None else {PART_BYTES: str(part_bytes)}
    return with_rest(
        started.rest,
        moment
        | parts
        | {
            MODE: f"{file.mode:04o}",
            UID: str(file.uid),
            GID: str(file.gid),
            MTIME: str(file.mtime_ns),
            CONTENT_VERSION: str(file.content_version),
            INO: str(file.ino),
            GENERATION: str(file.generation),
            VOLUME: started.volume,
        },
    )
