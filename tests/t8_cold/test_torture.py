"""A short run of the cold torture: a small disk is filled, kills meanwhile, and no wrong byte."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.torture.cold import run

TIMES = 1.75
READERS = 8


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_a_disk_that_is_filled_again_and_again_serves_no_wrong_byte(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    # The seed is shown when the test fails; `make torture-cold CLIENT=load SEED=…` repeats it.
    print(f"SEED={seed}")
    found = run(tmp_path, seed, TIMES, READERS, "load")
    assert "no wrong byte" in found, found
    assert "kills: " in found and not found.endswith("kills: "), found
