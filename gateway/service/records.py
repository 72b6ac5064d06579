"""Service for records: the audit log, the history of figures, the log of names, and events.

The admin API's own database keeps the audit log and the history.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gateway.common import clock
from gateway.common.errors import UserError
from gateway.common.models import Model, Nanoseconds, from_json
from gateway.common.text import bytes_of
from gateway.config.settings import Settings
from gateway.namespace.names_log import FILE, FORMER
from gateway.service.paths import is_below, names_of


@dataclass(frozen=True, slots=True)
class RecordedCall(Model):
    """A call that changes something, or a refusal."""

    id: int
    at_ns: Nanoseconds
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
    rows: list[list[str | int | float | None]]
    """The figures of each step. `time` is its begin."""


@dataclass(frozen=True, slots=True)
class NameChange(Model):
    """A line of the log."""

    at_ns: Nanoseconds
    client: str | None
    """Its address. None: the gateway itself, for a command or a page."""
    uid: int
    what: str
    path: str
    """Bytes that are no text are written as %XX."""
    new_path: str | None = None
    replaced: bool | None = None
    """Whether the new name was another inode's, which lost it."""


def listed(
    settings: Settings,
    most: int,
    path: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[NameChange]:
    """Return the last changes, the newest first.

    Raises UserError.

    Args:
        path: path of which to list what was done to it, to what is below it, and to a directory
            above it, whose rename or removal takes it along.
    """
    wanted = None if path is None else b"/".join(names_of(settings.nfs.export, path))
    changes: deque[NameChange] = deque(maxlen=most)
    for entry in _entries(settings):
        at = entry.at_ns / clock.NS
        if (since is not None and at < since.timestamp()) or (
            until is not None and at >= until.timestamp()
        ):
            continue
        if wanted is None or _is_about(settings, entry, wanted):
            changes.append(entry)
    return list(reversed(changes))


def _is_about(settings: Settings, entry: NameChange, wanted: bytes) -> bool:
    start = len(settings.nfs.export.encode()) + 1
    paths = [bytes_of(text)[start:] for text in (entry.path, entry.new_path) if text is not None]
    return any(is_below(path, wanted) or is_below(wanted, path) for path in paths)


def _entries(settings: Settings) -> Iterator[NameChange]:
    """Yield all entries, the oldest first."""
    for name in (FORMER, FILE):
        file = settings.log_dir / name
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    try:
                        yield from_json(NameChange, json.loads(line))
                    except (ValueError, TypeError, KeyError):
                        continue  # half a line, of a server that was killed
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise UserError(f"cannot read {file}: {exc.strerror}") from None


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
