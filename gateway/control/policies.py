"""The policies of retention, with their versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from gateway.db.compiled import Session, Statement, b
from gateway.errors import PolicyError, UserError
from gateway.retention import store
from gateway.retention.policy import read
from gateway.retention.statements import policy
from gateway.serialize import Model
from gateway.text import shown

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
    return f"there is no policy {name}: spillway policy list shows those that there are"


@contextmanager
def found(name: str) -> Iterator[None]:
    """Have what the store says of a policy that there is not raise UserError."""
    try:
        yield
    except KeyError:
        raise UserError(missing(name)) from None
