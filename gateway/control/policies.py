"""The policies of retention, with their versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import select

from gateway.db.compiled import Session, Statement, b
from gateway.errors import UserError
from gateway.retention import store
from gateway.retention.statements import policy

VERSIONS = Statement(
    select(policy)
    .where(policy.c.name == b("name"), policy.c.version > b("after"))
    .order_by(policy.c.version)
    .limit(b("most"))
)


def facts(one: store.Version) -> dict[str, Any]:
    """Return the facts about a version of a policy. Its document is None if it was removed."""
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
