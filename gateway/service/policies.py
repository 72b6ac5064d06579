"""Service for retention: policies with their versions, plans, approvals, and the log of actions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import select

from gateway.catalogue.display_state import shown_state
from gateway.catalogue.store import catalogue_of
from gateway.common import clock
from gateway.common.clock import KnownTime, TrustedTime
from gateway.common.errors import NotThere, PolicyError, UserError
from gateway.common.models import Model, Nanoseconds
from gateway.common.text import shown, text_of
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.schema import reading
from gateway.lifecycle.promotion.store import protected
from gateway.lifecycle.retention import store
from gateway.lifecycle.retention.facts import Current, Decision
from gateway.lifecycle.retention.planning import Planned, Planning, completions
from gateway.lifecycle.retention.policy import Policy, read
from gateway.lifecycle.retention.store import policy
from gateway.service.paths import names_of

_ACTIONS = select(store.action).where(store.action.c.id < b("before"))
_NEWEST_ACTIONS = store.action.c.id.desc()
ACTIONS = Statement(_ACTIONS.order_by(_NEWEST_ACTIONS).limit(b("most")))
ACTIONS_OF = Statement(
    _ACTIONS.where(store.action.c.run == b("run")).order_by(_NEWEST_ACTIONS).limit(b("most"))
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
class PendingApproval(Model):
    """Deletions that a person must approve first."""

    plan: str
    """To be approved: POST /retention/approvals."""
    checkpoints: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RetentionPlan(Model):
    """What becomes of all checkpoints. Nothing is done by reading it."""

    catalogue_is_made: bool
    """While it is false nothing is deleted."""
    ages_until_ns: Nanoseconds
    clock_ahead_seconds: float
    """How much of the clock's time is not believed."""
    asked: PendingApproval | None
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
    began_ns: Nanoseconds
    finished_ns: Nanoseconds | None
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
    asked_ns: Nanoseconds
    approved_ns: Nanoseconds | None
    author: str | None
    policies: list[str] = field(metadata={"examples": [["newest-three v2"]]})
    """Those of which an approval lets these versions delete from then on."""


@dataclass(frozen=True, slots=True)
class Clock(Model):
    """The time to which ages are counted."""

    ages_until_ns: Nanoseconds
    clock_ahead_seconds: float
    """How far the clock is ahead of the time that is known to have passed."""


@dataclass(frozen=True, slots=True)
class RetentionSummary(Model):
    """What policies did last, and what a person is asked."""

    policies: int
    asked: PendingApproval | None
    clock_ahead_seconds: float
    """How far the clock is ahead of the time that is known to have passed."""
    last_action_ns: Nanoseconds | None
    last_result: str | None
    """None: the last action is under way, or there is none."""


def planned(settings: Settings, database: Database, others: Sequence[Current]) -> Planned:
    """Return the plan as it is now. Raises UserError, TryAgain.

    Args:
        others: policies that are not stored.
    """
    return Planning(settings, catalogue_of(settings, database)).plan(others)


def revised(settings: Settings, database: Database, planned: Planned, other: Current) -> Planned:
    """Return a plan with another policy in the place of the one of its name, and all else as it was
    when the plan was made. Only the runs that one of the two policies selects are planned again.
    Raises UserError, TryAgain.

    Args:
        planned: the plan.
        other: a policy that is not stored.
    """
    return Planning(settings, catalogue_of(settings, database)).revised(planned, other)


def counted_time(database: Database) -> TrustedTime:
    """Return the time to which ages are counted now. Raises TryAgain."""
    with database.reading() as session:
        return _time(session, store.known_time(session))


def _time(session: Session, known: KnownTime | None) -> TrustedTime:
    return clock.trusted_time(clock.reading(), known, completions(session))


def plan_inputs(session: Session) -> tuple[object, ...]:
    """Return what people said that plans depend on. While it is equal, a plan that is some moments
    old has their policies, pins, promotions and approvals."""
    policies = [(version.name, version.version) for version in store.versions(session)]
    approvals = [(row.plan, row.approved_ns) for row in store.approvals(session)]
    return tuple(policies), tuple(approvals), protected(session)


