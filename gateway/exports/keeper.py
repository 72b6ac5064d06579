"""Lists, changes and removes exports, with or without a running NFS server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import NamedTuple

from gateway import config, filelock
from gateway.db import schema
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.opening import explained
from gateway.exports import blocks, server, store
from gateway.exports.directory import directory_of, path_of
from gateway.exports.export import Export, overlap, require_clients, require_name
from gateway.settings import Settings

LOCK = "exports.lock"


class Listed(NamedTuple):
    """An export and how it is now."""

    export: Export
    path: bytes | None
    """The path of its directory below the namespace's root, b"" for the root, or None: it has none
    outside the trash. Then the export is not served from the next reload on."""
    is_served: bool | None
    """None: no NFS server answers."""


class Preview(NamedTuple):
    """What a change would do."""

    before: Export | None
    """The export as it is, or None: there is none of this name."""
    after: Export
    text: str
    """The block that NFS-Ganesha would be told."""
    is_running: bool
    """Whether a server would take it at once. False: the next start takes it."""


class Wanted(NamedTuple):
    """An export as a person wants it."""

    name: str
    path: bytes
    """The path of its directory below the namespace's root. b"" is the root."""
    clients: Sequence[str]
    squash: str


def at_start(settings: Settings) -> tuple[list[Export], list[Export]]:
    """Return the exports that a server has from its start on, and those that are left out, as
    ``Exports.servable`` does. Raises UserError."""
    with closing(Database(settings.database_url)) as database, explained(database):
        return Exports(settings, database).servable()


class Exports:
    """The exports of a gateway beside ``nfs.export``, which the configuration has.

    Parameters: settings; database, which the caller closes. Raises SchemaError.

    A change is checked, then taken by the server, then stored. If any of this fails, the former
    exports are in force: on the server, in ganesha.conf and in the database. A process that is
    killed in between leaves a server that may have the change, until the next reload or start.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        schema.require_current(database)
        self._settings = settings
        self._database = database

    def listed(self) -> list[Listed]:
        """Return all exports, by name. Raises TryAgain, UserError."""
        told = server.told(self._settings)
        served = None if told is None else {one.number for one in told.exports if one.is_mounted}
        with self._database.reading() as session:
            return [
                Listed(
                    export,
                    path_of(session, export.directory),
                    None if served is None else export.number in served,
                )
                for export in store.exports(session)
            ]

    def get(self, name: str) -> Listed | None:
        """Return one export, or None. Raises TryAgain, UserError."""
        return next((one for one in self.listed() if one.export.name == name), None)

    def put(self, wanted: Wanted, author: str, expected_version: int | None = None) -> Export:
        """Add an export, or change it. Returns what is in force then.

        Parameters: expected_version, as of ``store.require_version``. Raises ExportRefused,
        ExportChanged, TryAgain, UserError while the server starts or stops, OSError.
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
                store.put(session, export, expected_version)
        return export

    def preview(self, wanted: Wanted, expected_version: int | None = None) -> Preview:
        """Return what ``put`` would do. Nothing is changed, and no other change is waited for.
        Parameters and errors as of ``put``."""
        is_running = server.told(self._settings) is not None
        with self._database.reading() as session:
            current, export = self._prepared(session, wanted, "", expected_version)
            if is_running:
                text = self._text(session, {**current, export.name: export}.values())
                server.changed_conf(self._settings, text)
        shown = blocks.render_one(self._settings, export)
        return Preview(current.get(wanted.name), export, shown, is_running)

    def _prepared(
        self, session: Session, wanted: Wanted, author: str, expected_version: int | None
    ) -> tuple[dict[str, Export], Export]:
        """Return the exports by name as they are, and the wanted one, which was checked."""
        clients = tuple(wanted.clients)
        require_clients(clients, wanted.squash)
        store.require_version(session, wanted.name, expected_version)
        current = {one.name: one for one in store.exports(session)}
        main = self._settings.nfs.export
        require_name(wanted.name, [main, *(current.keys() - {wanted.name})])
        directory = directory_of(session, wanted.path)
        export = store.prepare(
            session, wanted.name, directory, clients, wanted.squash, author, expected_version
        )
        return current, export

    def remove(self, name: str, author: str, expected_version: int | None = None) -> None:
        """Remove an export. Its clients lose the files that they have open on it.

        Parameters and errors as of ``put``. Raises KeyError if there is none.
        """
        with self._alone() as is_running:
            with self._database.reading() as session:
                current = {one.name: one for one in store.exports(session)}
                export = current.pop(name)
                store.require_version(session, name, expected_version)
            with self._in_force(is_running, current), self._database.writing() as session:
                store.remove(session, export, author, expected_version)

    def reload(self) -> None:
        """Have a running server take the exports as they are stored, and ``nfs.clients`` and
        ``nfs.squash`` as they are configured. Errors as of ``put``."""
        with self._alone() as is_running:
            with self._database.reading() as session:
                current = {one.name: one for one in store.exports(session)}
            with self._in_force(is_running, current):
                pass

    def servable(self) -> tuple[list[Export], list[Export]]:
        """Return the exports that a server can have now, and those that it cannot: their directory
        is not there, or ``nfs.export`` hides them. Raises TryAgain."""
        with self._database.reading() as session:
            exports = store.exports(session)
            served = self._servable(session, exports)
        return served, [one for one in exports if one not in served]

    def _servable(self, session: Session, exports: Iterable[Export]) -> list[Export]:
        main = self._settings.nfs.export
        return [
            one
            for one in exports
            if not overlap(one.name, main) and path_of(session, one.directory) is not None
        ]

    def _text(self, session: Session, exports: Iterable[Export]) -> str:
        """Return what a running server is to take. Raises UserError when the configuration cannot
        be read."""
        # The settings of a long process are those of its start: they would let a host in again that
        # was taken out of nfs.clients since.
        now = replace(self._settings, nfs=config.load(self._settings.source).nfs)
        return blocks.render(now, self._servable(session, exports))

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Wait until no other process changes exports. Yields whether a server runs."""
        lock = filelock.open_lock(self._settings.run_dir / LOCK)
        with filelock.held(lock), server.found(self._settings) as is_running:
            yield is_running

    @contextmanager
    def _in_force(self, is_running: bool, exports: Mapping[str, Export]) -> Iterator[None]:
        """Have the server take exports. If the body fails, it takes the former ones again."""
        if not is_running:  # the next start reads the rows
            yield
            return
        with self._database.reading() as session:
            text = self._text(session, exports.values())
        with server.taken(self._settings, text):
            yield
