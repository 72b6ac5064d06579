"""Finds which checkpoints changed between two looks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from gateway.checkpoints.shown import SHOWN
from gateway.db.compiled import Statement
from gateway.db.engine import Database
from gateway.db.statements import checkpoint
from gateway.escapes import text_of
from gateway.settings import Settings

CHANGED_MAX = 100
"""After more changes in a second, listeners are told to read the list again."""
ROWS = Statement(
    select(
        checkpoint.c.ino,
        checkpoint.c.path,
        checkpoint.c.run,
        checkpoint.c.step,
        SHOWN,
        checkpoint.c.dirty_size,
        checkpoint.c.evidence,
    )
)
_Facts = dict[str, Any]


class Looker:
    """Remembers the catalogue. Not safe to use from several threads.

    Parameters: settings; database, of the namespace.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._export = settings.nfs.export
        self._database = database
        self._seen: dict[int, tuple[Any, ...]] | None = None

    def look(self) -> list[tuple[str, _Facts]]:
        """Return the changes since the last look, as events. The first look finds none. Raises
        TryAgain."""
        with self._database.reading() as session:
            now = {row[0]: tuple(row) for row in session.all(ROWS)}
        before, self._seen = self._seen, now
        if before is None:
            return []
        changed = [row for ino, row in now.items() if before.get(ino) != row]
        gone = [row for ino, row in before.items() if ino not in now]
        if len(changed) + len(gone) > CHANGED_MAX:
            return [("checkpoints", {"changed": len(changed), "gone": len(gone)})]
        found = [("checkpoint", self._facts(row)) for row in changed]
        return found + [("checkpoint", {**self._facts(row), "state": "gone"}) for row in gone]

    def _facts(self, row: tuple[Any, ...]) -> _Facts:
        ino, path, run, step, state, dirty_bytes, _evidence = row
        return {
            "ino": ino,
            "path": f"{self._export}/{text_of(bytes(path))}",
            "run": text_of(bytes(run)),
            "step": step,
            "state": state,
            "dirty_bytes": dirty_bytes,
        }