def action_model(
    settings: Settings,
    planned: Planned,
    run: bytes | None = None,
    *,
    fate: str | None = None,
    most: int | None = None,
) -> RetentionPlan:
    """Return what a plan says.

    Args:
        run: the only one whose checkpoints are listed. None: all.
        fate: keep, delete, evict or move: only these are listed. None: all.
        most: of those that are listed. None: all.
    """
    decisions = planned.plan.decisions
    deletions = planned.plan.deletions
    asked = planned.asked
    listed = [
        planned_decision
        for planned_decision in decisions
        if _is_listed(planned_decision, run, fate)
    ]
    first = listed[:most]
    return RetentionPlan(
        catalogue_is_made=planned.situation.is_made,
        ages_until_ns=planned.time.now_ns,
        clock_ahead_seconds=round(planned.time.ahead_ns / clock.NS, 1),
        asked=None
        if asked is None
        else PendingApproval(asked.plan, len(asked.deletions), asked.size),
        why_asked=None if asked is None else asked.why,
        is_stored=all(versioned_policy.version for versioned_policy in planned.policies),
        kept=len(decisions) - len(deletions),
        deleted=len(deletions),
        deleted_bytes=sum(deletion.checkpoint.size for deletion in deletions),
        evicted=len(planned.plan.evictions),
        moved=len(planned.plan.transitions),
        unused_policies=[
            str(versioned_policy)
            for versioned_policy in planned.policies
            if not _is_used(versioned_policy, decisions)
        ],
        checkpoints=[
            decision(settings, planned_decision, planned.superseded) for planned_decision in first
        ],
        more_checkpoints=len(listed) - len(first),
    )


def _is_listed(planned_decision: Decision, run: bytes | None, fate: str | None) -> bool:
    return run in (None, planned_decision.checkpoint.run) and (
        fate is None or _becomes(planned_decision, fate)
    )


def _becomes(planned_decision: Decision, fate: str) -> bool:
    if fate == "evict":
        return planned_decision.evict is not None
    if fate == "move":
        return planned_decision.transition is not None
    return str(planned_decision.fate) == fate


def _is_used(current: Current, decisions: Sequence[Decision]) -> bool:
    checkpoints = (planned_decision.checkpoint for planned_decision in decisions)
    return any(
        current.policy.selects(planned_decision.run, planned_decision.path)
        for planned_decision in checkpoints
    )


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


def action(settings: Settings, one: store.ActionRow) -> Action:
    """Return an action as people see it."""
    path = f"{settings.nfs.export}/{text_of(one.path)}"
    return Action(**{**one._asdict(), "run": text_of(one.run), "path": path})


def actions(session: Session, run: bytes | None, before: int, most: int) -> list[store.ActionRow]:
    """Return what was done, the newest first.

    Args:
        run: the only one, or None.
        before: the id of the action after the first one.
        most: most of them.
    """
    given = {} if run is None else {"run": run}
    rows = session.all(ACTIONS if run is None else ACTIONS_OF, before=before, most=most, **given)
    return [store.action_of(row) for row in rows]


def approval(one: store.ApprovalRow) -> Approval:
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


def approve(settings: Settings, database: Database, plan: str, author: str) -> store.ApprovalRow:
    """Approve a plan that is asked about, and return it. Raises UserError if it is not known,
    TryAgain.

    Args:
        plan: its id.
        author: the person.
    """
    asked = planned(settings, database, ()).asked
    wanted = asked if asked is not None and asked.plan == plan else plan
    with database.writing() as session:
        if not store.approve(session, wanted, author):
            raise no_plan(plan)
        return next(row for row in store.approvals(session) if row.plan == plan)


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
    row = KnownTime(*clock.reading())
    with database.writing() as session:
        store.save_time(session, TrustedTime(row.known_ns, 0, row))


