"""Retention: what a plan says, what was done because of policies, and what a person is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from gateway import clock, trusted_clock
from gateway.checkpoints.catalogue import catalogue_of
from gateway.checkpoints.shown import shown_state
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.errors import UserError
from gateway.escapes import text_of
from gateway.promotion.store import protected
from gateway.retention import statements as own
from gateway.retention import store
from gateway.retention.facts import Current, Decision
from gateway.retention.planning import Planned, Planning, completions
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import shown
from gateway.trusted_clock import JudgedTime, KnownTime

_ACTIONS = select(own.action).where(own.action.c.id < b("before"))
_NEWEST = own.action.c.id.desc()
ACTIONS = Statement(_ACTIONS.order_by(_NEWEST).limit(b("most")))
ACTIONS_OF = Statement(
    _ACTIONS.where(own.action.c.run == b("run")).order_by(_NEWEST).limit(b("most"))
)


@dataclass(frozen=True, slots=True)
class PlannedCheckpoint(Model):
    """What becomes of a checkpoint, and why."""

    path: str
    run: str
    step: int | None
    state: str = field(metadata={"examples": ["durable"]})
    """The state as in /checkpoints."""
    size_bytes: int
    fate: str = field(metadata={"examples": ["delete"]})
    """keep or delete."""
    why: str = field(metadata={"examples": ["it is not among the newest 3 (newest-three v2)"]})
    policies: list[str] = field(metadata={"examples": [["newest-three v2"]]})
    """Those that let it go."""
    evicted_by: str | None
    """The policies by which it leaves the local disk."""
    moves_to: str | None
    """The storage class that its objects move to now."""
    moved_by: str | None
    """The policy by which they do."""
    storage_class: str | None
    """The one that a policy moved all objects to."""
    superseded: bool
    """It need not be uploaded meanwhile."""


@dataclass(frozen=True, slots=True)
class Asked(Model):
    """Deletions that a person must approve first."""

    plan: str
    """To be approved: POST /retention/approvals."""
    checkpoints: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Plan(Model):
    """What becomes of all checkpoints. Nothing is done by reading it."""

    catalogue_is_made: bool
    """While it is false nothing is deleted."""
    ages_until_ns: int
    clock_ahead_seconds: float
    """How much of the clock's time is not believed."""
    asked: Asked | None
    why_asked: str | None
    is_stored: bool
    """Only a plan of stored policies can be approved."""
    kept: int
    deleted: int
    deleted_bytes: int
    evicted: int
    moved: int
    """Their objects move to another storage class."""
    unused_policies: list[str]
    """They select no checkpoint."""
    checkpoints: list[PlannedCheckpoint]
    """By run and step."""
    more_checkpoints: int
    """Those that were asked for and are not shown."""


@dataclass(frozen=True, slots=True)
class Action(Model):
    """Something that was done to a checkpoint because of a policy or person."""

    id: int
    began_ns: int
    finished_ns: int | None
    """null: it is under way."""
    what: str = field(metadata={"examples": ["trash"]})
    """trash, evict, transition, remove or undelete."""
    author: str = field(metadata={"examples": ["newest-three v2"]})
    run: str
    step: int | None
    path: str
    ino: int
    evidence: str
    reason: str
    result: str | None


@dataclass(frozen=True, slots=True)
class Approval(Model):
    """A plan that is or was asked about."""

    plan: str
    checkpoints: int
    bytes: int
    asked_ns: int
    approved_ns: int | None
    author: str | None
    policies: list[str] = field(metadata={"examples": [["newest-three v2"]]})
    """Those of which an approval lets these versions delete from then on."""


@dataclass(frozen=True, slots=True)
class Clock(Model):
    """The time to which ages are counted."""

    ages_until_ns: int
    clock_ahead_seconds: float
    """How far the clock is ahead of the time that is known to have passed."""


@dataclass(frozen=True, slots=True)
class RetentionSummary(Model):
    """What policies did last, and what a person is asked."""

    policies: int
    asked: Asked | None
    clock_ahead_seconds: float
    """How far the clock is ahead of the time that is known to have passed."""
    last_action_ns: int | None
    last_result: str | None
    """None: the last action is under way, or there is none."""


def planned(settings: Settings, database: Database, others: Sequence[Current]) -> Planned:
    """Return the plan as it is now. Raises UserError, TryAgain.

    Parameters: others, policies that are not stored.
    """
    return Planning(settings, catalogue_of(settings, database)).plan(others)


def revised(settings: Settings, database: Database, planned: Planned, other: Current) -> Planned:
    """Return a plan with another policy in the place of the one of its name, and all else as it was
    when the plan was made. Only the runs that one of the two policies selects are planned again.
    Raises UserError, TryAgain.

    Parameters: planned, the plan; other, a policy that is not stored.
    """
    return Planning(settings, catalogue_of(settings, database)).revised(planned, other)


def counted_time(database: Database) -> JudgedTime:
    """Return the time to which ages are counted now. Raises TryAgain."""
    with database.reading() as session:
        return _time(session, store.known_time(session))


def _time(session: Session, known: KnownTime | None) -> JudgedTime:
    return trusted_clock.judge(trusted_clock.reading(), known, completions(session))


def said(session: Session) -> tuple[object, ...]:
    """Return what people said that plans depend on. While it is equal, a plan that is some moments
    old has their policies, pins, promotions and approvals."""
    policies = [(one.name, one.version) for one in store.versions(session)]
    approvals = [(one.plan, one.approved_ns) for one in store.approvals(session)]
    return tuple(policies), tuple(approvals), protected(session)


