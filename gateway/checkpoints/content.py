"""Reads what small files and the ends of large ones say. Nothing is unpickled. Pure.

Bytes come from jobs that may have been killed in the middle, so whatever cannot be understood is a
reason why a checkpoint is not complete, and never an error.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.checkpoints import pickles
from gateway.checkpoints.archives import archive_is_whole
from gateway.checkpoints.facts import READ_MAX_BYTES, Entry, Place
from gateway.text import printable

TRACKER_MAX_BYTES = 4096
_ZIP = b"PK\x03\x04"
TENSORS = (b".pt", b".pth", b".bin", b".safetensors", b".ckpt")
"""The ends of the names of files of tensors."""
_JSON = (b".json", b"_METADATA", b"_sharding")
"""The same of JSON. Orbax's metadata have no other."""
_OCDBT = b".ocdbt"
"""A manifest of TensorStore's OCDBT, which Orbax saves with."""
_PICKLE = b".pkl"
"""Accelerate's random states. They are archives, since ``torch.save`` writes these."""


def text_in(place: Place, name: bytes) -> bytes | None:
    """Return what the tracker beside a place says, or None if there is none. Raises Unread."""
    entry = place.beside(name)
    if entry is None or not entry.is_file:
        return None
    return place.read(name, entry, 0, TRACKER_MAX_BYTES).strip()


def number_in(place: Place, name: bytes, prefix: str) -> int | None:
    """Return the step that the tracker beside a place names, or None if it names none. Raises
    Unread."""
    text = (text_in(place, name) or b"").decode("ascii", "replace")
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


def cut_off(place: Place, name: bytes, entry: Entry) -> str | None:
    """Return why a file ends before its kind must, or None. Raises Unread.

    Parameters: name, with the path below the place, or the name of the place itself.
    """
    if name.endswith(_JSON):
        # Larger ones are no metadata. They have no end that a part of them shows.
        return None if entry.size > READ_MAX_BYTES else _not_whole_json(place, name, entry)
    if name.endswith(_OCDBT):
        return _not_whole_ocdbt(place, name, entry)
    if not name.endswith((*TENSORS, _PICKLE)):
        return None
    if not entry.size:
        return f"{printable(name)} is empty"
    if name.endswith(b".safetensors"):
        is_whole = _safetensors_bytes(place, name, entry) == entry.size
        return None if is_whole else f"{printable(name)} ends before its last tensor"
    if is_archive(place, name, entry) and not archive_is_whole(place, name, entry):
        return f"{printable(name)} ends before the directory of its archive"
    if name.endswith(_PICKLE) and _pickle_is_cut_off(place, name, entry):
        return f"{printable(name)} ends too early"
    return None


def ends_by_kind(place: Place, name: bytes, entry: Entry) -> bool:
    """Return whether a file is of a kind whose end shows that it is whole, and is whole. Raises
    Unread."""
    if not name.endswith((b".json", *TENSORS)) or cut_off(place, name, entry) is not None:
        return False
    return name.endswith(b".json") or has_own_index(place, name, entry)


def is_archive(place: Place, name: bytes, entry: Entry) -> bool:
    """Return whether a file is what ``torch.save`` writes: a zip archive. Older versions wrote a
    pickle, whose end nothing shows. Raises Unread."""
    return place.read(name, entry, 0, len(_ZIP)) == _ZIP


def has_own_index(place: Place, name: bytes, entry: Entry) -> bool:
    """Return whether a file of tensors, which ends as it must, lists what is in it. Raises
    Unread."""
    return name.endswith(b".safetensors") or is_archive(place, name, entry)


def _not_whole_json(place: Place, name: bytes, entry: Entry) -> str | None:
    text = place.read(name, entry, 0, READ_MAX_BYTES).strip()
    try:
        json.loads(text)
    except (ValueError, RecursionError) as exc:
        # What else is wrong with it, or whether it is lines of JSON, shows nothing of its end.
        if _is_at_end(exc) or not text.endswith((b"}", b"]")):
            return f"{printable(name)} ends too early"
    return None


def _is_at_end(exc: Exception) -> bool:
    """Return whether more text could have followed where it is wrong."""
    if not isinstance(exc, json.JSONDecodeError):
        return False
    return exc.pos >= len(exc.doc) or exc.msg.startswith("Unterminated")


def _not_whole_ocdbt(place: Place, name: bytes, entry: Entry) -> str | None:
    """It begins with four bytes that tell its kind, and its length in the next eight."""
    length = int.from_bytes(place.read(name, entry, 4, 8), "little")
    return None if length == entry.size else f"{printable(name)} ends too early"


def _pickle_is_cut_off(place: Place, name: bytes, entry: Entry) -> bool:
    """Return whether a pickle has no end. Of an archive, or a large one, nothing is said."""
    if entry.size > READ_MAX_BYTES or is_archive(place, name, entry):
        return False
    try:
        pickles.read(place.read(name, entry, 0, entry.size))
    except pickles.CutOff:
        return True
    except pickles.NotUnderstood:
        pass
    return False


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