def gather(session: Session) -> RetentionSummary:
    """Return what ``spillway status`` says of retention. Raises TryAgain."""
    policies = store.current(session)
    waiting = [row for row in store.approvals(session) if row.approved_ns is None]
    known = store.known_time(session)
    last = store.actions(session, 1)
    ahead_ns = 0
    if known is not None and policies:
        ahead_ns = _time(session, known).ahead_ns
    asked = waiting[0] if waiting else None
    return RetentionSummary(
        policies=len(policies),
        asked=None if asked is None else PendingApproval(asked.plan, asked.checkpoints, asked.size),
        clock_ahead_seconds=round(ahead_ns / clock.NS, 1),
        last_action_ns=last[0].began_ns if last else None,
        last_result=last[0].result if last else None,
    )


_NEWEST = (1 << 63) - 1

VERSIONS = Statement(
    select(policy)
    .where(policy.c.name == b("name"), policy.c.version > b("after"))
    .order_by(policy.c.version)
    .limit(b("most"))
)


@dataclass(frozen=True, slots=True)
class PolicyVersion(Model):
    """A version of a policy. Its number is the ETag."""

    name: str = field(metadata={"examples": ["newest-three"]})
    version: int
    document: dict[str, Any] | None = field(
        metadata={"examples": [{"name": "newest-three", "run": "jobs/llama*", "keep_newest": 3}]}
    )
    """The policy as it was written. null: it was removed."""
    enabled: bool
    """Whether it keeps and deletes anything."""
    created_ns: Nanoseconds
    author: str


@dataclass(frozen=True, slots=True)
class StoredVersion(PolicyVersion):
    """A policy as it is after an order."""

    changed: bool
    """Whether the order made a new version."""


@dataclass(frozen=True, slots=True)
class PolicyValidity(Model):
    """Whether policies could be stored."""

    valid: bool
    error: str | None = field(
        metadata={"examples": ["policy newest: keep_newest = 0: must be between 1 and 1000000"]}
    )
    """Policy, key and remedy."""


class Policies(Protocol):
    """The policies of retention, and what they do.

    Methods that take a name raise NotThere. A run is a path or name of the command line.
    """

    def every(self) -> Iterable[PolicyVersion]:
        """Return the policies that are in force, also those that are disabled, by name."""

    def history(self) -> Iterable[PolicyVersion]:
        """Return all versions of all policies, by name."""

    def versions(self, name: str) -> Sequence[PolicyVersion]:
        """Return the versions of a policy, the oldest first, also of one that was removed."""

    def set(self, given: Sequence[Policy]) -> list[StoredVersion]:
        """Store policies."""

    def remove(self, name: str) -> StoredVersion:
        """Remove a policy. Its versions stay in the history."""

    def switch(self, name: str, *, is_enabled: bool) -> StoredVersion:
        """Have a policy keep and delete, or do neither."""

    def plan(self, others: Sequence[Policy], run: str | None, fate: str | None) -> RetentionPlan:
        """Return what becomes of each checkpoint.

        Args:
            others: policies in place of the stored ones of their names.
            run: the only one whose checkpoints are listed. None: all.
            fate: keep, delete, evict or move: only these are listed. None: all.
        """

    def approve(self, plan: str) -> Approval:
        """Approve the deletions that a plan asks about. Args: plan, its id."""

    def approvals(self) -> list[Approval]:
        """Return the plans that are or were asked about, the newest first."""

    def log(self, run: str | None, most: int) -> list[Action]:
        """Return what was done, the newest first. Args: run, the only one, or None; most, of
        the actions."""

    def clock(self) -> Clock:
        """Return the time to which ages are counted."""

    def confirm_clock(self) -> Clock:
        """Believe the clock of the gateway's machine, which a person says is right."""

    def validate(self, document: Mapping[str, Any]) -> PolicyValidity:
        """Return whether the policies of a document could be stored."""


