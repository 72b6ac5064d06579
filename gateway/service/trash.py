"""Service for the trash: what was deleted, until when it can be taken back, and why it stays.

People take checkpoints back, release held ones, and remove them for good.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from gateway.catalogue.display_state import EXPIRED
from gateway.common import clock
from gateway.common.errors import (
    ControlSocketClosed,
    NotPossible,
    NotThere,
    TrashRefused,
    UserError,
)
from gateway.common.models import Model, Nanoseconds, values_of
from gateway.common.text import bytes_of, printable, shown, text_of
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.lifecycle.trash import rows
from gateway.lifecycle.trash.expiry import TOO_LARGE, surplus
from gateway.lifecycle.trash.rows import Totals, TrashRow, TrashState
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import identity
from gateway.service.jobs import Progress, Tell
from gateway.service.paths import is_below, names_of, shown_path

NOT_KNOWN = "(its path is not known)"
BY_HAND = "a person emptied the trash"
"""The reason of such a removal."""


@dataclass(frozen=True, slots=True)
class Expired(Model):
    """What the row of a checkpoint in the trash says."""

    id: str = field(metadata={"examples": ["t1234"]})
    path: str
    """The path that it had."""
    run: str
    step: int | None
    state: Literal["expired"]
    """That of all checkpoints in the trash."""
    files: int
    size_bytes: int
    held: bool
    """Whether clients removed it, and it waits for a newer one in the bucket."""
    version: str = field(metadata={"examples": ["93784000000000"]})
    """Which deletion it is, because what was taken back may come again under its id. It is the
    ETag."""


@dataclass(frozen=True, slots=True)
class Trashed(Expired):
    """A checkpoint in the trash."""

    local_bytes: int
    """On the local disk."""
    bucket_bytes: int
    dirty_files: int
    """Files that the bucket does not have."""
    dirty_bytes: int
    deleted_ns: Nanoseconds
    left_seconds: float
    """Time until it is removed for good."""
    by: str = field(metadata={"examples": ["newest-three v2"]})
    """The policy or person."""
    reason: str
    is_expiring: bool
    """Whether it is being removed: then it is too late."""
    early: str | None
    """Why it goes before its time is over."""
    stays: str | None
    """Why it stays although it was to be removed."""


@dataclass(frozen=True, slots=True)
class Undeleted(Model):
    """A checkpoint that is back. Policies hold for it again: a pin keeps it."""

    id: str = field(metadata={"examples": ["t1234"]})
    """The id that it had in the trash."""
    path: str = field(metadata={"examples": ["/checkpoints/jobs/llama-7b/step-1200"]})
    """The path that it has now."""


@dataclass(frozen=True, slots=True)
class RemovedCheckpoint(Model):
    """What became of a checkpoint in the trash that was to be removed for good."""

    id: str
    removed: bool
    failures: list[str]
    """Why it stays."""


@dataclass(frozen=True, slots=True)
class Emptied(Model):
    """What became of checkpoints in the trash that were to be removed for good."""

    removed_checkpoints: int
    failures: list[str]
    """Why others stay."""


@dataclass(frozen=True, slots=True)
class TrashSummary(Model):
    """What everything in the trash takes, and when the next is removed."""

    entries: int
    size_bytes: int
    """What the checkpoints had when they were deleted."""
    max_bytes: int
    """`retention.trash_max_bytes`: above it the oldest go early. 0: no limit."""
    local_bytes: int
    """On the local disk."""
    bucket_bytes: int
    dirty_files: int
    """Files that the bucket does not have."""
    dirty_bytes: int
    next_expiry_seconds: float | None
    """Time until the next is removed. None: none of them is."""
    early: int
    """The number that goes before its time is over."""
    staying: int
    """The number that stays although it was to be removed."""
    held: int
    """The number that clients removed, and that waits for a newer one in the bucket."""
    held_bytes: int
    """What these take in the bucket."""


class TrashBin(Protocol):
    """The checkpoints in the trash.

    Paths are those of the command line. Each method that takes one, or an id, raises NotThere,
    NotPossible.
    """

    def every(self) -> Iterator[Trashed]:
        """Yield what is in the trash, the oldest first."""

    def find(self, ids: Collection[str] | None = None) -> list[Expired]:
        """Return what has some ids. None: everything, the oldest first."""

    def held_at(self, path: str) -> list[Expired]:
        """Return what is held for a newer checkpoint and had a path, or was below it."""

    def undelete(self, what: str, to: str | None = None) -> Undeleted:
        """Take a checkpoint back.

        Args:
            what: its id, or the path that it had.
            to: another path than the one that it had.
        """

    def release(self, trash_id: str) -> Trashed:
        """Let a checkpoint that is held for a newer one leave the bucket."""

    def remove(self, one: Expired, progress: Tell) -> RemovedCheckpoint:
        """Remove a checkpoint for good, if it is still what was found."""


class LocalTrashBin:
    """The trash of this machine's gateway (``TrashBin``).

    Args:
        author: of what is done, for the record.
    """

    def __init__(self, settings: Settings, database: Database, author: str) -> None:
        self._settings = settings
        self._trash = Trash(settings, database)
        self._author = author

    def every(self) -> Iterator[Trashed]:
        return iter(model(self._settings, self._trash))

    def find(self, ids: Collection[str] | None = None) -> list[Expired]:
        self._trash.reconcile()
        return with_ids(self._found(), ids)

    def held_at(self, path: str) -> list[Expired]:
        return held_at(self._found(), self._settings.nfs.export, path)

    def undelete(self, what: str, to: str | None = None) -> Undeleted:
        with refusals():
            self._trash.reconcile()
            entry = chosen(self._found(), self._settings.nfs.export, what)
            return undelete(self._settings, self._trash, entry.id, to, by=self._author)

    def release(self, trash_id: str) -> Trashed:
        with refusals():
            self._trash.release(found(self._trash, trash_id), by=self._author)
        entry = found(self._trash, trash_id)
        [trash_entry] = model(self._settings, self._trash, [entry])
        return trash_entry

    def remove(self, one: Expired, progress: Tell) -> RemovedCheckpoint:
        entries = [
            entry
            for entry in self._trash.entries()
            if (entry.id, version(entry)) == (one.id, one.version)
        ]

        def on_removed(_entries: int, names: int) -> None:
            if names:
                progress(Progress(names, None, f"{names:,} names removed"))

        failures = [] if entries else [f"{one.id} is not in the trash any more"]
        with refusals():
            failures += remove(self._trash, entries, on_removed, by=self._author)
        return RemovedCheckpoint(one.id, not failures, failures)

    def _found(self) -> list[Expired]:
        return [_expired(self._settings.nfs.export, entry) for entry in self._trash.entries()]


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the trash raises in the body into errors for people. Raises NotPossible,
    UserError."""
    try:
        yield
    except TrashRefused as exc:
        raise NotPossible(str(exc)) from None
    except ControlSocketClosed as exc:
        raise UserError(f"{exc}: see spillway trash list, and try again") from None


