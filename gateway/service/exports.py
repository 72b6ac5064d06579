"""Service for exports beside ``nfs.export``: each as it is now, and what a change would do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gateway.common.errors import ExportRefused, NotThere
from gateway.common.models import Model, Nanoseconds
from gateway.common.text import shown, text_of
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.nfs import export_service
from gateway.nfs.export_service import ListedExport, Preview, WantedExport
from gateway.service.paths import names_of


@dataclass(frozen=True, slots=True)
class Export(Model):
    """An export. Its version is the ETag."""

    name: str = field(metadata={"examples": ["/datasets"]})
    """What clients mount."""
    version: int
    path: str | None = field(metadata={"examples": ["/checkpoints/datasets"]})
    """Its directory now. None: it is gone, or in the trash: it is not served."""
    inode: int
    """The number of its directory, which a rename does not change."""
    clients: list[str] = field(metadata={"examples": [["10.0.0.0/8 rw"]]})
    squash: str = field(metadata={"examples": ["none"]})
    served: bool | None
    """None: no NFS server answers."""
    changed_ns: Nanoseconds
    changed_by: str


@dataclass(frozen=True, slots=True)
class ExportValidity(Model):
    """Whether an export could be stored, and what that would do. Nothing is changed by asking."""

    valid: bool
    error: str | None = field(
        metadata={"examples": ["there is no directory datasets: make it first"]}
    )
    """Why not, and what to do."""
    is_new: bool | None = None
    """Whether there is none of this name."""
    is_news: bool | None = None
    """False: it is like this already."""
    at_once: bool | None = None
    """Whether the NFS server takes it at once. False: at its next start."""
    disconnects: bool | None = None
    """Whether its clients lose what they have open: its directory is another."""
    clients_added: list[str] = field(
        default_factory=list, metadata={"examples": [["10.0.0.0/8 rw"]]}
    )
    clients_removed: list[str] = field(default_factory=list, metadata={"examples": [[]]})
    squash_was: str | None = None
    """If it changes."""
    ganesha: str | None = None
    """The block that NFS-Ganesha would be told."""


@dataclass(frozen=True, slots=True)
class MainExport(Model):
    """The export of the whole namespace, which the configuration has."""

    name: str
    clients: list[str]


@dataclass(frozen=True, slots=True)
class RemovedExport(Model):
    """An export that was removed."""

    name: str
    removed: bool = True


@dataclass(frozen=True, slots=True)
class ReloadedExports(Model):
    """What the NFS server took."""

    left_out: list[str] = field(metadata={"examples": [["/datasets"]]})
    """Exports that it cannot have: their directory is gone, or in the trash."""


class Rights(NamedTuple):
    """Which directory an export is to have, and who may do what with it."""

    path: str
    """Its directory, as on the command line."""
    clients: Sequence[str]
    squash: str


class Exports(Protocol):
    """The exports beside the one of the whole namespace."""

    def main(self) -> MainExport:
        """Return the export of the whole namespace."""

    def every(self) -> Iterable[Export]:
        """Return the exports, by name."""

    def find(self, name: str) -> Export | None:
        """Return one export, or None."""

    def validate(self, name: str, rights: Rights) -> ExportValidity:
        """Return whether an export could be stored, and what that would do."""

    def set(self, name: str, rights: Rights, version: int) -> Export:
        """Add an export, or replace it.

        Args:
            version: that it must have now. 0: there is none.
        """

    def remove(self, name: str, version: int) -> RemovedExport:
        """Remove an export. Its clients lose what they have open on it. Args: as of ``set``."""

    def reload(self) -> ReloadedExports:
        """Have the server take the exports as they are stored, and what the configuration has."""


class LocalExports:
    """The exports of this machine's gateway (``Exports``).

    Args:
        author: of changes, for the record.
    """

    def __init__(self, settings: Settings, database: Database, author: str) -> None:
        self._settings = settings
        self._exports = export_service.ExportService(settings, database)
        self._author = author

    def main(self) -> MainExport:
        nfs = self._settings.nfs
        return MainExport(nfs.export, list(nfs.clients))

    def every(self) -> list[Export]:
        return [model(self._settings, export) for export in self._exports.listed()]

    def find(self, name: str) -> Export | None:
        export = self._exports.get(name)
        return None if export is None else model(self._settings, export)

    def get(self, name: str) -> Export:
        """Return one export. Raises NotThere."""
        return model(self._settings, found(self._exports, name))

    def validate(self, name: str, rights: Rights) -> ExportValidity:
        return validity(self._exports, self._wanted(name, rights))

    def set(self, name: str, rights: Rights, version: int) -> Export:
        self._exports.put(self._wanted(name, rights), self._author, version)
        return self.get(name)

    def remove(self, name: str, version: int) -> RemovedExport:
        try:
            self._exports.remove(name, self._author, version)
        except KeyError:
            raise missing(name) from None
        return RemovedExport(name)

    def reload(self) -> ReloadedExports:
        self._exports.reload()
        _served, left_out = self._exports.servable()
        return ReloadedExports([directory.name for directory in left_out])

    def _wanted(self, name: str, rights: Rights) -> WantedExport:
        names = names_of(self._settings.nfs.export, rights.path)
        return WantedExport(name, b"/".join(names), rights.clients, rights.squash)


def missing(name: str) -> NotThere:
    """Return the error of an export that there is not."""
    return NotThere(f"there is no export {shown(name)}: spillway export list shows what is")


def found(exports: export_service.ExportService, name: str) -> ListedExport:
    """Return an export. Raises NotThere; TryAgain, UserError."""
    export = exports.get(name)
    if export is None:
        raise missing(name)
    return export


def model(settings: Settings, one: ListedExport) -> Export:
    """Return an export as people see it."""
    export = one.export
    return Export(
        name=export.name,
        version=export.version,
        path=None if one.path is None else path_of(settings, one.path),
        inode=export.directory,
        clients=list(export.clients),
        squash=export.squash,
        served=one.is_served,
        changed_ns=export.created_ns,
        changed_by=export.author,
    )


def validity(exports: export_service.ExportService, wanted: WantedExport) -> ExportValidity:
    """Return whether an export could be stored as it is wanted, and what that would do. Raises
    TryAgain, UserError."""
    try:
        preview = exports.preview(wanted)
    except ExportRefused as exc:
        return ExportValidity(valid=False, error=str(exc))
    return change(preview)


def change(preview: Preview) -> ExportValidity:
    """Return what a change that is valid would do to an export and to its clients."""
    before, after = preview.before, preview.after
    old = () if before is None else before.clients
    return ExportValidity(
        valid=True,
        error=None,
        is_new=before is None,
        is_news=before is None or not before.is_like(after),
        at_once=preview.is_running,
        # Their handles have the number of the export.
        disconnects=before is not None and before.number != after.number,
        clients_added=[client for client in after.clients if client not in old],
        clients_removed=[client for client in old if client not in after.clients],
        squash_was=None if before is None or before.squash == after.squash else before.squash,
        ganesha=preview.text,
    )


def path_of(settings: Settings, path: bytes) -> str:
    """Return the path of an export's directory as clients of ``nfs.export`` see it."""
    return f"{settings.nfs.export}/{text_of(path)}" if path else settings.nfs.export