class LocalPolicies:
    """The policies of this machine's gateway (``Policies``).

    Args:
        author: of changes, for the record.
    """

    def __init__(self, settings: Settings, database: Database, author: str) -> None:
        self._settings = settings
        self._database = database
        self._author = author

    def every(self) -> list[PolicyVersion]:
        with reading(self._database) as session:
            policy_rows = store.versions(session)
        return [model(policy_row) for policy_row in policy_rows if policy_row.document is not None]

    def history(self) -> list[PolicyVersion]:
        with reading(self._database) as session:
            return [model(version) for version in store.history(session)]

    def versions(self, name: str) -> list[PolicyVersion]:
        policy_versions = [version for version in self.history() if version.name == name]
        if not policy_versions:
            raise NotThere(missing(name))
        return policy_versions

    def set(self, given: Sequence[Policy]) -> list[StoredVersion]:
        with self._database.writing() as session:
            return [
                stored(session, new_policy.name, store.put(session, new_policy, self._author))
                for new_policy in given
            ]

    def remove(self, name: str) -> StoredVersion:
        with self._database.writing() as session, _found(name):
            return stored(session, name, store.remove(session, name, self._author))

    def switch(self, name: str, *, is_enabled: bool) -> StoredVersion:
        with self._database.writing() as session, _found(name):
            made = store.switch(session, name, is_enabled, self._author)
            return stored(session, name, made)

    def plan(self, others: Sequence[Policy], run: str | None, fate: str | None) -> RetentionPlan:
        current = [Current(new_policy, 0) for new_policy in others]
        made = planned(self._settings, self._database, current)
        return action_model(self._settings, made, self._run(run), fate=fate)

    def approve(self, plan: str) -> Approval:
        made = approve(self._settings, self._database, plan, self._author)
        return approval(made)

    def approvals(self) -> list[Approval]:
        with reading(self._database) as session:
            return [approval(row) for row in store.approvals(session)]

    def log(self, run: str | None, most: int) -> list[Action]:
        with reading(self._database) as session:
            rows = actions(session, self._run(run), _NEWEST, most)
        return [action(self._settings, row) for row in rows]

    def clock(self) -> Clock:
        return read_clock(self._database)

    def confirm_clock(self) -> Clock:
        confirm_clock(self._database)
        return self.clock()

    def validate(self, document: Mapping[str, Any]) -> PolicyValidity:
        return validity(document)

    def _run(self, run: str | None) -> bytes | None:
        return None if run is None else b"/".join(names_of(self._settings.nfs.export, run))


def validity(document: Mapping[str, Any]) -> PolicyValidity:
    """Return whether the policies of a document could be stored, and if not, why."""
    try:
        read(document)
    except PolicyError as exc:
        return PolicyValidity(valid=False, error=shown(str(exc)))
    return PolicyValidity(valid=True, error=None)


def model(one: store.PolicyRow) -> PolicyVersion:
    """Return a version of a policy as people see it."""
    return PolicyVersion(**_values(one))


def stored(session: Session, name: str, made: store.PolicyRow | None) -> StoredVersion:
    """Return a policy after an order.

    Args:
        made: its new version, or None if it is unchanged.
    """
    now = made or current(session, name)
    assert now is not None
    return StoredVersion(**_values(now), changed=made is not None)


def _values(version: store.PolicyRow) -> dict[str, Any]:
    document = None if version.document is None else json.loads(version.document)
    return {**version._asdict(), "enabled": bool(version.enabled), "document": document}


def current(session: Session, name: str) -> store.PolicyRow | None:
    """Return the version of a policy that is in force, or None if there is no such policy."""
    policy_rows = [version for version in store.versions(session) if version.name == name]
    return policy_rows[0] if policy_rows and policy_rows[0].document is not None else None


def versions(session: Session, name: str, after: int, most: int) -> list[store.PolicyRow]:
    """Return the versions of a policy, also of one that was removed, in their order.

    Args:
        after: the version before the first one.
        most: most of them.
    """
    rows = session.all(VERSIONS, name=name, after=after, most=most)
    return [store.PolicyRow(*row) for row in rows]


def missing(name: str) -> str:
    """Return what a person must know who named a policy that there is not."""
    return f"there is no policy {shown(name)}: spillway policy list shows those that there are"


@contextmanager
def _found(name: str) -> Iterator[None]:
    """Have what the store says of a policy that there is not raise NotThere."""
    try:
        yield
    except KeyError:
        raise NotThere(missing(name)) from None
