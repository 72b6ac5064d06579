"""Deletion of a checkpoint because a person says so: the checks, and its way into the trash.

The deletion guards hold here too (gateway.lifecycle.retention.planner,
gateway.lifecycle.retention.guard), except that a person may insist: then the newest complete
checkpoint of a run can be deleted, one that is not complete, one that a link or tracker names, and
one for which no newer one stands. What is pinned or being copied stays in any case, and nothing is
deleted while the catalogue may lack checkpoints. Each deletion is recorded as one of a policy is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from sqlalchemy import select

from gateway.catalogue.facts import NOT_MADE
from gateway.catalogue.store import catalogue_of
from gateway.catalogue.tree import CatalogueView
from gateway.common.errors import (
    Changed,
    ControlSocketClosed,
    NotPossible,
    NotThere,
    SpillwayError,
    StoreError,
)
from gateway.common.models import Model
from gateway.common.text import printable
from gateway.common.types import Extent
from gateway.config.settings import Settings
from gateway.db.compiled import Statement
from gateway.db.engine import Database
from gateway.db.statements import checkpoint_record
from gateway.lifecycle.promotion.store import paths_of, protected
from gateway.lifecycle.retention import keep_rules, planner, store
from gateway.lifecycle.retention.facts import Pinned, PlanCheckpoint
from gateway.lifecycle.retention.guard import BucketHeads, DeletionGuard, cannot_ask
from gateway.lifecycle.retention.planning import checkpoint_of
from gateway.lifecycle.retention.references import References
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import identity
from gateway.rpc.control import ControlSocket
from gateway.service.paths import is_below

BY_HAND = "a person deleted it"
"""The reason, if the person says none."""
INSIST = ": --force deletes it nevertheless"
"""The end of why a checkpoint stays."""
PINNED = "it is pinned or being promoted: spillway checkpoint pins shows pins"
ANY_RECORD = Statement(select(checkpoint_record.c.ino).limit(1))


@dataclass(frozen=True, slots=True)
class Deleted(Model):
    """A checkpoint in the trash."""

    id: str = field(metadata={"examples": ["t1234"]})
    """Its id in the trash."""
    path: str = field(metadata={"examples": ["/checkpoints/jobs/llama-7b/step-1200"]})
    """The path that it had."""


def delete(
    settings: Settings,
    database: Database,
    ino: int,
    *,
    author: str,
    reason: str,
    insists: bool,
    seen: Collection[str] | None = None,
    open_control: Callable[[], AbstractContextManager[ControlSocket]] | None = None,
) -> str:
    """Put a checkpoint into the trash. Returns its id there.

    The transaction that reads what is deleted compares it, and what changes later is not deleted;
    open_control, which connects to the control socket. Raises NotThere, Changed, NotPossible,
    TrashRefused; UserError, ControlSocketClosed, NamespaceError, OSError.

    Args:
        ino: ino of the checkpoint.
        author: the person.
        reason: for other people.
        insists: whether it is deleted although a deletion guard keeps it.
        seen: the evidence that the person saw, or None for any.
    """
    checkpoint, newer = _checked(settings, database, ino, insists, seen)
    if newer is not None:
        _require_fit(settings, database, checkpoint, newer)
    with database.writing() as session:
        action = store.begin(session, "trash", checkpoint, author, reason, checkpoint.evidence)
    result = "failed: it is not known whether it is in the trash: spillway trash list"
    try:
        trash = Trash(settings, database, open_control)
        made = trash.put(checkpoint.ino, checkpoint.path, checkpoint.evidence, author, reason)
        result = f"in the trash as {made}"
    except ControlSocketClosed:
        raise
    except SpillwayError as exc:
        result = f"refused: {exc}"
        raise
    finally:
        with database.writing() as session:
            store.end(session, action, result)
    return made


def check(
    settings: Settings,
    database: Database,
    ino: int,
    *,
    insists: bool,
    seen: Collection[str] | None = None,
) -> PlanCheckpoint:
    """Return the checkpoint if ``delete`` may be asked for it now. Nothing is changed, and the
    bucket is not asked: ``delete`` does that.

    Parameters and errors are those of ``delete``.
    """
    return _checked(settings, database, ino, insists, seen)[0]


def _checked(
    settings: Settings,
    database: Database,
    ino: int,
    insists: bool,
    seen: Collection[str] | None,
) -> tuple[PlanCheckpoint, PlanCheckpoint | None]:
    """Return a checkpoint that may be deleted, and the newer one that stands for it, which is None
    if the person insists. Raises NotThere, Changed, NotPossible; UserError, OSError."""
    identity.require_surroundings(settings)
    with catalogue_of(settings, database).viewing() as view:
        row = view.session.one(store.OF_INO, ino=ino)
        if row is None:
            raise NotThere(f"{ino} is no checkpoint: look with spillway checkpoint list")
        checkpoint = checkpoint_of(row)
        path = printable(checkpoint.path)
        if seen is not None and checkpoint.evidence not in seen:
            raise Changed(f"{path} has changed meanwhile: look at it, and delete it again")
        if view.session.one(store.IS_MADE) is None:
            raise NotPossible(f"{path} stays: {NOT_MADE}: wait")
        kept = protected(view.session)
        if Pinned(kept.paths).holds(checkpoint.path):
            raise NotPossible(f"{path} stays: {PINNED}")
        if insists:
            return checkpoint, None
        why, newer = _reason_against(settings, view, checkpoint, checkpoint.ino in kept.inos)
    if why is not None:
        raise NotPossible(_stays(path, why))
    return checkpoint, newer


def check_tree(
    settings: Settings, database: Database, path: bytes, *, insists: bool
) -> list[PlanCheckpoint]:
    """Return the complete checkpoints at and below a path, if a person may remove the tree: the
    inner ones first, and of these the older ones. Nothing is changed.

    Raises NotPossible if something in the tree is pinned or being promoted, or a deletion guard
    keeps one of them.

    Args:
        path: path below the export's root.
        insists: as of ``delete``.
    """
    with catalogue_of(settings, database).viewing() as view:
        session = view.session
        kept = protected(session)
        if Pinned(kept.paths).holds(path):
            raise NotPossible(f"{printable(path)} stays: {PINNED}")
        is_made = session.one(store.IS_MADE) is not None
        if not is_made and not insists and session.one(ANY_RECORD) is not None:
            raise NotPossible(f"{printable(path)} stays: {NOT_MADE}: wait")
        checkpoints = [
            checkpoint
            for checkpoint in (checkpoint_of(row) for row in session.all(store.CHECKPOINTS))
            # The catalogue may be behind the namespace: it may be in the trash by now.
            if checkpoint.is_complete
            and is_below(checkpoint.path, path)
            and checkpoint.path in paths_of(session, checkpoint.ino)
        ]
        for checkpoint in checkpoints if not insists else ():
            why, _newer = _reason_against(settings, view, checkpoint, checkpoint.ino in kept.inos)
            if why is not None:
                raise NotPossible(_stays(printable(checkpoint.path), why))
    return sorted(
        checkpoints, key=lambda checkpoint: (-checkpoint.path.count(b"/"), checkpoint.ready_ns)
    )


def _reason_against(
    settings: Settings, view: CatalogueView, checkpoint: PlanCheckpoint, is_promoted: bool
) -> tuple[str | None, PlanCheckpoint | None]:
    """Return which deletion guard keeps a checkpoint, or None, and the newer one that stands for
    it."""
    run = [checkpoint_of(row) for row in view.session.all(store.OF_RUN, run=checkpoint.run)]
    newer = keep_rules.successor(checkpoint, run, settings.retention.min_replacement_share)
    why = _kept(checkpoint, is_promoted, References().of(view, [checkpoint]).get(checkpoint.ino))
    if why is None and newer is None:
        why = planner.lone(keep_rules.RunOrder(run), checkpoint)
    return why, newer


def _kept(checkpoint: PlanCheckpoint, is_promoted: bool, referred: str | None) -> str | None:
    """Return which deletion guard keeps a checkpoint, whatever else is in its run, or None."""
    if not checkpoint.is_complete:
        return f"it is not complete: {checkpoint.reason or 'the reason is not known'}"
    if checkpoint.extent == Extent.FILES:
        return "its directory may have more in it than this checkpoint"
    return "it is promoted" if is_promoted else referred


def _require_fit(
    settings: Settings, database: Database, checkpoint: PlanCheckpoint, newer: PlanCheckpoint
) -> None:
    """Raise NotPossible unless a newer checkpoint is durable now, in the bucket too."""
    guard = DeletionGuard(settings, database, BucketHeads(settings, threading.Event()))
    try:
        unfit = guard.unfit(newer)
        why = None if unfit is None else unfit.why
    except StoreError as exc:
        why = cannot_ask(exc)
    if why is not None:
        raise NotPossible(_stays(printable(checkpoint.path), why))


def _stays(path: str, why: str) -> str:
    return f"{path} stays: {why}{INSIST}"
