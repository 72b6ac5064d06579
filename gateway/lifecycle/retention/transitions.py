"""Orders of transitions: the objects of old checkpoints move to another storage class.

A checkpoint is ordered as a whole: one transaction adds the action, and a row of ``transition`` for
each file whose object is not in the class. The drain carries the rows out, one by one
(gateway.drain.tidy.transition). When none is left, the action ends. What the plan does not want any
more, because a person changed a policy, promoted or pinned it, is taken back.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from sqlalchemy import and_, delete, exists, insert, or_, select, update

from gateway.catalogue.store import Catalogue
from gateway.common import failpoints
from gateway.common.failpoints import RETENTION_ACTION
from gateway.common.text import printable
from gateway.common.types import Extent, InodeKind
from gateway.db.compiled import Statement, b, given, rows_of
from gateway.db.engine import Database
from gateway.db.statements import HERE, TREE, inode, object_, transition
from gateway.lifecycle.promotion.store import protected
from gateway.lifecycle.retention import store
from gateway.lifecycle.retention.facts import Decision, Pinned, PlanCheckpoint
from gateway.lifecycle.retention.guard import is_unchanged
from gateway.lifecycle.retention.planning import Planned
from gateway.lifecycle.retention.store import ActionRow

log = logging.getLogger("retention")

WHAT = "transition"
AT_ONCE = 8
"""The checkpoints that are ordered and not done: a person who changes a policy waits for no more of
them."""


def _members(inos: Any) -> Statement:
    """Return what selects the files of a checkpoint whose objects are not in a storage class, and
    not ordered. Args: inos, a table."""
    has_version = and_(
        object_.c.ino == inode.c.ino, object_.c.content_version == inode.c.content_version
    )
    return Statement(
        select(inode.c.ino, inode.c.content_version)
        .select_from(inos.join(inode, inode.c.ino == inos.c.ino).join(object_, has_version))
        .where(
            inode.c.kind == int(InodeKind.REGULAR),
            or_(object_.c.storage_class.is_(None), object_.c.storage_class != b("storage_class")),
            ~exists().where(transition.c.ino == inode.c.ino),
        )
    )


MEMBERS = _members(TREE)
FLAT_MEMBERS = _members(HERE)
_ORDERED = given("rows", ino=int, content_version=int, storage_class=str, action=int)
INSERT = Statement(insert(transition).from_select(_ORDERED.c.keys(), select(_ORDERED)))
LEFT = Statement(select(transition.c.action).where(transition.c.until_ns.is_(None)).distinct())
"""Selects the actions with orders that are not carried out."""
UNASKED_DELETE = Statement(
    delete(transition).where(transition.c.action == b("the_action"), transition.c.key.is_(None))
)
WITHDRAW = Statement(
    update(transition)
    .where(transition.c.action == b("the_action"), transition.c.until_ns.is_(None))
    .values(storage_class="")
)


class Transitions:
    """The orders of one gateway.

    Args:
        stop: after which no more is ordered.
    """

    def __init__(self, database: Database, catalogue: Catalogue, stop: threading.Event) -> None:
        self._database = database
        self._catalogue = catalogue
        self._stop = stop

    def run_once(self, planned: Planned) -> None:
        """End what is carried out, take back what the plan does not want, and order what it wants.
        Raises NamespaceError."""
        wanted = {decision.checkpoint.ino: decision for decision in planned.plan.transitions}
        with self._database.reading() as session:
            begun = [row for row in store.unfinished(session) if row.what == WHAT]
            left = {action for (action,) in session.all(LEFT)}
        for action in begun:
            if action.id not in left:
                self._end(action)
            elif not _is_wanted(action, wanted.get(action.ino)):
                self._take_back(action)
        under_way = {action.ino for action in begun if action.id in left}
        count = len(under_way)
        for ino, decision in wanted.items():
            if self._stop.is_set() or count >= AT_ONCE:
                return
            if ino not in under_way:
                count += self._order(decision, planned)

    def _order(self, decision: Decision, planned: Planned) -> bool:
        """Order what is left to do for a checkpoint. Returns whether there was anything. Raises
        NamespaceError."""
        checkpoint, planned_transition = decision.checkpoint, decision.transition
        if planned_transition is None or not is_unchanged(
            self._catalogue, checkpoint, must_be_durable=True
        ):
            return False
        with self._database.writing() as session:
            if store.current(session) != list(planned.policies):
                return False
            kept = protected(session)
            if checkpoint.ino in kept.inos or Pinned(kept.paths).holds(checkpoint.path):
                return False
            statement = MEMBERS if checkpoint.extent == Extent.TREE else FLAT_MEMBERS
            members = session.all(
                statement, top=checkpoint.ino, storage_class=planned_transition.storage_class
            )
            if not members:
                return False
            action = store.begin(
                session,
                WHAT,
                checkpoint,
                planned_transition.policy,
                _reason(decision),
                checkpoint.evidence,
            )
            rows = [(*member, planned_transition.storage_class, action) for member in members]
            session.run(INSERT, rows=rows_of(rows))
        failpoints.hit_counted(RETENTION_ACTION.format(when="begun"))
        log.info("%s: %s: %d objects", printable(checkpoint.path), _reason(decision), len(members))
        return True

    def _end(self, action: ActionRow) -> None:
        """Record that nothing of an order is left."""
        now = self._catalogue.look(action.ino).now
        if now is None or now.path != action.path:
            result = "it is not at its path any more"
        elif now.storage_class is None or now.evidence != action.evidence:
            result = "not all of its objects were moved: it was changed meanwhile, or taken back"
        else:
            result = f"{now.files} files are in {now.storage_class}"
        failpoints.hit_counted(RETENTION_ACTION.format(when="done"))
        with self._database.writing() as session:
            store.end(session, action.id, result)
        log.info("%s: %s", printable(action.path), result)

    def _take_back(self, action: ActionRow) -> None:
        """Have nothing more copied for an order. What was requested is looked at by the drain."""
        with self._database.writing() as session:
            session.run(UNASKED_DELETE, the_action=action.id)
            session.run(WITHDRAW, the_action=action.id)
        log.info("%s: no policy moves its objects any more", printable(action.path))


def _reason(decision: Decision) -> str:
    planned_transition = decision.transition
    return (
        ""
        if planned_transition is None
        else f"to {planned_transition.storage_class}, because {planned_transition.why}"
    )


def _is_wanted(action: ActionRow, decision: Decision | None) -> bool:
    """Return whether the plan wants what was ordered."""
    if decision is None or decision.transition is None:
        return False
    checkpoint: PlanCheckpoint = decision.checkpoint
    if (checkpoint.path, checkpoint.evidence) != (action.path, action.evidence):
        return False
    return action.reason == _reason(decision) and action.author == decision.transition.policy
