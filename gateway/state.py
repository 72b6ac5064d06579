"""Reads the files in run/ in which running processes report."""

from __future__ import annotations

import json
from typing import Any

from gateway.proc import start_ticks
from gateway.settings import Settings

UP = "up.json"
DRAIN = "drain.json"
CACHE = "cache.json"
"""The report of the hydrator."""
UNRECOGNISED = "unrecognised.json"
"""How many directories look like checkpoints, and no rule knows them."""


def read(settings: Settings, name: str) -> dict[str, Any] | None:
    """Return the last report of a process, or None if there is none. Raises OSError.

    A file that is not JSON (after a power cut, say) counts as missing.
    """
    try:
        found = json.loads((settings.run_dir / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def alive(entry: Any) -> bool:
    """Return whether the process with an entry's ``pid`` and ``start_ticks`` still runs.

    Without start_ticks only the pid decides, and another process may have it by now.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("pid"), int):
        return False
    ticks = start_ticks(entry["pid"])
    wanted = entry.get("start_ticks")
    return ticks is not None and wanted in (None, ticks)


def is_of_services(up: dict[str, Any] | None) -> bool:
    """Return whether up.json was written by services, each for itself, and not by ``up``."""
    return up is not None and up.get("services") is True


def is_supervised(up: dict[str, Any] | None) -> bool:
    """Return whether ``up``, or a service in its place, runs: then the phases in up.json count."""
    if is_of_services(up):
        return any(alive(entry) for entry in children(up).values())
    return alive(up)


def children(up: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the entries of the children in up.json, by name."""
    found = {} if up is None else up.get("children")
    if not isinstance(found, dict):
        return {}
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}
