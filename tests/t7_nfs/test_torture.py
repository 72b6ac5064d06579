"""A short run of the torture on each engine: kills at random moments, and nothing is lost."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.torture.run import ENGINES, Plan, run

SECONDS = 30.0


@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_that_was_acknowledged_is_lost_to_kill_9(engine: str, tmp_path: Path) -> None:
    plan = Plan(secrets.randbits(32), engine, SECONDS)
    # The seed is shown when the test fails; `make torture SEED=…` repeats its choices.
    print(f"SEED={plan.seed}")
    found = run(tmp_path, plan, print)
    assert found.endswith("nothing lost"), found
