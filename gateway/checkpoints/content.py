"""Reads what small files and the ends of large ones say. Nothing is unpickled. Pure.

Bytes come from jobs that may have been killed in the middle, so whatever cannot be understood is a
reason why a checkpoint is not complete, and never an error.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.checkpoints.facts import READ_MAX_BYTES, Entry, Place
from gateway.text import printable

TRACKER_MAX_BYTES = 4096
_ZIP = b"PK\x03\x04"
_ZIP_END = b"PK\x05\x06"
_ZIP_END_BYTES = 22


def number_in(place: Place, name: bytes, prefix: str) -> int | None:
    """Return the step that the tracker beside a place names, or None if it names none. Raises
    Unread."""
    entry = place.beside(name)
    if entry is None or not entry.is_file:
        return None
    text = place.read(name, entry, 0, TRACKER_MAX_BYTES).decode("ascii", "replace").strip()
    digits = text.removeprefix(prefix)
    is_number = text.startswith(prefix) and digits.isascii() and digits.isdigit()
    return int(digits) if is_number and len(digits) <= 18 else None


def not_json(place: Place, name: bytes, entry: Entry) -> tuple[str | None, Any]:
    """Return why a file in a place cannot be used as a JSON object, or None, and the object.
    Raises Unread."""
    if entry.size > READ_MAX_BYTES:
        return f"{printable(name)} is larger than {READ_MAX_BYTES >> 20} MiB", None
    try:
        found = json.loads(place.read(name, entry, 0, READ_MAX_BYTES))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return f"{printable(name)} is no whole JSON object", None
    return None, found


def missing_shard(place: Place, name: bytes, entry: Entry) -> str | None:
    """Return why the shards that an index names are not all there, or None. Raises Unread."""
    reason, index = not_json(place, name, entry)
    if reason is not None:
        return reason
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        return f"{printable(name)} names no shards"
    if not all(isinstance(shard, str) for shard in shards.values()):
        return f"{printable(name)} names no shards"
    for shard in sorted(set(shards.values())):
        path = shard.encode("utf-8", "surrogateescape")
        found = place.inside(*path.split(b"/"))
        if found is None or not found.is_file:
            return f"shard {printable(path)} is missing"
        if not found.size:
            return f"shard {printable(path)} is empty"
    return None


def cut_off(place: Place, name: bytes, entry: Entry) -> str | None:
    """Return why a file of tensors seems to end too early, or None. Raises Unread."""
    if not entry.size:
        return f"{printable(name)} is empty"
    if name.endswith(b".safetensors"):
        is_whole = _safetensors_bytes(place, name, entry) == entry.size
        return None if is_whole else f"{printable(name)} ends before its last tensor"
    # torch.save writes a zip archive. Older versions wrote a pickle, whose end nothing shows.
    if place.read(name, entry, 0, len(_ZIP)) != _ZIP:
        return None
    end = place.read(name, entry, max(0, entry.size - _ZIP_END_BYTES), _ZIP_END_BYTES)
    is_whole = end.startswith(_ZIP_END)
    return None if is_whole else f"{printable(name)} ends before the directory of its archive"


def _safetensors_bytes(place: Place, name: bytes, entry: Entry) -> int | None:
    """Return the length that the header of a file of safetensors tells, or None."""
    length = int.from_bytes(place.read(name, entry, 0, 8), "little")
    if length > min(READ_MAX_BYTES, entry.size - 8):
        return None
    try:
        header = json.loads(place.read(name, entry, 8, length))
        ends = [one["data_offsets"][1] for key, one in header.items() if key != "__metadata__"]
        return 8 + length + int(max(ends, default=0))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
