"""Exports beside ``nfs.export``: what each is now, and what a change of one would do."""

from __future__ import annotations

from typing import Any

from gateway.errors import ExportRefused, NotThere
from gateway.exports.keeper import Exports, Listed, Preview, Wanted
from gateway.settings import Settings
from gateway.text import Text, printable, shown


def found(exports: Exports, name: str) -> Listed:
    """Return an export. Raises NotThere; TryAgain, UserError."""
    one = exports.get(name)
    if one is None:
        raise NotThere(f"there is no export {shown(name)}: spillway export list shows what is")
    return one


def facts(settings: Settings, one: Listed, text: Text = printable) -> dict[str, Any]:
    """Return the facts about an export. Parameters: text, of names."""
    export = one.export
    return {
        "name": export.name,
        "version": export.version,
        "path": None if one.path is None else path_of(settings, one.path, text),
        "inode": export.directory,
        "clients": list(export.clients),
        "squash": export.squash,
        "served": one.is_served,
        "changed_ns": export.created_ns,
        "changed_by": export.author,
    }


def validity(exports: Exports, wanted: Wanted) -> dict[str, Any]:
    """Return whether an export could be stored as it is wanted, and what that would do. Raises
    TryAgain, UserError."""
    try:
        preview = exports.preview(wanted)
    except ExportRefused as exc:
        return {"valid": False, "error": str(exc)}
    return {"valid": True, "error": None, **change(preview)}


def change(preview: Preview) -> dict[str, Any]:
    """Return what a change would do to an export and to its clients."""
    before, after = preview.before, preview.after
    old = () if before is None else before.clients
    return {
        "is_new": before is None,
        "is_news": before is None or not before.is_like(after),
        "at_once": preview.is_running,
        # Their handles have the number of the export.
        "disconnects": before is not None and before.number != after.number,
        "clients_added": [one for one in after.clients if one not in old],
        "clients_removed": [one for one in old if one not in after.clients],
        "squash_was": None if before is None or before.squash == after.squash else before.squash,
        "ganesha": preview.text,
    }


def path_of(settings: Settings, path: bytes, text: Text = printable) -> str:
    """Return the path of an export's directory as clients of ``nfs.export`` see it."""
    return f"{settings.nfs.export}/{text(path)}" if path else settings.nfs.export
