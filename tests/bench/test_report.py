"""The report computes comparisons and verdicts from measured values."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.bench import report
from tests.bench.__main__ import DOCS, GROUPS
from tests.bench.rows import Measured, Row, Target


def measured(
    ours: tuple[float, ...],
    peers: tuple[float, ...],
    target: Target | None = None,
    counts: Literal["ratio", "difference", "ours"] = "ratio",
) -> Measured:
    row = Row("work", "setting", "peer", "op/s", target, counts)
    return Measured(row, ours, peers)


def test_neighbouring_runs_are_compared_not_medians() -> None:
    """A machine that slows down in the middle must not decide the comparison."""
    measurement = measured((100.0, 50.0, 10.0), (200.0, 100.0, 5.0))
    assert measurement.comparison == (0.5, 0.5, 1.25)


@pytest.mark.parametrize(
    ("target", "ratio", "verdict"),
    [
        (Target(0.95), 0.95, "PASS"),
        (Target(0.95), 0.94, "below"),
        (Target(1.2, at_most=True), 1.2, "PASS"),
        (Target(1.2, at_most=True), 1.3, "below"),
        (None, 0.1, ""),
    ],
)
def test_the_median_is_held_against_the_target(
    target: Target | None, ratio: float, verdict: str
) -> None:
    values = tuple(100 * factor for factor in (ratio, ratio * 5, ratio / 5))
    assert measured(values, (100.0,) * 3, target).verdict == verdict


def test_a_bound_of_ours_alone_is_not_compared() -> None:
    measurement = measured((500.0, 510.0), (1.0, 2.0), Target(512, at_most=True), counts="ours")
    assert measurement.comparison.median == 505.0
    assert measurement.verdict == "PASS"


def test_a_difference_is_in_the_unit_of_the_row() -> None:
    measurement = measured((450.0,), (200.0,), Target(300, at_most=True), counts="difference")
    assert measurement.comparison.median == 250
    assert measurement.verdict == "PASS"


def test_only_the_table_of_the_group_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    begin, end = report.markers("names")
    others = "".join(f"{line}\n" for line in report.markers("bytes"))
    path.write_text(f"before\n{others}{begin}\nold\n{end}\nafter\n")
    rows = [
        measured((1500.0, 1500.0), (1000.0, 1000.0), Target(2)),
        measured((1500.0, 1500.0), (1000.0, 1000.0), Target(1)),
        measured((1500.0, 1500.0), (1000.0, 1000.0)),
    ]
    generated = report.section("This machine.", rows, 2)
    report.write(path, "names", generated)
    report.write(path, "names", generated)
    assert path.read_text() == f"before\n{others}{begin}\n{generated}{end}\nafter\n"
    assert "\nThis machine. 2 alternations a row. 1 of 2 targets are met.\n\n| work |" in generated
    assert (
        "| work | setting | peer | 1,500 op/s | 1,000 op/s | 1.50 (1.50 … 1.50) | ≥ 2 | below |"
        in generated
    )


def test_what_is_measured_once_says_so() -> None:
    assert "Measured once.\n" in report.section("This machine.", [measured((1.0,), (1.0,))], 7)


def test_a_report_without_markers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text("by hand\n")
    with pytest.raises(ValueError, match="bench names: begin"):
        report.write(path, "names", "table\n")
    assert path.read_text() == "by hand\n"


def test_the_report_has_a_place_for_each_group() -> None:
    text = DOCS.read_text()
    for group in GROUPS:
        begin, end = report.markers(group)
        assert text.count(begin) == text.count(end) == 1, group
