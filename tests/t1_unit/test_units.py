"""Sizes as people read them."""

from __future__ import annotations

import pytest

from gateway.common.units import size


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1234 << 20, "1.2 GiB"),
        (1024**2 - 1, "1.0 MiB"),
        (1024**4 - 1, "1.0 TiB"),
        (5000 * 1024**5, "5000.0 PiB"),
    ],
)
def test_a_size_has_the_largest_unit_of_which_it_is_one(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text
