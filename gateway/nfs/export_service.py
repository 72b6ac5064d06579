"""Service for exports: lists, changes and removes them, with or without a running NFS server.

Rows are only added: the highest version of a name is in force.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import func, insert, select

from gateway.common import clock, files
from gateway.common.errors import ExportChanged, ExportRefused
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.db import schema
from gateway.db.checkpoint_models import ExportTable as Table
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.db.schema import explained
from gateway.nfs import export_blocks, server
from gateway.nfs.export import (
    EXPORTS_MAX,
    NUMBER_MAX,
    ExportedDirectory,
    directory_of,
    overlap,
    path_of,
    require_clients,
    require_name,
)

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


def exports(session: Session) -> list[ExportedDirectory]:
    """Return the exports that are in force, by name."""
    newest = {row.name: row for row in _rows(session)}
    return [_export(row) for row in newest.values() if row.document is not None]


def require_version(session: Session, name: str, expected_version: int | None) -> int:
    """Return the version of the newest row of a name, 0 if there is none.

    Raises ExportChanged.

    Args:
        expected_version: expected version of the export that the caller saw, 0 for none, or None
            for any.
    """
    rows = [row for row in _rows(session) if row.name == name]
    version = rows[-1].version if rows else 0
    seen = version if rows and rows[-1].document is not None else 0
    if expected_version not in (None, seen):
        state = f"has version {seen}" if seen else "does not exist"
        raise ExportChanged(f"{name} {state}, not {expected_version}: look at it again")
    return version


def prepare(
    session: Session,
    name: str,
    directory: int,
    clients: tuple[str, ...],
    squash: str,
    author: str,
    expected_version: int | None,
) -> ExportedDirectory:
    """Return the row that ``put`` would add. Raises ExportChanged, ExportRefused."""
    version = require_version(session, name, expected_version) + 1
    rows = _rows(session)
    same = [row.number for row in rows if (row.name, row.directory) == (name, directory)]
    number = same[-1] if same else _new_number(session)
    others = [export for export in exports(session) if export.name != name]
    if len(others) >= EXPORTS_MAX:
        raise ExportRefused(f"there are {EXPORTS_MAX} exports already: remove one")
    return ExportedDirectory(
        name, version, number, directory, clients, squash, clock.now_ns(), author
    )


def put(session: Session, export: ExportedDirectory, expected_version: int | None) -> None:
    """Store an export, inside a write transaction. Raises ExportChanged."""
    if require_version(session, export.name, expected_version) + 1 != export.version:
        raise ExportChanged(f"{export.name} was changed meanwhile: look at it again")
    document = json.dumps({"clients": export.clients, "squash": export.squash})
    _add(session, export, document)


def remove(
    session: Session, export: ExportedDirectory, author: str, expected_version: int | None
) -> None:
    """Remove an export, inside a write transaction. Raises ExportChanged."""
    version = require_version(session, export.name, expected_version) + 1
    row = export._replace(version=version, created_ns=clock.now_ns(), author=author)
    _add(session, row, None)


def _rows(session: Session) -> list[_Row]:
    return [_Row(*row) for row in session.all(_HISTORY)]


def _export(row: _Row) -> ExportedDirectory:
    document = json.loads(row.document or "null")
    return ExportedDirectory(
        name=row.name,
        version=row.version,
        number=row.number,
        directory=row.directory,
        clients=tuple(document["clients"]),
        squash=document["squash"],
        created_ns=row.created_ns,
        author=row.author,
    )


def _add(session: Session, export: ExportedDirectory, document: str | None) -> None:
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


LOCK = "exports.lock"


class ListedExport(NamedTuple):
    """An export and how it is now."""

    export: ExportedDirectory
    path: bytes | None
    """The path of its directory below the namespace's root, b"" for the root, or None: it has none
    outside the trash. Then the export is not served from the next reload on."""
    is_served: bool | None
    """None: no NFS server answers."""


class Preview(NamedTuple):
    """What a change would do."""

    before: ExportedDirectory | None
    """The export as it is, or None: there is none of this name."""
    after: ExportedDirectory
    text: str
    """The block that NFS-Ganesha would be told."""
    is_running: bool
    """Whether a server would take it at once. False: the next start takes it."""


class WantedExport(NamedTuple):
    """An export as a person wants it."""

    name: str
    path: bytes
    """The path of its directory below the namespace's root. b"" is the root."""
    clients: Sequence[str]
    squash: str


def at_start(settings: Settings) -> tuple[list[ExportedDirectory], list[ExportedDirectory]]:
    """Return the exports that a server has from its start on, and those that are left out, as
    ``Exports.servable`` does. Raises UserError."""
    with closing(Database(settings.database_url)) as database, explained(database):
        return ExportService(settings, database).servable()


