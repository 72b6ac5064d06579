"""Keeps the rows of retention: policies, actions, approvals and the known time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from gateway import clock
from gateway.db import journal
from gateway.db.compiled import Session
from gateway.retention import policy as policies
from gateway.retention import statements as own
from gateway.retention.facts import Current
from gateway.retention.policy import AUTOMATIC, Policy
from gateway.retention.share import Asked, Consent
from gateway.trusted_clock import JudgedTime, KnownTime

ASKED_KEPT = 8
"""The newest plans that are asked about are kept: a person approves the one that was shown."""


ACTIONS_KEPT_NS = 90 * policies.DAY_NS
"""Actions that ended are kept for so long. The known time counts, so a clock that jumps forgets
none."""


class Version(NamedTuple):
    """A row of ``policy``."""

    name: str
    version: int
    document: str | None
    enabled: int
    created_ns: int
    author: str


class Action(NamedTuple):
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


class Subject(Protocol):
    """A checkpoint to which something is done, in the catalogue or in the trash."""

    @property
    def ino(self) -> int: ...
    @property
    def path(self) -> bytes: ...
    @property
    def run(self) -> bytes: ...
    @property
    def step(self) -> int | None: ...


class Approval(NamedTuple):
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


def versions(session: Session) -> list[Version]:
    """Return all policies as they are in force, also those that are disabled or were removed."""
    return [Version(*row) for row in session.all(own.POLICIES)]


def history(session: Session) -> list[Version]:
    """Return all versions of all policies, by name and version."""
    return [Version(*row) for row in session.all(own.HISTORY)]


def current(session: Session) -> list[Current]:
    """Return the policies that are enabled, by name. Raises PolicyError."""
    return [
        Current(read(version), version.version)
        for version in versions(session)
        if version.document is not None and version.enabled
    ]


def read(version: Version) -> Policy:
    """Return what a version says. Raises PolicyError if another program wrote it."""
    return policies.of(json.loads(version.document or "null"))


def put(session: Session, policy: Policy, author: str) -> Version | None:
    """Store a policy, inside a write transaction. Returns its new version, which is enabled unless
    the one before was disabled, or None if nothing is new."""
    document = json.dumps(dict(policy.document), sort_keys=True)
    before = {version.name: version for version in versions(session)}.get(policy.name)
    if before is not None and before.document == document:
        return None
    enabled = 1 if before is None or before.document is None else before.enabled
    return _add(session, before, policy.name, document, enabled, author)


def switch(session: Session, name: str, is_enabled: bool, author: str) -> Version | None:
    """Enable or disable a policy, inside a write transaction. Returns its new version, or None if
    nothing is new. Raises KeyError if there is none."""
    before = _found(session, name)
    if bool(before.enabled) == is_enabled:
        return None
    return _add(session, before, name, before.document, int(is_enabled), author)


def remove(session: Session, name: str, author: str) -> Version:
    """Remove a policy, inside a write transaction. Returns the version that says so. Raises
    KeyError if there is none."""
    return _add(session, _found(session, name), name, None, 0, author)


def _found(session: Session, name: str) -> Version:
    for version in versions(session):
        if version.name == name and version.document is not None:
            return version
    raise KeyError(name)


def _add(
    session: Session,
    before: Version | None,
    name: str,
    document: str | None,
    enabled: int,
    author: str,
) -> Version:
    number = 1 if before is None else before.version + 1
    version = Version(name, number, document, enabled, clock.now_ns(), author)
    session.run(own.POLICY_INSERT, **version._asdict())
    return version


def superseded(session: Session) -> frozenset[int]:
    """Return the checkpoints whose files are held."""
    return frozenset(ino for (ino,) in session.all(own.SUPERSEDED))


def supersede(session: Session, inos: frozenset[int]) -> None:
    """Hold the files of these checkpoints and of no others, inside a write transaction."""
    before = superseded(session)
    for ino in before - inos:
        session.run(own.SUPERSEDED_DELETE, the_ino=ino)
    for ino in inos - before:
        session.run(own.SUPERSEDED_INSERT, ino=ino, since_ns=clock.now_ns())
    # The drain looks again at what it left alone.
    journal.note(session, dict.fromkeys(before ^ inos, journal.CHANGED | journal.BELOW))


def begin(
    session: Session, what: str, found: Subject, author: str, reason: str, evidence: str = ""
) -> int:
    """Record that an action begins, inside a write transaction. Returns its id.

    Parameters: evidence, of the row of the catalogue. Empty: it is in the trash.
    """
    row = session.one(
        own.ACTION_INSERT,
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
    session.run(own.ACTION_END, the_id=action, at_ns=clock.now_ns(), the_result=result)


def unfinished(session: Session) -> list[Action]:
    """Return the actions without an end: of a process that was killed."""
    return [action_of(row) for row in session.all(own.UNFINISHED)]


def actions(session: Session, most: int) -> list[Action]:
    """Return the last actions, the newest first."""
    return [action_of(row) for row in session.all(own.ACTIONS, most=most)]


def action_of(row: Sequence[Any]) -> Action:
    """Return a row of ``action``."""
    made = Action(*row)
    return made._replace(run=bytes(made.run), path=bytes(made.path))


def approvals(session: Session) -> list[Approval]:
    """Return the plans that are or were asked about, the newest first."""
    return [Approval(*row) for row in session.all(own.APPROVALS)]


def consent(session: Session, policies: Sequence[Current]) -> Consent:
    """Return what needs no approval any more.

    Parameters: policies that are in force or tried.
    """
    found = [one.tokens for one in approvals(session) if one.approved_ns is not None]
    automatic = {str(one) for one in policies if one.policy.approve == AUTOMATIC}
    versions = frozenset(f"{name} v{number}" for name, number in approved_versions(session))
    return Consent(frozenset().union(*found), versions | automatic)


def approved_versions(session: Session) -> set[tuple[str, int]]:
    """Return the versions of policies of which a person has once approved deletions."""
    return {(name, version) for name, version in session.all(own.APPROVED_VERSIONS)}


def ask(session: Session, asked: Asked | None, wanted: frozenset[str]) -> None:
    """Record which plan is asked about, inside a write transaction.

    Parameters: wanted, the tokens of the plan as a whole. An approval of none of them is deleted:
    what left the plan once must be approved again.
    """
    known = approvals(session)
    waiting = [one for one in known if one.approved_ns is None]
    kept = [] if asked is None else waiting[: ASKED_KEPT - 1]
    kept += [one for one in known if one.approved_ns is not None and one.tokens & wanted]
    for one in known:
        if one not in kept:
            session.run(own.APPROVAL_DELETE, plan=one.plan)
    if asked is not None:
        _put_approval(session, asked, None)


def approve(session: Session, asked: Asked | str, author: str) -> bool:
    """Approve a plan, and the versions of the policies in it, inside a write transaction.

    Parameters: asked, or its id if it was recorded. Returns False if that is not known.
    """
    if isinstance(asked, Asked):
        _put_approval(session, asked, author)
        _approve_versions(session, asked.policies, author)
        return True
    for one in approvals(session):
        if one.plan == asked:
            session.run(own.APPROVAL_DELETE, plan=one.plan)
            row = one._replace(approved_ns=clock.now_ns(), author=author)
            session.run(own.APPROVAL_INSERT, **row._asdict())
            _approve_versions(session, json.loads(one.policies or "[]"), author)
            return True
    return False


def _approve_versions(session: Session, names: Sequence[str], author: str) -> None:
    """Record that a person approved deletions. Parameters: names, as ``Current`` has them."""
    known = approved_versions(session)
    for name, space, number in (one.partition(" v") for one in names):
        if space and (name, int(number)) not in known:
            row = {"name": name, "version": int(number), "approved_ns": clock.now_ns()}
            session.run(own.APPROVED_VERSION_INSERT, **row, author=author)


def _put_approval(session: Session, asked: Asked, author: str | None) -> None:
    now_ns = clock.now_ns()
    tokens = json.dumps([one.token for one in asked.deletions])
    row = Approval(
        asked.plan,
        tokens,
        len(asked.deletions),
        asked.size,
        now_ns,
        None if author is None else now_ns,
        author,
        json.dumps(list(asked.policies)),
    )
    session.run(own.APPROVAL_DELETE, plan=asked.plan)
    session.run(own.APPROVAL_INSERT, **row._asdict())


def known_time(session: Session) -> KnownTime | None:
    """Return the row of the known time, of the gateway's database or of the admin API's."""
    row = session.one(own.KNOWN_TIME)
    return None if row is None else KnownTime(*row)


def put_known_time(session: Session, row: KnownTime) -> None:
    """Store the known time, inside a write transaction of one of the two databases."""
    session.run(own.KNOWN_TIME_DELETE)
    session.run(own.KNOWN_TIME_INSERT, id=1, **row._asdict())


def save_time(session: Session, found: JudgedTime) -> None:
    """Store the known time, inside a write transaction, and forget actions that are older than
    ACTIONS_KEPT_NS by it."""
    session.run(own.ACTIONS_FORGET, before_ns=found.now_ns - ACTIONS_KEPT_NS)
    put_known_time(session, found.row)
