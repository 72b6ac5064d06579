"""The files in which running processes tell how they are: run/up.json and run/drain.json."""

from __future__ import annotations

import json
from typing import Any

from gateway.proc import start_ticks
from gateway.settings import Settings

UP = "up.json"
DRAIN = "drain.json"


def read(settings: Settings, name: str) -> dict[str, Any] | None:
    """What a process wrote last; None when it never did. Raises OSError.

    A file that is not JSON (cut short by a power cut) counts as never written.
    """
    try:
        found = json.loads((settings.run_dir / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def alive(entry: Any) -> bool:
    """Whether the process an entry names by ``pid`` and ``start_ticks`` still runs.

    Without start_ticks the pid alone decides, which may be another process by now.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("pid"), int):
        return False
    ticks = start_ticks(entry["pid"])
    wanted = entry.get("start_ticks")
    return ticks is not None and wanted in (None, ticks)


def children(up: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The entries of the children in up.json, by name."""
    found = {} if up is None else up.get("children")
    if not isinstance(found, dict):
        return {}
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}
