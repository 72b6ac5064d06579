"""Log of what left the trash, for tests of it."""

from __future__ import annotations

from typing import Any

from gateway.config.settings import Settings
from tests.support.volumes import query

REMOVED = "removed for good"


def logged(settings: Settings) -> list[tuple[Any, ...]]:
    """Return what the log says, the oldest first. Require that an end has a time and a result."""
    rows = query(
        settings,
        "SELECT what, author, reason, path, result, began_ns, finished_ns FROM action ORDER BY id",
    )
    assert all((row[4] is None) == (row[6] is None) for row in rows)
    assert all(row[5] <= row[6] for row in rows if row[6] is not None)
    return [(*row[:3], bytes(row[3]).decode(), row[4]) for row in rows]
