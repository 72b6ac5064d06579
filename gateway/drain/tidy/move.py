"""Moves of objects inside the bucket after renames: copy, make sure, record, then delete.

A move is either to the key that the file has now, or out of the way. An object goes out of the way
when another file must have the old key first (two names that were swapped, or a file in the trash),
or a key that the old one goes through, or that goes through the old one: there is no "m" beside
"m/w" in a store that keeps objects as files. It then goes to a staging key, or to the key of the
path in the trash.

The last copy is never lost:

1. A ``tombstone`` of the target is durable before anything is copied. If the drain is killed in the
   middle, half a move leaves garbage with a tombstone, not an object without a row.
2. The source must be what its ``object`` row says, or nothing is copied.
3. A large object is copied in parts. Its intent names the upload of the copy, so that the next try,
   also after a kill, copies only the parts that are missing. If the file need not move any more,
   the upload is aborted (``garbage.settle``).
4. One transaction makes the ``object`` row name the copy, takes the target's ``tombstone`` back and
   adds one for the source. Until then the source is the object.

An object may be impossible to move (it vanished, a person replaced it, the store does not return
it). The local bytes then replace it: its file is dirty again and is uploaded under its new key. If
another file has the old key by now, the object row gives up the key, so that file does not wait.
Before that, the local bytes are read and compared with the recorded checksum. If they are missing
or differ, the object keeps its key and the job fails with both reasons. An archived object of an
absent file keeps its key until the hydrator, which asks it back, has brought its bytes.

The caller holds the claims of the inode and of both keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from gateway.cache.warming import REQUEST_WHOLE, left
from gateway.common import clock
from gateway.common.errors import (
    DataFileError,
    Deferred,
    ForeignObject,
    LeaseLost,
    ObjectRefused,
    StoreError,
    StoreUnavailable,
)
from gateway.db import statements as sql
from gateway.db.compiled import numbers_of, rows_of
from gateway.db.journal import CHANGED, STORED
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import JobOutcome
from gateway.drain.paths import file_of, intent_of, object_at, objects_above
from gateway.drain.rows import File, ObjectRow
from gateway.drain.send import checksum, intent
from gateway.drain.send.foreign import require_ours
from gateway.objectstore import key_mapper
from gateway.objectstore.metadata import with_rest
from gateway.objectstore.objects import MIB, BegunCopy, Head
from gateway.objectstore.ranges import is_archived
from gateway.objectstore.request import ABSENT

log = logging.getLogger("drain")

T = TypeVar("T")

MOVES_AT_ONCE = 8
"""The small objects that are moved together: one transaction begins so many moves, one ends
them."""
SMALL_BYTES = 16 * MIB
"""Larger objects are moved one by one, because small ones would wait for them."""
BATCH_BYTES = MOVES_AT_ONCE * SMALL_BYTES


class Move(NamedTuple):
    """The plan to bring the object of an inode to another key."""

    ino: int
    source: str
    target: str
    size: int

    @property
    def claims(self) -> frozenset[int | str]:
        """The inode and the keys that nothing else may touch during the move."""
        return frozenset((self.ino, self.source, self.target))


class _Begun(NamedTuple):
    """A move whose copy, if there is one, has a tombstone."""

    move: Move
    standing: intent.UploadRows
    rest: str
    """The part of the path that the target does not contain."""

    @property
    def stored(self) -> ObjectRow:
        """The object that moves."""
        assert self.standing.stored is not None
        return self.standing.stored

    @property
    def is_in_parts(self) -> bool:
        """Whether an earlier try has begun to copy the object in parts, to this key or another."""
        return intent.is_of_copy(self.standing)

    def tombstone(self, key: str, etag: str | None = None) -> sql.TombstoneRow:
        """Return the permission to delete what the inode has at a key."""
        version, generation = self.stored.content_version, self.standing.file.generation
        return sql.TombstoneRow(key, self.move.ino, version, etag, generation)


def move_many(context: Context, planned: Sequence[Move]) -> list[JobOutcome | Exception]:
    """Carry out moves that are still right, each of another inode. Returns the result of each, in
    order."""
    with context.writing() as view:
        begun = _begin(context, view, planned)
    results: dict[int, JobOutcome | Exception] = {}
    copied: dict[int, Head] = {}

    def copy(move: _Begun) -> Head | Exception | None:
        return None if context.stop.is_set() else _result(partial(_copy, context, move))

    for ino, head in zip(begun, context.copiers.map(copy, begun.values()), strict=True):
        if isinstance(head, Head):
            copied[ino] = head
        elif head is not None:
            results[ino] = head
    if copied:
        with context.writing() as view:
            moved = _end(view, [(begun[ino], head) for ino, head in copied.items()])
        results.update(dict.fromkeys(moved, JobOutcome.DONE))
    for ino, move in begun.items():
        result = results.get(ino)
        if result == JobOutcome.DONE:
            log.info("moved %s to %s", move.move.source, move.move.target)
        elif isinstance(result, ObjectRefused) and not isinstance(result, ForeignObject):
            again = partial(_send_again, context, move.move, move.stored, result)
            results[ino] = _result(again)
    return [results.get(move.ino, JobOutcome.OUTDATED) for move in planned]


def _begin(context: Context, view: DrainView, planned: Sequence[Move]) -> dict[int, _Begun]:
    """Add tombstones for the copies to come. Returns the moves that are still right, by
    inode."""
    standings = intent.standings(view, [(move.ino, move.target) for move in planned])
    begun: dict[int, _Begun] = {}
    for move in planned:
        standing = standings.get(move.ino)
        if standing is None or not _is_right(context, view, standing, move):
            continue
        is_other = standing.intent is not None and not intent.is_of_copy(standing)
        if is_other and move.size > context.store.copy_max_bytes:
            # The intent of the copy would take the place of an upload's, which is settled first.
            continue
        if standing.may_change:
            # What was requested may reach the store after the copy.
            view.mark_indeterminate(move.target, move.ino)
        begun[move.ino] = _Begun(move, standing, view.paths.rest_of(move.ino))
    view.add_tombstones([move.tombstone(move.move.target) for move in begun.values()])
    return begun


def _end(view: DrainView, copies: Sequence[tuple[_Begun, Head]]) -> set[int]:
    """Make the copies the objects of their inodes. Returns the inodes that have them now. If a file
    was deleted meanwhile, its copy is garbage, and has its tombstone already."""
    moves = [
        (move.move.ino, move.move.source, move.move.target, head.etag) for move, head in copies
    ]
    moved = {ino for (ino,) in view.session.all(own.OBJECT_MOVE, moves=rows_of(moves))}
    ended = [move for move, _head in copies if move.move.ino in moved]
    view.drop_tombstones(move.move.target for move in ended)
    intent.forget_copies(view, [move.move.ino for move in ended if move.is_in_parts])
    view.note(moved, STORED)
    view.add_tombstones([move.tombstone(move.move.source, move.stored.etag) for move in ended])
    view.paths.read_names(moved)
    for move in ended:
        if view.paths.key_of(move.move.ino) != move.move.target:
            view.note_rekey(move.move.ino)
    return moved


def _result(run: Callable[[], T]) -> T | Exception:
    """Return what a part of a move returned or raised: the failure of one move must not fail the
    others.

    Raises LeaseLost, which ends all of them.
    """
    try:
        return run()
    except LeaseLost:
        raise
    except Exception as exc:
        return exc


class _PartCopy:
    """The copy in parts of a move. The intent of the file remembers it."""

    def __init__(self, context: Context, of: _Begun) -> None:
        self._context, self._of = context, of

    def begun(self) -> BegunCopy | None:
        prior = self._of.standing.intent
        if not self._of.is_in_parts or prior is None or prior.key != self._of.move.target:
            return None
        assert prior.upload_id is not None and prior.part_bytes is not None
        return BegunCopy(prior.upload_id, prior.part_bytes)

    def record(self, begun: BegunCopy) -> None:
        prior = self._of.standing.intent
        if self._of.is_in_parts and prior is not None and prior.upload_id is not None:
            # It goes to a key that the object need not have any more.
            self._context.store.abort(prior.key, prior.upload_id)
        with self._context.writing() as view:
            intent.record_copy(view, self._of.standing, self._of.move.target, begun)

    def ended(self) -> None:
        with self._context.writing() as view:
            intent.forget_copies(view, [self._of.move.ino])

    def is_wanted(self) -> bool:
        if self._context.stop.is_set():
            return False
        with self._context.reading() as view:
            now = _standing(view, self._of.move)
            return now is not None and _is_right(self._context, view, now, self._of.move)


def _copy(context: Context, begun: _Begun) -> Head | None:
    """Return the copy, or None if it is not wanted any more, or is resumed by the next drain.
    Raises StoreError."""
    ino, old_key, target, _size = begun.move
    stored = begun.stored
    head = context.store.head(old_key, with_sum=True)
    if head is None or (head.size, head.etag) != (stored.size, stored.etag):
        raise ObjectRefused(f"{old_key}: the bucket does not have the object that was recorded")
    metadata = with_rest(begun.rest, head.metadata)
    if begun.standing.has_tombstone and (
        copied_head := context.store.copied(target, head, metadata)
    ):
        # An earlier try got no answer.
        context.awaited.ended(target)
        return copied_head
    there = context.store.head(target)
    if there is not None and (there.size, there.etag) != (head.size, head.etag):
        require_ours(context, target, there)
    expected, kept_as = ABSENT if there is None else None, stored.storage_class
    try:
        with context.lasting(target), context.oversize.sending((old_key, target), head.size):
            in_parts = _PartCopy(context, begun)
            return context.store.copy(old_key, target, head, metadata, kept_as, expected, in_parts)
    except Deferred:
        return None
    except StoreUnavailable:
        # The upload of a copy in parts may have begun, and no row has its id.
        context.mark_all_indeterminate((ino, target))
        raise


def _send_again(
    context: Context, planned: Move, stored: ObjectRow, why: ObjectRefused
) -> JobOutcome:
    """Make the file of an object that cannot be moved dirty again.

    Raises ObjectRefused when its local bytes cannot take the object's place; Deferred when they can
    as soon as the object is back from its archive.
    """
    with context.reading() as view:
        before = _standing(view, planned)
        row = view.session.one(own.OBJECT_CHECKSUM, ino=stored.ino)
    if before is None or row is None:
        return JobOutcome.OUTDATED
    file = before.file
    if is_archived(why) and not file.is_resident:
        raise _until_back(context, file.ino, why)
    try:
        if not before.is_whole:
            raise DataFileError(_reason_not_whole(file))
        is_read = _require_local(context, file, stored, row[0])
    except DataFileError as exc:
        raise ObjectRefused(f"{why}; it is not sent again instead: {exc}") from exc
    if not is_read:
        return JobOutcome.OUTDATED
    with context.writing() as view:
        now = _standing(view, planned)
        if now is None or now.stored != stored or not _is_right(context, view, now, planned):
            return JobOutcome.OUTDATED
        if (now.file.content_version, now.file.epoch) != (file.content_version, file.epoch):
            return JobOutcome.OUTDATED
        if not now.is_whole:
            return JobOutcome.OUTDATED
        view.session.run(own.NOT_DRAINED, the_ino=stored.ino)
        view.note((stored.ino,), CHANGED | STORED)
        if view.paths.owner(stored.key) is not None:
            _release(view, stored)
    log.warning("%s: the file is sent again from its local bytes", why)
    return JobOutcome.DONE


def _until_back(context: Context, ino: int, why: ObjectRefused) -> StoreError:
    """Have the hydrator ask the archived object of an absent file back. Returns why it does not
    move now."""
    with context.writing() as view:
        view.session.run(REQUEST_WHOLE, inos=numbers_of((ino,)), now_ns=clock.now_ns())
        errors = [
            absent_file.error
            for absent_file in left(view.session, (ino,))
            if absent_file.error is not None
        ]
    if errors:
        return ObjectRefused(f"{why}; it is not sent again instead: {errors[0]}")
    return Deferred(
        "the move is deferred until its object is back from the archive: it is asked back, and "
        "spillway status shows until when"
    )


def _reason_not_whole(file: File) -> str:
    if file.is_resident:
        return "its bytes on the local disk are damaged"
    return "its bytes are only in the bucket: bring them to the disk: spillway warm"


def _require_local(context: Context, file: File, stored: ObjectRow, recorded: str | None) -> bool:
    """Read the local bytes that will take an object's place. Returns False if told to stop.

    A file with another version than the object's is not read. Raises DataFileError.
    """
    path = context.files.path(file.ino, file.epoch)
    if file.write_open:
        if not path.exists():
            raise DataFileError(f"data file {path} is missing")
        return True
    with checksum.open_data(context.files, file) as data:
        if recorded is None or file.content_version != stored.content_version:
            return True
        form = checksum.form_of(recorded)
        checksums = checksum.of_file(data, file.size, form, context.stop.is_set)
    if checksums is not None:
        checksum.require(recorded, checksums.checksum, str(path))
    return checksums is not None


def _release(view: DrainView, stored: ObjectRow) -> None:
    """Take an object row off its key. The intent of the file names the key from now on, so the
    old object gets its tombstone only when the file is sent again or deleted."""
    begun = intent_of(view.session, stored.ino)
    if begun is None:
        row = (stored.ino, stored.content_version, stored.key, clock.now_ns(), 0)
        view.session.run(own.UPLOAD_INSERT, uploads=rows_of([row]))
    elif begun.key != stored.key:
        # The object is of an older version than the one whose upload was begun elsewhere.
        view.add_tombstone(stored.key, stored.ino, stored.content_version, stored.etag)
    view.session.run(own.OBJECTS_DELETE, inos=rows_of([(stored.ino,)]))


def next_moves(context: Context, view: DrainView, objects: Sequence[ObjectRow]) -> list[Move]:
    """Return the moves that bring objects nearer to their keys, each of another inode.

    An object gets no move if it is there already, or if the name of its file is held, or if its
    file waits for others, or if its file is dirty: the coming upload moves it. Of two files that
    swapped names only one has to make way.
    """
    targets = {
        stored.ino: key
        for stored in objects
        if (key := view.paths.key_of(stored.ino)) not in (None, stored.key)
    }
    standings, session = intent.standings(view, targets.items()), view.session
    above = objects_above(session, context.prefix, targets.values())
    planned: dict[int, Move] = {}
    for stored in objects:
        standing = standings.get(stored.ino)
        if standing is None or stored.ino in planned or not _may_move(view, standing.file):
            continue
        target = targets[stored.ino]
        if _is_before_a_deletion(context, view, stored, target):
            continue
        occupant = above.get(target) if standing.occupant is None else object_at(session, target)
        if occupant is None and key_mapper.cross(stored.key, target):
            occupant = stored
        if occupant is None:
            move = Move(stored.ino, stored.key, target, stored.size)
        else:
            move = make_way(context, view, occupant)
        planned.setdefault(move.ino, move)
    return list(planned.values())


def make_way(context: Context, view: DrainView, occupant: ObjectRow) -> Move:
    """Return the move of an object off a key that now belongs to another file, or that the key of
    another file goes through."""
    target = _destination(view, occupant, file_of(view.session, occupant.ino))
    if target is None or not _is_free(context, view, occupant, target):
        target = _waiting_key(context, view, occupant.ino)
    return Move(occupant.ino, occupant.key, target, occupant.size)


def _is_free(context: Context, view: DrainView, stored: ObjectRow, target: str) -> bool:
    """Return whether an object can be copied to a key at once, also on a store that keeps objects
    as files: nothing is there, nor at a key that it goes through."""
    return (
        object_at(view.session, target) is None
        and not key_mapper.cross(stored.key, target)
        and not objects_above(view.session, context.prefix, [target])
    )


def _is_before_a_deletion(
    context: Context, view: DrainView, stored: ObjectRow, target: str
) -> bool:
    """Return whether an object that has made way for its own key waits until it is deleted where
    it was."""
    if stored.key != key_mapper.staging_key(context.prefix, stored.ino):
        return False
    through = rows_of([(key,) for key in key_mapper.above(context.prefix, target)])
    above = view.session.all(own.TOMBSTONES_AT, keys=through)
    if any(sql.TombstoneRow(*row).ino == stored.ino for row in above):
        return True
    below = {"first_key": f"{target}/", "end_key": f"{target}0"}
    return view.session.one(own.TOMBSTONE_BELOW, ino=stored.ino, **below) is not None


def _waiting_key(context: Context, view: DrainView, ino: int) -> str:
    """Return the key at which an object waits that has made way: until its file has a key again, or
    is removed from the trash."""
    return view.paths.key_in_trash(ino) or key_mapper.staging_key(context.prefix, ino)


def _destination(view: DrainView, stored: ObjectRow, file: File | None) -> str | None:
    key = view.paths.key_of(stored.ino)
    if key in (None, stored.key) or file is None or not _may_move(view, file):
        return None
    return key


def _may_move(view: DrainView, file: File) -> bool:
    """Return whether the object of a file moves: a new version that is to be sent replaces it
    instead, and what names others moves after them."""
    return not file.is_dirty and not file.write_open and view.precedence.wait_of(file) is None


def _standing(view: DrainView, planned: Move) -> intent.UploadRows | None:
    return intent.standings(view, [(planned.ino, planned.target)]).get(planned.ino)


def _is_right(
    context: Context, view: DrainView, standing: intent.UploadRows, planned: Move
) -> bool:
    """Return whether a move is still right."""
    stored = standing.stored
    if stored is None or stored.key != planned.source or standing.occupant is not None:
        return False
    if standing.is_reserved:
        # A late completion of that multipart upload could reach the key until the upload is
        # aborted.
        return False
    if planned.target == _waiting_key(context, view, planned.ino):
        return view.paths.key_of(planned.ino) != planned.source
    return _destination(view, stored, standing.file) == planned.target
