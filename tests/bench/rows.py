"""Rows of the report: what is compared with whom, the target, what alternating runs say."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class Target:
    """A bound of the median comparison."""

    bound: float
    at_most: bool = False

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"

    def met_by(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


@dataclass(frozen=True)
class Row:
    """One line of the report.

    Parameters: counts, what is compared: our value over the peer's, how much more ours is, or ours
    alone.
    """

    work: str
    setting: str
    peer: str
    unit: str
    target: Target | None = None
    counts: Literal["ratio", "difference", "ours"] = "ratio"


class Quartiles(NamedTuple):
    low: float
    median: float
    high: float


def quartiles(values: Sequence[float]) -> Quartiles:
    """Of one value or more. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


@dataclass(frozen=True)
class Measured:
    """A row with what was measured in each alternation, in the row's unit."""

    row: Row
    ours: tuple[float, ...]
    peers: tuple[float, ...]

    @property
    def comparison(self) -> Quartiles:
        """Of the comparisons of neighbouring runs, pair by pair."""
        if self.row.counts == "ours":
            return quartiles(self.ours)
        pairs = zip(self.ours, self.peers, strict=True)
        if self.row.counts == "difference":
            return quartiles([ours - peer for ours, peer in pairs])
        return quartiles([ours / peer for ours, peer in pairs])

    @property
    def verdict(self) -> str:
        """PASS or below; empty when the row has no target."""
        if self.row.target is None:
            return ""
        return "PASS" if self.row.target.met_by(self.comparison.median) else "below"

    def cells(self) -> tuple[str, ...]:
        """The row's columns, as ``report.COLUMNS`` names them."""
        row, found = self.row, self.comparison
        forms = {"ratio": "{:.2f}".format, "difference": "{:+,.0f}".format, "ours": _figure}
        low, median, high = map(forms[row.counts], found)
        return (
            row.work,
            row.setting,
            row.peer,
            f"{_figure(statistics.median(self.ours))} {row.unit}",
            f"{_figure(statistics.median(self.peers))} {row.unit}",
            f"{median} ({low} … {high})" if len(self.ours) > 1 else median,
            str(row.target or ""),
            self.verdict,
        )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
