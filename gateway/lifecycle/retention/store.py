"""Rows of retention and their SQL: policies, actions, approvals and the known time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from sqlalchemy import and_, bindparam, delete, func, insert, literal_column, select, update

from gateway.common import clock
from gateway.common.clock import KnownTime, TrustedTime
from gateway.db import checkpoint_models as models
from gateway.db import journal
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import (
    catalogue,
    checkpoint,
    checkpoint_record,
    dirent,
    inode,
    object_,
    superseded,
)
from gateway.lifecycle.retention import policy as policies
from gateway.lifecycle.retention.approval import AskedDeletions, Consent
from gateway.lifecycle.retention.facts import Current, PlanCheckpoint
from gateway.lifecycle.retention.policy import AUTOMATIC, FIRST, Policy

policy: Any = models.PolicyTable.__table__
action: Any = models.ActionTable.__table__
approval: Any = models.ApprovalTable.__table__
policy_approval: Any = models.PolicyApprovalTable.__table__
known_time_table: Any = models.KnownTimeTable.__table__

_COLUMNS = {
    **{column.name: column for column in checkpoint.c},
    "completion": checkpoint_record.c.completion,
    "recorded_ns": checkpoint_record.c.complete_ns,
}
_CHECKPOINTS = select(*(_COLUMNS[name] for name in PlanCheckpoint._fields)).select_from(
    checkpoint.outerjoin(checkpoint_record, checkpoint_record.c.ino == checkpoint.c.ino)
)
CHECKPOINTS = Statement(_CHECKPOINTS)
OF_RUN = Statement(_CHECKPOINTS.where(checkpoint.c.run == b("run")))
"""Selects the checkpoints of a run, as ``CHECKPOINTS`` does."""
OF_INO = Statement(_CHECKPOINTS.where(checkpoint.c.ino == b("ino")))
RECORD = Statement(
    select(checkpoint_record.c.completion).where(checkpoint_record.c.ino == b("ino"))
)
"""Selects the place of a checkpoint in its run, also if it is in the trash."""
TIMES = Statement(
    select(
        func.min(checkpoint.c.complete_ns),
        func.max(checkpoint.c.complete_ns),
        func.max(checkpoint.c.durable_ns),
    ).where(checkpoint.c.complete_ns >= b("first_ns"))
)
"""Selects the first and the last completion, and when the last one became durable. The parameter is
first_ns, before which no clock was set."""
_OBJECT = (object_.c.key, object_.c.size, object_.c.etag)
_is_present = and_(
    object_.c.ino == inode.c.ino, object_.c.content_version == inode.c.content_version
)
OBJECTS = Statement(
    select(dirent.c.name, inode.c.kind, inode.c.ino, *_OBJECT)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino).outerjoin(object_, _is_present))
    .where(dirent.c.parent == b("parent"), dirent.c.name > b("after"))
    .order_by(dirent.c.name)
    .limit(b("most"))
)
"""Selects what is in a directory, with the objects of the present versions."""
OBJECT = Statement(
    select(*_OBJECT).select_from(inode.join(object_, _is_present)).where(inode.c.ino == b("ino"))
)
IS_MADE = Statement(select(catalogue.c.id))

_newest = (
    select(policy.c.name, func.max(policy.c.version).label("version"))
    .group_by(policy.c.name)
    .subquery("newest")
)
POLICIES = Statement(
    select(policy)
    .select_from(
        policy.join(
            _newest,
            (policy.c.name == _newest.c.name) & (policy.c.version == _newest.c.version),
        )
    )
    .order_by(policy.c.name)
)
"""Selects the version of each policy that is in force."""
HISTORY = Statement(select(policy).order_by(policy.c.name, policy.c.version))
POLICY_INSERT = Statement(insert(policy))

_ADDED = [column.name for column in action.c if column.name != "id"]
ACTION_INSERT = Statement(
    insert(action)
    .from_select(_ADDED, select(*(bindparam(name, type_=action.c[name].type) for name in _ADDED)))
    .returning(action.c.id)
)
ACTION_END = Statement(
    update(action)
    .where(action.c.id == b("the_id"), action.c.finished_ns.is_(None))
    .values(finished_ns=b("at_ns"), result=b("the_result"))
)
UNFINISHED = Statement(select(action).where(action.c.finished_ns.is_(None)))
ACTIONS = Statement(
    select(action).order_by(action.c.began_ns.desc(), action.c.id.desc()).limit(b("most"))
)

ACTIONS_FORGET = Statement(
    delete(action).where(action.c.finished_ns.is_not(None), action.c.began_ns < b("before_ns"))
)

SUPERSEDED = Statement(select(superseded.c.ino))
SUPERSEDED_INSERT = Statement(insert(superseded))
SUPERSEDED_DELETE = Statement(delete(superseded).where(superseded.c.ino == b("the_ino")))

APPROVALS = Statement(select(approval).order_by(approval.c.asked_ns.desc()))
APPROVAL_INSERT = Statement(insert(approval))
APPROVAL_DELETE = Statement(delete(approval).where(approval.c.plan == b("plan")))
APPROVED_VERSIONS = Statement(select(policy_approval.c.name, policy_approval.c.version))
_APPROVALS_FORGET = (Statement(delete(approval)), Statement(delete(policy_approval)))
APPROVED_VERSION_INSERT = Statement(insert(policy_approval))

KNOWN_TIME = Statement(
    select(
        known_time_table.c.known_ns, known_time_table.c.boot, known_time_table.c.uptime_ns
    ).where(known_time_table.c.id == literal_column("1"))
)
KNOWN_TIME_DELETE = Statement(delete(known_time_table))
KNOWN_TIME_INSERT = Statement(insert(known_time_table))


ASKED_KEPT = 8
"""The newest plans that are asked about are kept: a person approves the one that was shown."""


ACTIONS_KEPT_NS = 90 * policies.DAY_NS
"""Actions that ended are kept for so long. The known time counts, so a clock that jumps forgets
none."""


class PolicyRow(NamedTuple):
    """A row of ``policy``."""

    name: str
    version: int
    document: str | None
    enabled: int
    created_ns: int
    author: str


class ActionRow(NamedTuple):
    """A row of ``action``."""

    id: int
    began_ns: int
    finished_ns: int | None
    what: str
    author: str
    run: bytes
    step: int | None
    path: bytes
    ino: int
    evidence: str
    reason: str
    result: str | None


class ActionSubject(Protocol):
    """A checkpoint to which something is done, in the catalogue or in the trash."""

    @property
    def ino(self) -> int: ...
    @property
    def path(self) -> bytes: ...
    @property
    def run(self) -> bytes: ...
    @property
    def step(self) -> int | None: ...


class ApprovalRow(NamedTuple):
    """A row of ``approval``."""

    plan: str
    deletions: str
    checkpoints: int
    size: int
    asked_ns: int
    approved_ns: int | None
    author: str | None
    policies: str | None = None

    @property
    def tokens(self) -> frozenset[str]:
        return frozenset(json.loads(self.deletions))


def versions(session: Session) -> list[PolicyRow]:
    """Return all policies as they are in force, also those that are disabled or were removed."""
    return [PolicyRow(*row) for row in session.all(POLICIES)]


def history(session: Session) -> list[PolicyRow]:
    """Return all versions of all policies, by name and version."""
    return [PolicyRow(*row) for row in session.all(HISTORY)]


def current(session: Session) -> list[Current]:
    """Return the policies that are enabled, by name. Raises PolicyError."""
    return [
        Current(read(version), version.version)
        for version in versions(session)
        if version.document is not None and version.enabled
    ]


def read(version: PolicyRow) -> Policy:
    """Return what a version says. Raises PolicyError if another program wrote it."""
    return policies.of(json.loads(version.document or "null"))


def put(session: Session, policy: Policy, author: str) -> PolicyRow | None:
    """Store a policy, inside a write transaction. Returns its new version, which is enabled unless
    the one before was disabled, or None if nothing is new."""
    document = json.dumps(dict(policy.document), sort_keys=True)
    before = {version.name: version for version in versions(session)}.get(policy.name)
    if before is not None and before.document == document:
        return None
    enabled = 1 if before is None or before.document is None else before.enabled
    return _add(session, before, policy.name, document, enabled, author)


def switch(session: Session, name: str, is_enabled: bool, author: str) -> PolicyRow | None:
    """Enable or disable a policy, inside a write transaction. Returns its new version, or None if
    nothing is new. Raises KeyError if there is none."""
    before = _found(session, name)
    if bool(before.enabled) == is_enabled:
        return None
    return _add(session, before, name, before.document, int(is_enabled), author)


def remove(session: Session, name: str, author: str) -> PolicyRow:
    """Remove a policy, inside a write transaction. Returns the version that says so. Raises
    KeyError if there is none."""
    return _add(session, _found(session, name), name, None, 0, author)


def ask_again(session: Session, author: str) -> None:
    """Have all policies delete nothing before a person has approved it, inside a write transaction.

    A policy that need not ask (``approve = "automatic"``) gets a version that asks once.
    """
    for statement in _APPROVALS_FORGET:
        session.run(statement)
    for version in versions(session):
        if version.document is None:
            continue
        document = json.loads(version.document)
        if document.get("approve") == AUTOMATIC:
            document["approve"] = FIRST
            put(session, read(version._replace(document=json.dumps(document))), author)


def _found(session: Session, name: str) -> PolicyRow:
    for version in versions(session):
        if version.name == name and version.document is not None:
            return version
    raise KeyError(name)


def _add(
    session: Session,
    before: PolicyRow | None,
    name: str,
    document: str | None,
    enabled: int,
    author: str,
) -> PolicyRow:
    number = 1 if before is None else before.version + 1
    version = PolicyRow(name, number, document, enabled, clock.now_ns(), author)
    session.run(POLICY_INSERT, **version._asdict())
    return version


def superseded_inodes(session: Session) -> frozenset[int]:
    """Return the checkpoints whose files are held."""
    return frozenset(ino for (ino,) in session.all(SUPERSEDED))


def supersede(session: Session, inos: frozenset[int]) -> None:
    """Hold the files of these checkpoints and of no others, inside a write transaction."""
    before = superseded_inodes(session)
    for ino in before - inos:
        session.run(SUPERSEDED_DELETE, the_ino=ino)
    for ino in inos - before:
        session.run(SUPERSEDED_INSERT, ino=ino, since_ns=clock.now_ns())
    # The drain looks again at what it left alone.
    journal.note(session, dict.fromkeys(before ^ inos, journal.CHANGED | journal.BELOW))


def begin(
    session: Session, what: str, found: ActionSubject, author: str, reason: str, evidence: str = ""
) -> int:
    """Record that an action begins, inside a write transaction. Returns its id.

    Empty: it is in the trash.

    Args:
        evidence: evidence of the row of the catalogue.
    """
    row = session.one(
        ACTION_INSERT,
        began_ns=clock.now_ns(),
        finished_ns=None,
        what=what,
        author=author,
        run=found.run,
        step=found.step,
        path=found.path,
        ino=found.ino,
        evidence=evidence,
        reason=reason,
        result=None,
    )
    assert row is not None
    return int(row[0])


def end(session: Session, action: int, result: str) -> None:
    """Record how an action ended, inside a write transaction."""
    session.run(ACTION_END, the_id=action, at_ns=clock.now_ns(), the_result=result)


def unfinished(session: Session) -> list[ActionRow]:
    """Return the actions without an end: of a process that was killed."""
    return [action_of(row) for row in session.all(UNFINISHED)]


def actions(session: Session, most: int) -> list[ActionRow]:
    """Return the last actions, the newest first."""
    return [action_of(row) for row in session.all(ACTIONS, most=most)]


def action_of(row: Sequence[Any]) -> ActionRow:
    """Return a row of ``action``."""
    made = ActionRow(*row)
    return made._replace(run=bytes(made.run), path=bytes(made.path))


def approvals(session: Session) -> list[ApprovalRow]:
    """Return the plans that are or were asked about, the newest first."""
    return [ApprovalRow(*row) for row in session.all(APPROVALS)]


def consent(session: Session, policies: Sequence[Current]) -> Consent:
    """Return what needs no approval any more.

    Args:
        policies: that are in force or tried.
    """
    approved_tokens = [row.tokens for row in approvals(session) if row.approved_ns is not None]
    automatic = {
        str(versioned_policy)
        for versioned_policy in policies
        if versioned_policy.policy.approve == AUTOMATIC
    }
    versions = frozenset(f"{name} v{number}" for name, number in approved_versions(session))
    return Consent(frozenset().union(*approved_tokens), versions | automatic)


def approved_versions(session: Session) -> set[tuple[str, int]]:
    """Return the versions of policies of which a person has once approved deletions."""
    return {(name, version) for name, version in session.all(APPROVED_VERSIONS)}


def ask(session: Session, asked: AskedDeletions | None, wanted: frozenset[str]) -> None:
    """Record which plan is asked about, inside a write transaction.

    An approval of none of them is deleted: what left the plan once must be approved again.

    Args:
        wanted: the tokens of the plan as a whole.
    """
    known = approvals(session)
    waiting = [row for row in known if row.approved_ns is None]
    kept = [] if asked is None else waiting[: ASKED_KEPT - 1]
    kept += [row for row in known if row.approved_ns is not None and row.tokens & wanted]
    for row in known:
        if row not in kept:
            session.run(APPROVAL_DELETE, plan=row.plan)
    if asked is not None:
        _put_approval(session, asked, None)


def approve(session: Session, asked: AskedDeletions | str, author: str) -> bool:
    """Approve a plan, and the versions of the policies in it, inside a write transaction.

    Returns False if that is not known.

    Args:
        asked: asked, or its id if it was recorded.
    """
    if isinstance(asked, AskedDeletions):
        _put_approval(session, asked, author)
        _approve_versions(session, asked.policies, author)
        return True
    for approval_row in approvals(session):
        if approval_row.plan == asked:
            session.run(APPROVAL_DELETE, plan=approval_row.plan)
            row = approval_row._replace(approved_ns=clock.now_ns(), author=author)
            session.run(APPROVAL_INSERT, **row._asdict())
            _approve_versions(session, json.loads(approval_row.policies or "[]"), author)
            return True
    return False


def _approve_versions(session: Session, names: Sequence[str], author: str) -> None:
    """Record that a person approved deletions.

    Args:
        names: as ``Current`` has them.
    """
    known = approved_versions(session)
    for name, space, number in (name.partition(" v") for name in names):
        if space and (name, int(number)) not in known:
            row = {"name": name, "version": int(number), "approved_ns": clock.now_ns()}
            session.run(APPROVED_VERSION_INSERT, **row, author=author)


def _put_approval(session: Session, asked: AskedDeletions, author: str | None) -> None:
    now_ns = clock.now_ns()
    tokens = json.dumps([deletion.token for deletion in asked.deletions])
    row = ApprovalRow(
        asked.plan,
        tokens,
        len(asked.deletions),
        asked.size,
        now_ns,
        None if author is None else now_ns,
        author,
        json.dumps(list(asked.policies)),
    )
    session.run(APPROVAL_DELETE, plan=asked.plan)
    session.run(APPROVAL_INSERT, **row._asdict())


def known_time(session: Session) -> KnownTime | None:
    """Return the row of the known time, of the gateway's database or of the admin API's."""
    row = session.one(KNOWN_TIME)
    return None if row is None else KnownTime(*row)


def put_known_time(session: Session, row: KnownTime) -> None:
    """Store the known time, inside a write transaction of one of the two databases."""
    session.run(KNOWN_TIME_DELETE)
    session.run(KNOWN_TIME_INSERT, id=1, **row._asdict())


def save_time(session: Session, found: TrustedTime) -> None:
    """Store the known time, inside a write transaction, and forget actions that are older than
    ACTIONS_KEPT_NS by it."""
    session.run(ACTIONS_FORGET, before_ns=found.now_ns - ACTIONS_KEPT_NS)
    put_known_time(session, found.row)
