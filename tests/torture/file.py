"""What a file may hold after a crash, given what its writer was answered.

Content is told by number: each WRITE fills units of 16 bytes with its number and their offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

UNIT_BYTES = 16
HOLE = 0
"""The number of bytes that no WRITE made."""
_END = 1 << 62

Runs = Iterable[tuple[int, int]]
"""(number, bytes), from the beginning of a file. -1: bytes of no WRITE, or at a wrong offset."""


class Impossible(Exception):
    """What was seen contradicts what was answered before."""


class Extent(NamedTuple):
    """Bytes from start to end."""

    start: int
    end: int
    choices: frozenset[int]
    """Numbers of the WRITEs that may be seen here."""
    unsynced: int | None = None
    """The WRITE that a COMMIT with this verifier makes the only choice."""
    verifier: str = ""


@dataclass
class File:
    """Sizes in bytes: the least and the largest that may be seen."""

    least: int = 0
    largest: int = 0
    unsynced_end: int = 0
    """Where the acknowledged UNSTABLE WRITEs of this verifier end."""
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
        """A stable WRITE was answered."""
        self._change(start, end, lambda e: Extent(e.start, e.end, frozenset({number})))
        self.least, self.largest = max(self.least, end), max(self.largest, end)

    def write_unstable(self, start: int, end: int, number: int, verifier: str) -> None:
        """An UNSTABLE WRITE was answered."""
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
        """A WRITE was sent; any part of it may have happened."""
        self._change(start, end, lambda e: Extent(e.start, e.end, e.choices | {number}))
        self.largest = max(self.largest, end)

    def commit(self, verifier: str) -> None:
        """A COMMIT was answered."""

        def settle(extent: Extent) -> Extent:
            if extent.unsynced is None or extent.verifier != verifier:
                return extent
            return Extent(extent.start, extent.end, frozenset({extent.unsynced}))

        self._change(0, _END, settle)
        if verifier == self.verifier:
            self.least, self.unsynced_end = max(self.least, self.unsynced_end), 0

    def truncate(self, size: int) -> None:
        """A new size was answered."""
        self._change(size, _END, lambda e: Extent(e.start, e.end, frozenset({HOLE})))
        self.least = self.largest = size
        self.unsynced_end = 0

    def truncate_unanswered(self, size: int) -> None:
        """A new size was sent."""
        self._change(size, _END, lambda e: Extent(e.start, e.end, e.choices | {HOLE}))
        self.least, self.largest = min(self.least, size), max(self.largest, size)
        self.unsynced_end = 0

    def require_size(self, size: int) -> None:
        """Raises Impossible when the file cannot have that size."""
        if not self.least <= size <= self.largest:
            raise Impossible(f"it has {size} bytes, not {self.least} to {self.largest}")

    def require_content(self, size: int, runs: Runs) -> None:
        """Raises Impossible when it cannot have that size and content."""
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