def with_ids(found: Iterable[Expired], ids: Collection[str] | None) -> list[Expired]:
    """Return what has some ids. None: everything. Raises NotThere if one is not there."""
    known = {entry.id: entry for entry in found}
    wanted = dict.fromkeys(known if ids is None else ids)
    for trash_id in wanted:
        if trash_id not in known:
            raise not_there(trash_id)
    return [known[trash_id] for trash_id in wanted]


def held_at(found: Iterable[Expired], export: str, path: str) -> list[Expired]:
    """Return what is held for a newer checkpoint and had a path, or was below it. Raises NotThere
    if there is none.

    Args:
        export: its path.
        path: that of the command line.
    """
    top = b"/".join(names_of(export, path))
    there = [entry for entry in found if entry.held and is_below(_below(export, entry), top)]
    if not there:
        raise NotThere(f"{printable(top)}: nothing there is held: see spillway trash list")
    return there


def chosen(found: Sequence[Expired], export: str, what: str) -> Expired:
    """Return what has an id, or had a path. Raises NotThere; NotPossible if it is not clear which
    one is meant.

    Args:
        export: its path.
        what: the id, or the path of the command line.
    """
    path = b"/".join(names_of(export, what))
    there = [entry for entry in found if entry.id == what]
    there = there or [entry for entry in found if _below(export, entry) == path]
    if not there:
        raise not_there(what)
    if len(there) > 1:
        ids = ", ".join(entry.id for entry in there)
        many = f"{shown_path(what)} is in the trash {len(there)} times"
        raise NotPossible(f"{many}: name one: {ids}")
    return there[0]


