"""Reads the log of names: which client removed, renamed or made what."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from gateway.control.paths import is_below, names_of
from gateway.errors import UserError
from gateway.escapes import bytes_of
from gateway.namespace.nameslog import FILE, FORMER
from gateway.serialize import Model, from_json
from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class NameChange(Model):
    """A line of the log."""

    at: str
    """When: ISO 8601."""
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

    Parameters: path, of which to list what was done to it, to what is below it, and to a directory
    above it, whose rename or removal takes it along. Raises UserError.
    """
    wanted = None if path is None else b"/".join(names_of(settings.nfs.export, path))
    found: deque[NameChange] = deque(maxlen=most)
    for entry in _entries(settings):
        at = datetime.fromisoformat(entry.at)
        if (since is not None and at < since) or (until is not None and at >= until):
            continue
        if wanted is None or _is_about(settings, entry, wanted):
            found.append(entry)
    return list(reversed(found))


def _is_about(settings: Settings, entry: NameChange, wanted: bytes) -> bool:
    start = len(settings.nfs.export.encode()) + 1
    paths = [bytes_of(one)[start:] for one in (entry.path, entry.new_path) if one is not None]
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
