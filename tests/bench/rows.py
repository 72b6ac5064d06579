"""The rows of the report: work, peer, target, and the result of the alternating runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class Target:
    """A bound for the median comparison."""

    bound: float
    at_most: bool = False

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"

    def met_by(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


@dataclass(frozen=True)
class Row:
    """One line of the report.

    Args:
        counts: the compared number: our value divided by the peer's, our value minus the peer's, or
            our value alone.
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
    """Return the quartiles of one value or more. Raises ValueError without a value."""
    if not values:
        raise ValueError("no values")
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


@dataclass(frozen=True)
class Measured:
    """A row with the values of each alternation, in the row's unit."""

    row: Row
    ours: tuple[float, ...]
    peers: tuple[float, ...]

    @property
    def comparison(self) -> Quartiles:
        """The quartiles of the comparisons of neighbouring runs, pair by pair."""
        if self.row.counts == "ours":
            return quartiles(self.ours)
        pairs = zip(self.ours, self.peers, strict=True)
        if self.row.counts == "difference":
            return quartiles([ours - peer for ours, peer in pairs])
        return quartiles([ours / peer for ours, peer in pairs])

    @property
    def verdict(self) -> str:
        """PASS or below, or an empty text if the row has no target."""
        if self.row.target is None:
            return ""
        return "PASS" if self.row.target.met_by(self.comparison.median) else "below"

    def cells(self) -> tuple[str, ...]:
        """Return the row's columns, as ``report.COLUMNS`` names them."""
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
