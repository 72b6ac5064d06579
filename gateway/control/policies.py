"""The policies of retention, with their versions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import select

from gateway.control import retention
from gateway.control.paths import names_of
from gateway.control.retention import Action, Approval, Clock, Plan
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.opening import reading
from gateway.errors import NotThere, PolicyError
from gateway.retention import store
from gateway.retention.facts import Current
from gateway.retention.policy import Policy, read
from gateway.retention.statements import policy
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import shown

_NEWEST = (1 << 63) - 1

VERSIONS = Statement(
    select(policy)
    .where(policy.c.name == b("name"), policy.c.version > b("after"))
    .order_by(policy.c.version)
    .limit(b("most"))
)


@dataclass(frozen=True, slots=True)
class Version(Model):
    """A version of a policy. Its number is the ETag."""

    name: str = field(metadata={"examples": ["newest-three"]})
    version: int
    document: dict[str, Any] | None = field(
        metadata={"examples": [{"name": "newest-three", "run": "jobs/llama*", "keep_newest": 3}]}
    )
    """The policy as it was written. null: it was removed."""
    enabled: bool
    """Whether it keeps and deletes anything."""
    created_ns: int
    author: str


@dataclass(frozen=True, slots=True)
class StoredVersion(Version):
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

    def every(self) -> Iterable[Version]:
        """Return the policies that are in force, also those that are disabled, by name."""

    def history(self) -> Iterable[Version]:
        """Return all versions of all policies, by name."""

    def versions(self, name: str) -> Sequence[Version]:
        """Return the versions of a policy, the oldest first, also of one that was removed."""

    def set(self, given: Sequence[Policy]) -> list[StoredVersion]:
        """Store policies."""

    def remove(self, name: str) -> StoredVersion:
        """Remove a policy. Its versions stay in the history."""

    def switch(self, name: str, *, is_enabled: bool) -> StoredVersion:
        """Have a policy keep and delete, or do neither."""

    def plan(self, others: Sequence[Policy], run: str | None, fate: str | None) -> Plan:
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

    def every(self) -> list[Version]:
        with reading(self._database) as session:
            found = store.versions(session)
        return [model(one) for one in found if one.document is not None]

    def history(self) -> list[Version]:
        with reading(self._database) as session:
            return [model(one) for one in store.history(session)]

    def versions(self, name: str) -> list[Version]:
        found = [one for one in self.history() if one.name == name]
        if not found:
            raise NotThere(missing(name))
        return found

    def set(self, given: Sequence[Policy]) -> list[StoredVersion]:
        with self._database.writing() as session:
            return [
                stored(session, one.name, store.put(session, one, self._author)) for one in given
            ]

    def remove(self, name: str) -> StoredVersion:
        with self._database.writing() as session, _found(name):
            return stored(session, name, store.remove(session, name, self._author))

    def switch(self, name: str, *, is_enabled: bool) -> StoredVersion:
        with self._database.writing() as session, _found(name):
            made = store.switch(session, name, is_enabled, self._author)
            return stored(session, name, made)

    def plan(self, others: Sequence[Policy], run: str | None, fate: str | None) -> Plan:
        current = [Current(one, 0) for one in others]
        made = retention.planned(self._settings, self._database, current)
        return retention.model(self._settings, made, self._run(run), fate=fate)

    def approve(self, plan: str) -> Approval:
        made = retention.approve(self._settings, self._database, plan, self._author)
        return retention.approval(made)

    def approvals(self) -> list[Approval]:
        with reading(self._database) as session:
            return [retention.approval(one) for one in store.approvals(session)]

    def log(self, run: str | None, most: int) -> list[Action]:
        with reading(self._database) as session:
            found = retention.actions(session, self._run(run), _NEWEST, most)
        return [retention.action(self._settings, one) for one in found]

    def clock(self) -> Clock:
        return retention.read_clock(self._database)

    def confirm_clock(self) -> Clock:
        retention.confirm_clock(self._database)
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


def model(one: store.Version) -> Version:
    """Return a version of a policy as people see it."""
    return Version(**_values(one))


def stored(session: Session, name: str, made: store.Version | None) -> StoredVersion:
    """Return a policy after an order. Parameters: made, its new version, or None if it is
    unchanged."""
    now = made or current(session, name)
    assert now is not None
    return StoredVersion(**_values(now), changed=made is not None)


def _values(one: store.Version) -> dict[str, Any]:
    document = None if one.document is None else json.loads(one.document)
    return {**one._asdict(), "enabled": bool(one.enabled), "document": document}


def current(session: Session, name: str) -> store.Version | None:
    """Return the version of a policy that is in force, or None if there is no such policy."""
    found = [one for one in store.versions(session) if one.name == name]
    return found[0] if found and found[0].document is not None else None


def versions(session: Session, name: str, after: int, most: int) -> list[store.Version]:
    """Return the versions of a policy, also of one that was removed, in their order.

    Parameters: after, the version before the first one; most, of them.
    """
    rows = session.all(VERSIONS, name=name, after=after, most=most)
    return [store.Version(*row) for row in rows]


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
