"""The policies of retention, with their versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateway.errors import UserError
from gateway.retention import store


def facts(one: store.Version) -> dict[str, Any]:
    """Return the facts about a version of a policy. Its document is None if it was removed."""
    document = None if one.document is None else json.loads(one.document)
    return {**one._asdict(), "enabled": bool(one.enabled), "document": document}


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