def not_there(what: str) -> NotThere:
    """Return the error of an id or path of the command line that nothing in the trash has."""
    return NotThere(f"{shown_path(what)} is not in the trash: see spillway trash list")


def _below(export: str, entry: Expired) -> bytes:
    """Return the path that something in the trash had, below the export."""
    return b"/".join(names_of(export, os.fsdecode(bytes_of(entry.path))))


def model(
    settings: Settings, trash: Trash, entries: Sequence[TrashRow] | None = None
) -> list[Trashed]:
    """Return the checkpoints in the trash.

    Args:
        entries: only these, which follow each other in the trash.
    """
    every = trash.entries()
    wanted = every if entries is None else entries
    takes, now_ns = trash.totals(wanted), trash.now_ns()
    export, is_over = settings.nfs.export, _is_over(settings, every)
    early = _early(trash, every) if is_over else set()
    return [
        _model(
            _expired(export, row),
            row,
            takes.get(row.id, Totals()),
            now_ns,
            early=TOO_LARGE if row.id in early else None,
            stays=_stays(row, now_ns, is_over),
        )
        for row in wanted
    ]


def expired(settings: Settings, session: Session, run: bytes | None = None) -> list[Expired]:
    """Return what is known of the checkpoints in the trash without reading an inode.

    Args:
        run: run of which only, or None for all.
    """
    entries = (
        entry for entry in rows.entries(session) if entry.is_there and run in (None, entry.run)
    )
    return [_expired(settings.nfs.export, entry) for entry in entries]


def found(trash: Trash, trash_id: str) -> TrashRow:
    """Return what has an id in the trash. Raises NotThere."""
    for entry in trash.entries():
        if entry.id == trash_id:
            return entry
    raise not_there(trash_id)


def undelete(
    settings: Settings, trash: Trash, trash_id: str, to: str | None = None, *, by: str
) -> Undeleted:
    """Take a checkpoint back.

    Raises NotThere; TrashRefused, UserError, ControlSocketClosed, NamespaceError, OSError.

    Args:
        to: another path than the one that it had.
        by: the person.
    """
    trash.reconcile()
    entry = found(trash, trash_id)
    parts = None if to is None else names_of(settings.nfs.export, to)
    path = trash.undelete(entry.id, parts, by=by)
    return Undeleted(trash_id, f"{settings.nfs.export}/{text_of(path)}")


def is_held(entry: TrashRow) -> bool:
    """Return whether something in the trash waits for a newer checkpoint."""
    is_kept = entry.state == TrashState.KEPT and entry.released_by is None
    return entry.rotated is not None and is_kept


def removable(trash: Trash, ids: Collection[str] | None, until_ns: int) -> list[TrashRow]:
    """Return what is to be removed for good.

    Args:
        ids: only these, or None for all that is not held for a newer checkpoint.
        until_ns: ``Trash.now_ns`` of the moment at which a person chose: what came into the trash
            later stays, also under an id that was chosen.
    """
    trash.reconcile()
    return [
        entry
        for entry in trash.entries()
        if entry.since_ns <= until_ns and (not is_held(entry) if ids is None else entry.id in ids)
    ]


def remove(
    trash: Trash, entries: Sequence[TrashRow], on_removed: Callable[[int, int], None], *, by: str
) -> list[str]:
    """Remove entries for good. Returns why some stay.

    Raises UserError, ControlSocketClosed, NamespaceError, OSError.

    Args:
        on_removed: called now and then with the number of entries that are done and of the names of
            the next one that are removed: what it raises ends the removal.
        by: the person.
    """
    identity.require_surroundings(trash.settings)
    failures = []
    for at, entry in enumerate(entries):
        on_removed(at, 0)
        try:
            trash.remove(entry, partial(on_removed, at), by=by, reason=BY_HAND)
        except TrashRefused as exc:
            failures.append(str(exc))
    return failures


