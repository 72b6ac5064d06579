"""Exports beside ``nfs.export``: what each is now, and what a change of one would do."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.errors import ExportRefused, NotThere
from gateway.exports.keeper import Exports, Listed, Preview, Wanted
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import Text, printable, shown


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
    changed_ns: int
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


def found(exports: Exports, name: str) -> Listed:
    """Return an export. Raises NotThere; TryAgain, UserError."""
    one = exports.get(name)
    if one is None:
        raise NotThere(f"there is no export {shown(name)}: spillway export list shows what is")
    return one


def model(settings: Settings, one: Listed, text: Text = printable) -> Export:
    """Return an export as people see it. Parameters: text, of names."""
    export = one.export
    return Export(
        name=export.name,
        version=export.version,
        path=None if one.path is None else path_of(settings, one.path, text),
        inode=export.directory,
        clients=list(export.clients),
        squash=export.squash,
        served=one.is_served,
        changed_ns=export.created_ns,
        changed_by=export.author,
    )


def validity(exports: Exports, wanted: Wanted) -> ExportValidity:
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
        clients_added=[one for one in after.clients if one not in old],
        clients_removed=[one for one in old if one not in after.clients],
        squash_was=None if before is None or before.squash == after.squash else before.squash,
        ganesha=preview.text,
    )


def path_of(settings: Settings, path: bytes, text: Text = printable) -> str:
    """Return the path of an export's directory as clients of ``nfs.export`` see it."""
    return f"{settings.nfs.export}/{text(path)}" if path else settings.nfs.export
