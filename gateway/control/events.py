"""Events: what changes at a gateway, as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.serialize import Model

STATUS = "status"
KINDS = (STATUS, "job", "checkpoint", "checkpoints", "reset")


@dataclass(frozen=True, slots=True)
class Event(Model):
    """Something that changed."""

    event: str
    """One of ``KINDS``."""
    id: str | None
    """None: it is the state of a moment, and is not kept."""
    data: dict[str, Any]