class ExportService:
    """The exports of a gateway beside ``nfs.export``, which the configuration has.

    Raises SchemaError.

    A change is checked, then taken by the server, then stored. If any of this fails, the former
    exports are in force: on the server, in ganesha.conf and in the database. A process that is
    killed in between leaves a server that may have the change, until the next reload or start.

    Args:
        database: which the caller closes.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        schema.require_current(database)
        self._settings = settings
        self._database = database

    def listed(self) -> list[ListedExport]:
        """Return all exports, by name. Raises TryAgain, UserError."""
        served_exports = server.served_exports(self._settings)
        served = (
            None
            if served_exports is None
            else {export.number for export in served_exports.exports if export.is_mounted}
        )
        with self._database.reading() as session:
            return [
                ListedExport(
                    export,
                    path_of(session, export.directory),
                    None if served is None else export.number in served,
                )
                for export in exports(session)
            ]

    def get(self, name: str) -> ListedExport | None:
        """Return one export, or None. Raises TryAgain, UserError."""
        return next((export for export in self.listed() if export.export.name == name), None)

    def put(
        self, wanted: WantedExport, author: str, expected_version: int | None = None
    ) -> ExportedDirectory:
        """Add an export, or change it. Returns what is in force then.

        Raises ExportRefused, ExportChanged, TryAgain, UserError while the server starts or stops,
        OSError.

        Args:
            expected_version: as of ``store.require_version``.
        """
        with self._alone() as is_running:
            with self._database.reading() as session:
                current, export = self._prepared(session, wanted, author, expected_version)
            before = current.get(wanted.name)
            if before is not None and before.is_like(export):
                return before
            with ExitStack() as stack:
                if before is not None and before.number != export.number:
                    # Ganesha wants no two exports of a name, and drops the old one last.
                    others = current.keys() - {export.name}
                    without = {name: current[name] for name in others}
                    stack.enter_context(self._in_force(is_running, without))
                stack.enter_context(self._in_force(is_running, {**current, export.name: export}))
                session = stack.enter_context(self._database.writing())
                put(session, export, expected_version)
        return export

    def preview(self, wanted: WantedExport, expected_version: int | None = None) -> Preview:
        """Return what ``put`` would do. Nothing is changed, and no other change is waited for.
        Parameters and errors as of ``put``."""
        is_running = server.served_exports(self._settings) is not None
        with self._database.reading() as session:
            current, export = self._prepared(session, wanted, "", expected_version)
            if is_running:
                text = self._text(session, {**current, export.name: export}.values())
                server.changed_conf(self._settings, text)
        shown = export_blocks.render_one(self._settings, export)
        return Preview(current.get(wanted.name), export, shown, is_running)

    def _prepared(
        self, session: Session, wanted: WantedExport, author: str, expected_version: int | None
    ) -> tuple[dict[str, ExportedDirectory], ExportedDirectory]:
        """Return the exports by name as they are, and the wanted one, which was checked."""
        clients = tuple(wanted.clients)
        require_clients(clients, wanted.squash)
        require_version(session, wanted.name, expected_version)
        current = {
            exported_directory.name: exported_directory for exported_directory in exports(session)
        }
        main = self._settings.nfs.export
        require_name(wanted.name, [main, *(current.keys() - {wanted.name})])
        directory = directory_of(session, wanted.path)
        export = prepare(
            session, wanted.name, directory, clients, wanted.squash, author, expected_version
        )
        return current, export

    def remove(self, name: str, author: str, expected_version: int | None = None) -> None:
        """Remove an export. Its clients lose the files that they have open on it.

        Parameters and errors as of ``put``. Raises KeyError if there is none.
        """
        with self._alone() as is_running:
            with self._database.reading() as session:
                current = {directory.name: directory for directory in exports(session)}
                export = current.pop(name)
                require_version(session, name, expected_version)
            with self._in_force(is_running, current), self._database.writing() as session:
                remove(session, export, author, expected_version)

    def reload(self) -> None:
        """Have a running server take the exports as they are stored, and ``nfs.clients`` and
        ``nfs.squash`` as they are configured. Errors as of ``put``."""
        with self._alone() as is_running:
            with self._database.reading() as session:
                current = {export.name: export for export in exports(session)}
            with self._in_force(is_running, current):
                pass

    def servable(self) -> tuple[list[ExportedDirectory], list[ExportedDirectory]]:
        """Return the exports that a server can have now, and those that it cannot: their directory
        is not there, or ``nfs.export`` hides them. Raises TryAgain."""
        with self._database.reading() as session:
            every = exports(session)
            served = self._servable(session, every)
        return served, [directory for directory in every if directory not in served]

    def _servable(
        self, session: Session, exports: Iterable[ExportedDirectory]
    ) -> list[ExportedDirectory]:
        main = self._settings.nfs.export
        return [
            export
            for export in exports
            if not overlap(export.name, main) and path_of(session, export.directory) is not None
        ]

    def _text(self, session: Session, exports: Iterable[ExportedDirectory]) -> str:
        """Return what a running server is to take. Raises UserError when the configuration cannot
        be read."""
        # The settings of a long process are those of its start: they would let a host in again that
        # was taken out of nfs.clients since.
        now = replace(self._settings, nfs=loader.load(self._settings.source).nfs)
        return export_blocks.render(now, self._servable(session, exports))

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Wait until no other process changes exports. Yields whether a server runs."""
        lock = files.open_lock(self._settings.run_dir / LOCK)
        with files.held(lock), server.found(self._settings) as is_running:
            yield is_running

    @contextmanager
    def _in_force(
        self, is_running: bool, exports: Mapping[str, ExportedDirectory]
    ) -> Iterator[None]:
        """Have the server take exports. If the body fails, it takes the former ones again."""
        if not is_running:  # the next start reads the rows
            yield
            return
        with self._database.reading() as session:
            text = self._text(session, exports.values())
        with server.taken(self._settings, text):
            yield
