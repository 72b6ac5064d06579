"""Rates by the time of day."""

from __future__ import annotations

import pytest

from gateway.common import units
from gateway.common.units import parse

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "start", "end", "rate"),
    [
        ("08:00-20:00 200MiB", 480, 1200, 200 * MIB),
        ("22:30-06:00 1.5GiB/s", 1350, 360, 1536 * MIB),
        ("00:00-24:00 1000", 0, 1440, 1000),
        ("20:00-08:00 0", 1200, 480, 0),
    ],
)
def test_an_entry_says_when_and_how_fast(text: str, start: int, end: int, rate: float) -> None:
    assert parse(text) == (start, end, rate)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must look like"),
        ("8:00-20:00 200MiB", "must look like"),
        ("08:00-20:00 200MB", "must look like"),
        ("08:00-20:00", "must look like"),
        ("08:00-20:61 1", "must look like"),
        ("08:00-25:00 1", "names a time that is not of a day"),
        ("24:00-08:00 1", "names a time that is not of a day"),
        ("08:00-08:00 1", "is empty"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_the_first_entry_that_fits_counts() -> None:
    spans = [parse("22:00-06:00 10"), parse("00:00-12:00 20")]
    rates = {h: units.rate_at(spans, h * 60, 7) for h in (0, 5, 6, 11, 12, 21, 22, 23)}
    assert rates == {0: 10, 5: 10, 6: 20, 11: 20, 12: 7, 21: 7, 22: 10, 23: 10}
