"""The marks between which files are evicted, as the status shows them before any eviction."""

from __future__ import annotations

from gateway.cache.eviction import DiskSpace, marks
from gateway.config import loader

SETTINGS = loader.from_mapping({"bucket": {"name": "b"}}, {})
ALMOST_EMPTY = DiskSpace(total=1000, used=100, high=800, slow=900)


def test_without_a_large_save_they_are_those_of_the_configuration() -> None:
    assert marks(SETTINGS, ALMOST_EMPTY, saved_bytes=0) == (700, 800)


def test_a_large_save_moves_both_down() -> None:
    assert marks(SETTINGS, ALMOST_EMPTY, saved_bytes=200) == (680, 700)
