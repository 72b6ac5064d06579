"""Reads the metrics of checkpoints from their JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gateway.checkpoints.facts import READ_MAX_BYTES, Entry, Unread
from gateway.checkpoints.tree import View
from gateway.retention.facts import Checkpoint, Measure
from gateway.retention.policy import Best
from gateway.text import printable, shown


class Metrics:
    """The metrics that were read. While the members of a checkpoint are the same, its file is not
    read again: it may be evicted."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, str, str], Measure] = {}
        self.wanted: set[int] = set()
        """The evicted files that would have to be read."""

    def measure(self, view: View, one: Checkpoint, best: Best) -> Measure:
        """Return the metric of a checkpoint. Raises TryAgain.

        Parameters: view; one, a complete checkpoint; best, which says which file and key.
        """
        what = (one.ino, one.evidence, best.file, best.key)
        found = self._known.get(what)
        if found is None:
            found = self._read(view, one, best)
            if not found.is_unread:
                self._known[what] = found
        return found

    def keep_only(self, evidences: set[str]) -> None:
        """Forget the metrics of checkpoints that are gone or are not as they were."""
        self._known = {what: found for what, found in self._known.items() if what[1] in evidences}

    def _read(self, view: View, one: Checkpoint, best: Best) -> Measure:
        entry = _entry(view, one.ino, best.file)
        name = best.file.encode()
        if entry is None or not entry.is_file:
            return Measure(None, f"{shown(best.file)} is missing")
        if entry.size > READ_MAX_BYTES:
            return Measure(None, f"{shown(best.file)} is larger than {READ_MAX_BYTES >> 20} MiB")
        try:
            document = json.loads(view.texts.read(name, entry, 0, READ_MAX_BYTES))
        except Unread as exc:
            if entry.is_absent:
                self.wanted.add(entry.ino)
            return Measure(None, str(exc), is_unread=True)
        except (ValueError, RecursionError):
            return Measure(None, f"{printable(name)} is no JSON")
        value = _number(_value(document, best.key))
        if value is None:
            return Measure(None, f"{printable(name)} has no number {shown(best.key)}")
        return Measure(value)


def _entry(view: View, ino: int, path: str) -> Entry | None:
    entry: Entry | None = None
    for name in path.encode().split(b"/"):
        entry = view.entry(ino, name)
        if entry is None:
            return None
        ino = entry.ino
    return entry


def _number(value: Any) -> float | None:
    """Return a value if it is a number that can be compared."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        # JSON has whole numbers of any length.
        return None
    return number if math.isfinite(number) else None


def _value(document: Any, key: str) -> Any:
    """Return what a key leads to. A dot in it leads into an object."""
    if not isinstance(document, Mapping):
        return None
    if key in document:
        return document[key]
    first, dot, rest = key.partition(".")
    return _value(document.get(first), rest) if dot else None