def summary(trash: Trash) -> TrashSummary:
    """Return what all of it takes, and when the next is removed."""
    entries = trash.entries()
    takes, now_ns = trash.totals(entries), trash.now_ns()
    totals_each = [takes.get(entry.id, Totals()) for entry in entries]
    is_over = _is_over(trash.settings, entries)
    free = [entry for entry in entries if _stays(entry, now_ns, is_over) is None]
    left = [_left_seconds(row, now_ns) for row in free]
    held = [takes.get(entry.id, Totals()) for entry in entries if is_held(entry)]
    return TrashSummary(
        entries=len(entries),
        size_bytes=sum(entry.size for entry in entries),
        max_bytes=trash.settings.retention.trash_max_bytes,
        local_bytes=sum(totals.local for totals in totals_each),
        bucket_bytes=sum(totals.stored for totals in totals_each),
        dirty_files=sum(totals.dirty_files for totals in totals_each),
        dirty_bytes=sum(totals.dirty_size for totals in totals_each),
        next_expiry_seconds=min(left, default=None),
        early=len(_early(trash, entries)) if is_over else 0,
        staying=len(entries) - len(free),
        held=len(held),
        held_bytes=sum(totals.stored for totals in held),
    )


def _expired(export: str, entry: TrashRow) -> Expired:
    return Expired(
        id=entry.id,
        path=f"{export}/{text_of(entry.path)}" if entry.path else NOT_KNOWN,
        run=text_of(entry.run),
        step=entry.step,
        state=EXPIRED,
        files=entry.files,
        size_bytes=entry.size,
        held=is_held(entry),
        version=version(entry),
    )


def version(entry: TrashRow) -> str:
    """Return which deletion an entry is of: a text, because the count of elapsed time is no moment
    (gateway.common.clock), and too large a number for programs in JavaScript."""
    return str(entry.since_ns)


def _model(
    named: Expired,
    entry: TrashRow,
    takes: Totals,
    now_ns: int,
    *,
    early: str | None,
    stays: str | None,
) -> Trashed:
    return Trashed(
        **values_of(named),
        local_bytes=takes.local,
        bucket_bytes=takes.stored,
        dirty_files=takes.dirty_files,
        dirty_bytes=takes.dirty_size,
        deleted_ns=entry.deleted_ns,
        left_seconds=_left_seconds(entry, now_ns),
        by=shown(entry.deleted_by),
        reason=shown(entry.reason),
        is_expiring=entry.state == TrashState.EXPIRING,
        early=early,
        stays=stays,
    )


def _left_seconds(entry: TrashRow, now_ns: int) -> float:
    return round(max(0, entry.expires_ns - now_ns) / clock.NS, 1)


def _stays(entry: TrashRow, now_ns: int, is_over: bool) -> str | None:
    """Return why a checkpoint stays although it was to be removed, or None.

    Args:
        is_over: whether some are to be removed before their grace is over.
    """
    is_asked = entry.state == TrashState.KEPT and (is_over or entry.expires_ns <= now_ns)
    return entry.stays if is_asked else None


def _is_over(settings: Settings, entries: Sequence[TrashRow]) -> bool:
    """Return whether what was deleted is more than the limit, without what is held."""
    max_bytes = settings.retention.trash_max_bytes
    return 0 < max_bytes < sum(entry.size for entry in entries if entry.rotated is None)


def _early(trash: Trash, entries: Sequence[TrashRow]) -> set[str]:
    """Return the entries that leave a trash over its limit before their grace is over.

    Args:
        entries: all.
    """
    wanted = trash.wanted()

    def may_go(row: TrashRow) -> bool:
        return row.state == TrashState.KEPT and row.ino not in wanted and row.stays is None

    limit = trash.settings.retention.trash_max_bytes
    return {row.id for row in surplus([e for e in entries if e.rotated is None], limit, may_go)}
