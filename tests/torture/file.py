"""Computes what a file may contain after a crash, from the answers that its writer got.

Content is described by numbers: each WRITE fills units of 16 bytes with its number and the offset
of the unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

UNIT_BYTES = 16
HOLE = 0
"""The number for bytes that no WRITE wrote."""
_END = 1 << 62

Runs = Iterable[tuple[int, int]]
"""Pairs (number, bytes) from the beginning of a file. The number -1 stands for bytes that are of
no WRITE or at a wrong offset."""


class Impossible(Exception):
    """An observation contradicts the answers before it."""


class Extent(NamedTuple):
    """The bytes from start to end."""

    start: int
    end: int
    choices: frozenset[int]
    """The numbers of the WRITEs whose bytes may be here."""
    unsynced: int | None = None
    """The WRITE that becomes the only choice by a COMMIT with ``verifier``."""
    verifier: str = ""


@dataclass
class File:
    """The possible states of one file. ``least`` and ``largest`` limit its size, in bytes."""

    least: int = 0
    largest: int = 0
    unsynced_end: int = 0
    """The end of the acknowledged UNSTABLE WRITEs with ``verifier``."""
    verifier: str = ""
    extents: list[Extent] = field(default_factory=lambda: [Extent(0, _END, frozenset({HOLE}))])

    def copy(self) -> File:
        return File(self.least, self.largest, self.unsynced_end, self.verifier, list(self.extents))

    def _change(self, start: int, end: int, change: Callable[[Extent], Extent]) -> None:
        after = []
        for extent in self.extents:
            low, high = max(start, extent.start), min(end, extent.end)
            if low >= high:
                after.append(extent)
                continue
            if extent.start < low:
                after.append(extent._replace(end=low))
            after.append(change(extent._replace(start=low, end=high)))
            if high < extent.end:
                after.append(extent._replace(start=high))
        self.extents = [after[0]]
        for extent in after[1:]:
            if extent[2:] == self.extents[-1][2:]:
                self.extents[-1] = self.extents[-1]._replace(end=extent.end)
            else:
                self.extents.append(extent)

    def write_stable(self, start: int, end: int, number: int) -> None:
        """Apply a stable WRITE that was answered."""
        self._change(start, end, lambda e: Extent(e.start, e.end, frozenset({number})))
        self.least, self.largest = max(self.least, end), max(self.largest, end)

    def write_unstable(self, start: int, end: int, number: int, verifier: str) -> None:
        """Apply an UNSTABLE WRITE that was answered."""
        self._change(
            start,
            end,
            lambda e: Extent(e.start, e.end, e.choices | {number}, number, verifier),
        )
        self.largest = max(self.largest, end)
        if verifier != self.verifier:
            self.unsynced_end = 0
        self.unsynced_end, self.verifier = max(self.unsynced_end, end), verifier

    def write_unanswered(self, start: int, end: int, number: int) -> None:
        """Apply a WRITE without an answer: any part of it may have been written."""
        self._change(start, end, lambda e: Extent(e.start, e.end, e.choices | {number}))
        self.largest = max(self.largest, end)

    def commit(self, verifier: str) -> None:
        """Apply a COMMIT that was answered."""

        def settle(extent: Extent) -> Extent:
            if extent.unsynced is None or extent.verifier != verifier:
                return extent
            return Extent(extent.start, extent.end, frozenset({extent.unsynced}))

        self._change(0, _END, settle)
        if verifier == self.verifier:
            self.least, self.unsynced_end = max(self.least, self.unsynced_end), 0

    def truncate(self, size: int) -> None:
        """Apply a change of the size that was answered."""
        self._change(size, _END, lambda e: Extent(e.start, e.end, frozenset({HOLE})))
        self.least = self.largest = size
        self.unsynced_end = 0

    def truncate_unanswered(self, size: int) -> None:
        """Apply a change of the size without an answer."""
        self._change(size, _END, lambda e: Extent(e.start, e.end, e.choices | {HOLE}))
        self.least, self.largest = min(self.least, size), max(self.largest, size)
        self.unsynced_end = 0

    def require_size(self, size: int) -> None:
        """Raise Impossible if the file cannot have this size."""
        if not self.least <= size <= self.largest:
            raise Impossible(f"it has {size} bytes, not {self.least} to {self.largest}")

    def require_content(self, size: int, runs: Runs) -> None:
        """Raise Impossible if the file cannot have this size and this content."""
        self.require_size(size)
        at = 0
        extents = iter(self.extents)
        extent = next(extents)
        for number, length in runs:
            end = at + length
            while at < end:
                if extent.end <= at:
                    extent = next(extents)
                    continue
                if number not in extent.choices:
                    raise Impossible(
                        f"at {at} are bytes of WRITE {number}, not of {sorted(extent.choices)}"
                    )
                at = min(end, extent.end)
        if at != size:
            raise Impossible(f"{at} of {size} bytes could be read")
