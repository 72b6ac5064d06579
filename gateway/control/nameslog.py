"""Reads the log of names: which client removed, renamed or made what."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from gateway.control.paths import is_below, names_of
from gateway.errors import UserError
from gateway.escapes import bytes_of
from gateway.namespace.nameslog import FILE, FORMER
from gateway.settings import Settings


def listed(
    settings: Settings,
    most: int,
    path: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[dict[str, Any]]:
    """Return the last entries, the newest first.

    Parameters: path, of which to list what was done to it, to what is below it, and to a directory
    above it, whose rename or removal takes it along. Raises UserError.
    """
    wanted = None if path is None else b"/".join(names_of(settings.nfs.export, path))
    found: deque[dict[str, Any]] = deque(maxlen=most)
    for entry in _entries(settings):
        at = datetime.fromisoformat(entry["at"])
        if (since is not None and at < since) or (until is not None and at >= until):
            continue
        if wanted is None or any(_is_about(settings, entry, name, wanted) for name in _PATHS):
            found.append(entry)
    return list(reversed(found))


_PATHS = ("path", "new_path")


def _is_about(settings: Settings, entry: dict[str, Any], name: str, wanted: bytes) -> bool:
    if name not in entry:
        return False
    path = bytes_of(entry[name])[len(settings.nfs.export.encode()) + 1 :]
    return is_below(path, wanted) or is_below(wanted, path)


def _entries(settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield all entries, the oldest first."""
    for name in (FORMER, FILE):
        file = settings.log_dir / name
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    try:
                        entry = json.loads(line)
                    except ValueError:
                        continue  # half a line, of a server that was killed
                    if isinstance(entry, dict) and "at" in entry:
                        yield entry
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise UserError(f"cannot read {file}: {exc.strerror}") from None
