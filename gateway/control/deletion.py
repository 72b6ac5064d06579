"""Puts a checkpoint into the trash because a person says so.

The laws of retention hold here too (gateway.retention.planner), except that a person may insist:
then the newest complete checkpoint of a run can be deleted, one that is not complete, and one that
no newer durable one replaces. What is pinned or being copied stays in any case, and nothing is
deleted while the catalogue may lack checkpoints. Each deletion is recorded as one of a policy is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import select

from gateway.checkpoints.catalogue import Catalogue, catalogue_of
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.db.statements import checkpoint_record
from gateway.door.door import Door
from gateway.errors import Changed, DoorClosed, GatewayError, NotPossible, NotThere
from gateway.namespace import identity
from gateway.promotion.store import paths_of, protected
from gateway.retention import statements as own
from gateway.retention import store
from gateway.retention.facts import Checkpoint, Pinned
from gateway.retention.law import is_still
from gateway.retention.order import Order
from gateway.retention.planning import checkpoint_of
from gateway.settings import Settings
from gateway.text import printable
from gateway.trash.trash import Trash
from gateway.types import Extent

BY_HAND = "a person deleted it"
"""The reason, if the person says none."""
PINNED = "it is pinned or being promoted: spillway pins shows pins"
NOT_MADE = "the namespace was not looked at as a whole yet: wait"
ANY_RECORD = Statement(select(checkpoint_record.c.ino).limit(1))


def delete(
    settings: Settings,
    database: Database,
    ino: int,
    *,
    author: str,
    reason: str,
    insists: bool,
    seen: Collection[str] | None = None,
    open_door: Callable[[], AbstractContextManager[Door]] | None = None,
) -> str:
    """Put a checkpoint into the trash. Returns its id there.

    Parameters: ino of the checkpoint; author, the person; reason, for other people; insists,
    whether it is deleted although a law of retention keeps it; seen, the evidence that the person
    saw, or None for any. The transaction that reads what is deleted compares it, and what changes
    later is not deleted; open_door, which opens the door. Raises NotThere, Changed, NotPossible,
    TrashRefused; UserError, DoorClosed, NamespaceError, OSError.
    """
    one = check(settings, database, ino, insists=insists, seen=seen)
    with database.writing() as session:
        action = store.begin(session, "trash", one, author, reason, one.evidence)
    result = "failed: it is not known whether it is in the trash: spillway trash list"
    try:
        trash = Trash(settings, database, open_door)
        made = trash.put(one.ino, one.path, one.evidence, author, reason)
        result = f"in the trash as {made}"
    except DoorClosed:
        raise
    except GatewayError as exc:
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
) -> Checkpoint:
    """Return the checkpoint if ``delete`` may be asked for it now. Nothing is changed.

    Parameters and errors are those of ``delete``.
    """
    identity.require_surroundings(settings)
    catalogue = catalogue_of(settings, database)
    with database.reading() as session:
        return _allowed(session, catalogue, ino, insists, seen)


def check_tree(
    settings: Settings, database: Database, path: bytes, *, insists: bool
) -> list[Checkpoint]:
    """Return the complete checkpoints at and below a path, if a person may remove the tree: the
    inner ones first, and of these the older ones. Nothing is changed.

    Parameters: path below the export's root; insists, as of ``delete``. Raises NotPossible if
    something in the tree is pinned or being promoted, or a law keeps one of them.
    """
    catalogue = catalogue_of(settings, database)
    with database.reading() as session:
        said = protected(session)
        if Pinned(said.paths).holds(path):
            raise NotPossible(f"{printable(path)} stays: {PINNED}")
        is_made = session.one(own.IS_MADE) is not None
        if not is_made and not insists and session.one(ANY_RECORD) is not None:
            raise NotPossible(f"{printable(path)} stays: {NOT_MADE}")
        checkpoints = [checkpoint_of(row) for row in session.all(own.CHECKPOINTS)]
        found = [
            one
            for one in checkpoints
            # The catalogue may be behind the namespace: it may be in the trash by now.
            if one.is_complete
            and is_below(one.path, path)
            and one.path in paths_of(session, one.ino)
        ]
        for one in found if not insists else ():
            if why := _kept(catalogue, one, checkpoints, one.ino in said.inos):
                shown = printable(one.path)
                raise NotPossible(f"{shown} stays: {why}: force deletes it nevertheless")
    return sorted(found, key=lambda one: (-one.path.count(b"/"), one.ready_ns))


def is_below(path: bytes, top: bytes) -> bool:
    """Return whether a path is another one, or below it. The root is empty."""
    return not top or path == top or path.startswith(top + b"/")


def _allowed(
    session: Session, catalogue: Catalogue, ino: int, insists: bool, seen: Collection[str] | None
) -> Checkpoint:
    """Return the checkpoint if it may be deleted. Raises NotThere, Changed, NotPossible."""
    checkpoints = [checkpoint_of(row) for row in session.all(own.CHECKPOINTS)]
    one = next((found for found in checkpoints if found.ino == ino), None)
    if one is None:
        raise NotThere(f"{ino} is no checkpoint: look with spillway checkpoints")
    path = printable(one.path)
    if seen is not None and one.evidence not in seen:
        raise Changed(f"{path} has changed meanwhile: look at it, and delete it again")
    if session.one(own.IS_MADE) is None:
        raise NotPossible(f"{path} stays: {NOT_MADE}")
    said = protected(session)
    if Pinned(said.paths).holds(one.path):
        raise NotPossible(f"{path} stays: {PINNED}")
    if not insists and (why := _kept(catalogue, one, checkpoints, one.ino in said.inos)):
        raise NotPossible(f"{path} stays: {why}: force deletes it nevertheless")
    return one


def _kept(
    catalogue: Catalogue, one: Checkpoint, checkpoints: Sequence[Checkpoint], is_promoted: bool
) -> str | None:
    """Return which law of retention keeps a checkpoint, or None."""
    if not one.is_complete:
        return f"it is not complete: {one.reason or 'the reason is not known'}"
    if one.extent == Extent.FILES:
        return "its directory may have more in it than this checkpoint"
    if is_promoted:
        return "it is promoted"
    order = Order([found for found in checkpoints if found.run == one.run])
    newer = order.newer(one)
    if newer is None:
        if order.is_newest(one):
            return "it is the newest complete one of its run, by step or by time"
        return "no newer one of its run is durable"
    # The catalogue may be behind the namespace.
    if not is_still(catalogue, newer.stays, must_be_durable=True):
        return "the newer one of its run is not durable any more"
    return None
