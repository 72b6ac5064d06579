"""Promotions: what was promoted, and what may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gateway import clock
from gateway.checkpoints.catalogue import Catalogue, catalogue_of
from gateway.checkpoints.facts import State as CheckpointState
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import RESERVED_NAME, ROOT_INO
from gateway.errors import NotPossible, NotThere, UserError
from gateway.namespace.lookup import is_trashed
from gateway.objectstore import keys
from gateway.promotion import members, places, store
from gateway.promotion.members import Look
from gateway.promotion.store import Hold
from gateway.promotion.store import Promotion as Row
from gateway.promotion.wishes import NO_WISHES, Wishes
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import Text, printable, shown
from gateway.units import size


class Source(NamedTuple):
    """What a promotion would be made of, as one transaction sees it."""

    path: bytes
    """The path below the export."""
    seen: Look
    is_behind: bool
    """Whether the catalogue has yet to look at the checkpoint as it is."""


@dataclass(frozen=True, slots=True)
class Promotion(Model):
    """A copy of a checkpoint or tree. Which one it is and its state are the ETag."""

    name: str = field(metadata={"examples": ["release-candidate"]})
    state: str = field(metadata={"examples": ["done"]})
    """copying, done, failed or demoting."""
    reason: str | None
    """Why it failed, or what it waits for."""
    path: str = field(metadata={"examples": ["/checkpoints/.spillway/promoted/release-candidate"]})
    source: str = field(metadata={"examples": ["/checkpoints/jobs/llama-7b/step-1200"]})
    """Its path, when it was promoted."""
    run: str | None
    step: int | None
    note: str
    by: str
    asked: str = field(metadata={"examples": ["2026-11-23T09:30:00+00:00"]})
    """When: ISO 8601."""
    done: str | None
    """When: ISO 8601."""
    files: int
    copied_files: int
    size_bytes: int
    is_tagged: bool | None
    """Whether its objects have the tag."""
    legal_hold: bool
    """Whether no program deletes its objects (Object Lock)."""
    tags: dict[str, str] = field(metadata={"examples": [{"spillway": "promoted", "team": "llm"}]})
    """Tags of its objects."""
    key: str = field(metadata={"examples": ["checkpoints/.spillway/promoted/release-candidate"]})
    """The beginning of its keys in the bucket."""
    manifest: str | None
    """Key of its manifest in the bucket."""


def model(settings: Settings, one: Row, copied: int, text: Text = printable) -> Promotion:
    """Return a promotion as people see it. Parameters: copied, its files that are copied; text, of
    names."""
    export, prefix = settings.nfs.export, settings.bucket.prefix
    return Promotion(
        name=one.name,
        state=one.state,
        reason=one.reason,
        path=f"{export}/{printable(RESERVED_NAME)}/promoted/{one.name}",
        source=f"{export}/{text(one.path)}",
        run=None if one.run is None else text(one.run),
        step=one.step,
        note=one.note,
        by=one.asked_by,
        asked=clock.local_iso(one.asked_ns),
        done=None if one.done_ns is None else clock.local_iso(one.done_ns),
        files=one.files,
        copied_files=copied,
        size_bytes=one.size,
        is_tagged=None if one.is_tagged is None else bool(one.is_tagged),
        legal_hold=one.legal_hold == Hold.HELD,
        tags=one.all_tags if one.is_tagged else {},
        key=keys.key_of(*places.place_of(prefix, one.name, one.released, b"")),
        manifest=None if one.manifest_etag is None else places.manifest_key(prefix, one.name),
    )


def require_lock(settings: Settings) -> None:
    """Raise UserError if the bucket keeps no legal holds, StoreError if it cannot be asked."""
    # The imports are here because boto3 takes half a second to import.
    from gateway.objectstore.holds import HoldingStore
    from gateway.promotion.copier import NO_LOCK

    if not HoldingStore(settings).has_lock():
        raise UserError(NO_LOCK)


def every(settings: Settings, session: Session, text: Text = printable) -> list[Promotion]:
    """Return the promotions. Parameters: text, of names."""
    found = []
    for one in store.every(session):
        _files, copied = store.counts(session, one.name)
        found.append(model(settings, one, copied, text))
    return found


def named(session: Session, name: str) -> Row:
    """Return the promotion with a name. Raises NotThere."""
    found = store.one_named(session, name)
    if found is None:
        raise NotThere(f"no promotion {shown(name)}: look with spillway promotions")
    return found


def promote(
    settings: Settings,
    database: Database,
    ino: int,
    name: str,
    note: str,
    by: str,
    text: Text = printable,
    wishes: Wishes = NO_WISHES,
) -> Row:
    """Record a promotion of what the bucket has by now. The gateway copies by itself.

    Parameters: ino of the source; name of the copy, as a person wrote it; note, and by, the person,
    for the record; text, of names; wishes, of the person. Raises NotThere, NotPossible, UserError,
    TryAgain, and StoreError if the bucket cannot be asked for what the wishes need.
    """
    checked = places.checked(name, settings.drain.hold_patterns)
    if wishes.legal_hold:
        require_lock(settings)
    source = source_of(catalogue_of(settings, database), ino)
    if source is None:
        raise NotThere("it was removed meanwhile: look again")
    if (why := why_not_yet(source, text)) is not None:
        raise NotPossible(f"{text(source.path)}: {why}")
    with database.writing() as session:
        prefix = settings.bucket.prefix
        path, seen = source.path, source.seen
        return members.record(session, prefix, checked, path, seen, note, by, wishes)


def source_of(catalogue: Catalogue, ino: int) -> Source | None:
    """Return what is to be promoted, or None if it was removed. Raises NotPossible if it is nothing
    that can be, TryAgain."""
    with catalogue.viewing() as view:
        path, seen = _path_of(view.session, ino), members.look(view.session, ino, view.rules)
        if path is None or seen is None:
            return None
        now = catalogue.as_is(view, ino)
    # Its row may be of a moment before the last change: what was complete then may not be now.
    known = seen.checkpoint
    is_behind = now is not None and (known is None or known.evidence != now.evidence)
    return Source(path, seen, is_behind)


def _path_of(session: Session, ino: int) -> bytes | None:
    if ino == ROOT_INO:
        raise NotPossible("the whole export cannot be promoted: name a checkpoint")
    if is_trashed(session, ino):
        raise NotPossible("a policy put it into the trash: take it back: spillway undelete")
    paths = store.paths_of(session, ino)
    if paths and paths[0].split(b"/")[0] == RESERVED_NAME:
        raise NotPossible(f"{printable(paths[0])}: it is the gateway's own, and stays already")
    return paths[0] if paths else None


def why_not_yet(source: Source, text: Text = printable) -> str | None:
    """Return why a source cannot be promoted yet, or None. Raises NotPossible if it never can.

    Parameters: source; text, of names.
    """
    path, seen, is_behind = source
    if seen.special is not None:
        below = _below(path, seen.special.path)
        raise NotPossible(
            f"{text(below)}: only files, directories and links are promoted: remove it"
        )
    if not seen.files:
        raise NotPossible(f"{text(path)}: it has no files")
    known = seen.checkpoint
    if known is not None and known.state == CheckpointState.WRITING:
        return f"the checkpoint is not complete: {known.reason}"
    if left := seen.left:
        left_bytes = sum(one.size for one in left)
        return (
            f"{len(left):,} files, {size(left_bytes)} are not in the bucket yet "
            f"({text(_below(path, left[0].path))}): "
            "spillway wait --durable --timeout 0 PATH says why"
        )
    return "the gateway has yet to look at its last change: try again soon" if is_behind else None


def _below(path: bytes, member: bytes) -> bytes:
    return b"/".join(part for part in (path, member) if part)
