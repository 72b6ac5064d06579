"""What the admin API's own database keeps: who changed what, and the figures of the dashboard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gateway.serialize import Model


@dataclass(frozen=True, slots=True)
class RecordedCall(Model):
    """A call that changes something, or a refusal."""

    id: int
    at: str = field(metadata={"examples": ["2026-11-23T09:30:00+00:00"]})
    """When: ISO 8601, UTC."""
    who: str = field(metadata={"examples": ["ci"]})
    """The name of the token, or the user of a command. Empty: a token that is not known."""
    token_id: str | None = field(metadata={"examples": ["0123456789ab"]})
    address: str = field(metadata={"examples": ["10.0.0.7"]})
    """The client's address. Empty: a command on the gateway."""
    request_id: str
    method: str = field(metadata={"examples": ["DELETE"]})
    """COMMAND: a command on the gateway."""
    path: str = field(metadata={"examples": ["/api/v1/tokens/0123456789ab"]})
    status: int | None
    """None: it is under way, or the admin API ended meanwhile."""
    before: Any
    """What was changed, as it was."""
    after: Any
    """What was changed, as it was then."""
    detail: str | None
    """Why it failed or was refused."""
    asked: Any
    """The parameters of the call, without secrets: of its query and its body."""


@dataclass(frozen=True, slots=True)
class HistoryTable(Model):
    """The figures of a time, by steps. Steps in which the gateway did not run are missing."""

    step_seconds: int
    columns: list[str]
    """The names of the figures of a row, in their order."""
    rows: list[list[int | float | None]]
    """The figures of each step. `time` is its begin in seconds since 1970."""