def model(
    settings: Settings,
    planned: Planned,
    run: bytes | None = None,
    *,
    fate: str | None = None,
    most: int | None = None,
) -> Plan:
    """Return what a plan says.

    Args:
        run: the only one whose checkpoints are listed. None: all.
        fate: keep, delete, evict or move: only these are listed. None: all.
        most: of those that are listed. None: all.
    """
    decisions = planned.plan.decisions
    deletions = planned.plan.deletions
    asked = planned.asked
    listed = [one for one in decisions if _is_listed(one, run, fate)]
    first = listed[:most]
    return Plan(
        catalogue_is_made=planned.situation.is_made,
        ages_until_ns=planned.time.now_ns,
        clock_ahead_seconds=round(planned.time.ahead_ns / clock.NS, 1),
        asked=None if asked is None else Asked(asked.plan, len(asked.deletions), asked.size),
        why_asked=None if asked is None else asked.why,
        is_stored=all(one.version for one in planned.policies),
        kept=len(decisions) - len(deletions),
        deleted=len(deletions),
        deleted_bytes=sum(one.checkpoint.size for one in deletions),
        evicted=len(planned.plan.evictions),
        moved=len(planned.plan.transitions),
        unused_policies=[str(one) for one in planned.policies if not _is_used(one, decisions)],
        checkpoints=[decision(settings, one, planned.superseded) for one in first],
        more_checkpoints=len(listed) - len(first),
    )


def _is_listed(one: Decision, run: bytes | None, fate: str | None) -> bool:
    return run in (None, one.checkpoint.run) and (fate is None or _becomes(one, fate))


def _becomes(one: Decision, fate: str) -> bool:
    if fate == "evict":
        return one.evict is not None
    if fate == "move":
        return one.transition is not None
    return str(one.fate) == fate


def _is_used(current: Current, decisions: Sequence[Decision]) -> bool:
    found = (one.checkpoint for one in decisions)
    return any(current.policy.selects(one.run, one.path) for one in found)


def decision(settings: Settings, one: Decision, superseded: frozenset[int]) -> PlannedCheckpoint:
    """Return a decision as people see it. Args: superseded, of its plan."""
    about = one.checkpoint
    return PlannedCheckpoint(
        path=f"{settings.nfs.export}/{text_of(about.path)}",
        run=text_of(about.run),
        step=about.step,
        state=shown_state(about.state, about.storage_class),
        size_bytes=about.size,
        fate=str(one.fate),
        why=one.why,
        policies=list(one.policies),
        evicted_by=one.evict,
        moves_to=None if one.transition is None else one.transition.storage_class,
        moved_by=None if one.transition is None else one.transition.policy,
        storage_class=about.storage_class,
        superseded=about.ino in superseded,
    )


def action(settings: Settings, one: store.Action) -> Action:
    """Return an action as people see it."""
    path = f"{settings.nfs.export}/{text_of(one.path)}"
    return Action(**{**one._asdict(), "run": text_of(one.run), "path": path})


def actions(session: Session, run: bytes | None, before: int, most: int) -> list[store.Action]:
    """Return what was done, the newest first.

    Parameters: run, the only one, or None; before, the id of the action after the first one; most,
    of them.
    """
    given = {} if run is None else {"run": run}
    rows = session.all(ACTIONS if run is None else ACTIONS_OF, before=before, most=most, **given)
    return [store.action_of(row) for row in rows]


def approval(one: store.Approval) -> Approval:
    """Return a plan that is or was asked about, as people see it."""
    return Approval(
        plan=one.plan,
        checkpoints=one.checkpoints,
        bytes=one.size,
        asked_ns=one.asked_ns,
        approved_ns=one.approved_ns,
        author=one.author,
        policies=json.loads(one.policies or "[]"),
    )


def approve(settings: Settings, database: Database, plan: str, author: str) -> store.Approval:
    """Approve a plan that is asked about, and return it. Raises UserError if it is not known,
    TryAgain.

    Parameters: plan, its id; author, the person.
    """
    asked = planned(settings, database, ()).asked
    wanted = asked if asked is not None and asked.plan == plan else plan
    with database.writing() as session:
        if not store.approve(session, wanted, author):
            raise no_plan(plan)
        return next(one for one in store.approvals(session) if one.plan == plan)


def no_plan(plan: str) -> UserError:
    """Return the error of a plan that is not asked about. Args: plan, its id."""
    return UserError(
        f"{shown(plan)}: there is no such plan, or it has changed: look at it again: "
        "spillway policy plan"
    )


def read_clock(database: Database) -> Clock:
    """Return the time to which ages are counted now. Raises TryAgain."""
    time = counted_time(database)
    return Clock(time.now_ns, round(time.ahead_ns / clock.NS, 1))


def confirm_clock(database: Database) -> None:
    """Believe the clock of this machine, which a person says is right. Raises TryAgain."""
    row = KnownTime(*trusted_clock.reading())
    with database.writing() as session:
        store.save_time(session, JudgedTime(row.known_ns, 0, row))


def gather(session: Session) -> RetentionSummary:
    """Return what ``spillway status`` says of retention. Raises TryAgain."""
    policies = store.current(session)
    waiting = [one for one in store.approvals(session) if one.approved_ns is None]
    known = store.known_time(session)
    last = store.actions(session, 1)
    ahead_ns = 0
    if known is not None and policies:
        ahead_ns = _time(session, known).ahead_ns
    asked = waiting[0] if waiting else None
    return RetentionSummary(
        policies=len(policies),
        asked=None if asked is None else Asked(asked.plan, asked.checkpoints, asked.size),
        clock_ahead_seconds=round(ahead_ns / clock.NS, 1),
        last_action_ns=last[0].began_ns if last else None,
        last_result=last[0].result if last else None,
    )
