"""The trash: what was deleted, until when it can be taken back, and why it stays."""

from __future__ import annotations

from typing import Any

from gateway import clock
from gateway.settings import Settings
from gateway.text import Text, printable, shown
from gateway.trash.rows import Entry, State, Totals
from gateway.trash.trash import Trash

NOT_KNOWN = "(its path is not known)"


def facts(settings: Settings, trash: Trash, text: Text = printable) -> list[dict[str, Any]]:
    """Return the facts about each checkpoint in the trash. Parameters: text, of names."""
    takes, now_ns = trash.totals(), trash.now_ns()
    export = settings.nfs.export
    return [
        _facts_of(export, one, takes.get(one.id, Totals()), now_ns, text) for one in trash.entries()
    ]


def summary(trash: Trash) -> dict[str, Any]:
    """Return what all of it takes, and when the next is removed."""
    takes, now_ns, entries = trash.totals(), trash.now_ns(), trash.entries()
    each = [takes.get(one.id, Totals()) for one in entries]
    left = [_left_seconds(one, now_ns) for one in entries if _stays(one) is None]
    return {
        "entries": len(entries),
        "local_bytes": sum(one.local for one in each),
        "bucket_bytes": sum(one.stored for one in each),
        "dirty_files": sum(one.dirty_files for one in each),
        "dirty_bytes": sum(one.dirty_size for one in each),
        "next_expiry_seconds": min(left, default=None),
        "staying": len(entries) - len(left),
    }


def _facts_of(export: str, entry: Entry, takes: Totals, now_ns: int, text: Text) -> dict[str, Any]:
    return {
        "id": entry.id,
        "path": f"{export}/{text(entry.path)}" if entry.path else NOT_KNOWN,
        "run": text(entry.run),
        "step": entry.step,
        "files": entry.files,
        "size_bytes": entry.size,
        "local_bytes": takes.local,
        "bucket_bytes": takes.stored,
        "dirty_files": takes.dirty_files,
        "dirty_bytes": takes.dirty_size,
        "deleted": clock.local_iso(entry.deleted_ns),
        "left_seconds": _left_seconds(entry, now_ns),
        "by": shown(entry.deleted_by),
        "reason": shown(entry.reason),
        "is_expiring": entry.state == State.EXPIRING,
        "stays": _stays(entry),
    }


def _left_seconds(entry: Entry, now_ns: int) -> float:
    return round(max(0, entry.expires_ns - now_ns) / clock.NS, 1)


def _stays(entry: Entry) -> str | None:
    """Return why a checkpoint stays although its grace is over, or None."""
    return entry.stays if entry.state == State.KEPT else None
