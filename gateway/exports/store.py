"""Keeps the rows of exports. Rows are only added: the highest version of a name is in force."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import func, insert, select

from gateway import clock
from gateway.db.compiled import Session, Statement
from gateway.db.exportmodels import Export as Table
from gateway.errors import ExportChanged, ExportRefused
from gateway.exports.export import EXPORTS_MAX, NUMBER_MAX, Export

FIRST_NUMBER = 2
"""The namespace as a whole (``nfs.export``) has 1, and Ganesha's own root has 0."""

_table: Any = Table.__table__
_HISTORY = Statement(select(_table).order_by(_table.c.name, _table.c.version))
_INSERT = Statement(insert(_table))
_LAST_NUMBER = Statement(select(func.max(_table.c.number)))


class _Row(NamedTuple):
    name: str
    version: int
    number: int
    directory: int
    document: str | None
    created_ns: int
    author: str


def exports(session: Session) -> list[Export]:
    """Return the exports that are in force, by name."""
    newest = {row.name: row for row in _rows(session)}
    return [_export(row) for row in newest.values() if row.document is not None]


def require_version(session: Session, name: str, expected_version: int | None) -> int:
    """Return the version of the newest row of a name, 0 if there is none.

    Parameters: expected_version, of the export that the caller saw, 0 for none, or None for any.
    Raises ExportChanged.
    """
    rows = [row for row in _rows(session) if row.name == name]
    version = rows[-1].version if rows else 0
    seen = version if rows and rows[-1].document is not None else 0
    if expected_version not in (None, seen):
        what = f"has version {seen}" if seen else "does not exist"
        raise ExportChanged(f"{name} {what}, not {expected_version}: look at it again")
    return version


def prepare(
    session: Session,
    name: str,
    directory: int,
    clients: tuple[str, ...],
    squash: str,
    author: str,
    expected_version: int | None,
) -> Export:
    """Return the row that ``put`` would add. Raises ExportChanged, ExportRefused."""
    version = require_version(session, name, expected_version) + 1
    rows = _rows(session)
    same = [row.number for row in rows if (row.name, row.directory) == (name, directory)]
    number = same[-1] if same else _new_number(session)
    others = [export for export in exports(session) if export.name != name]
    if len(others) >= EXPORTS_MAX:
        raise ExportRefused(f"there are {EXPORTS_MAX} exports already: remove one")
    return Export(name, version, number, directory, clients, squash, clock.now_ns(), author)


def put(session: Session, export: Export, expected_version: int | None) -> None:
    """Store an export, inside a write transaction. Raises ExportChanged."""
    if require_version(session, export.name, expected_version) + 1 != export.version:
        raise ExportChanged(f"{export.name} was changed meanwhile: look at it again")
    document = json.dumps({"clients": export.clients, "squash": export.squash})
    _add(session, export, document)


def remove(session: Session, export: Export, author: str, expected_version: int | None) -> None:
    """Remove an export, inside a write transaction. Raises ExportChanged."""
    version = require_version(session, export.name, expected_version) + 1
    row = export._replace(version=version, created_ns=clock.now_ns(), author=author)
    _add(session, row, None)


def _rows(session: Session) -> list[_Row]:
    return [_Row(*row) for row in session.all(_HISTORY)]


def _export(row: _Row) -> Export:
    found = json.loads(row.document or "null")
    return Export(
        name=row.name,
        version=row.version,
        number=row.number,
        directory=row.directory,
        clients=tuple(found["clients"]),
        squash=found["squash"],
        created_ns=row.created_ns,
        author=row.author,
    )


def _add(session: Session, export: Export, document: str | None) -> None:
    row = _Row(
        export.name,
        export.version,
        export.number,
        export.directory,
        document,
        export.created_ns,
        export.author,
    )
    session.run(_INSERT, **row._asdict())


def _new_number(session: Session) -> int:
    row = session.one(_LAST_NUMBER)
    last = FIRST_NUMBER - 1 if row is None or row[0] is None else int(row[0])
    if last >= NUMBER_MAX:
        raise ExportRefused(
            "all numbers of exports were used: use one of the names that were removed"
        )
    return last + 1
