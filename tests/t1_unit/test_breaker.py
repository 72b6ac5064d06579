"""A bucket that fails is asked again after pauses that double."""

from __future__ import annotations

import random

import pytest

from gateway.common import clock
from gateway.objectstore.circuit_breaker import CircuitBreaker


def test_pauses_double_and_what_fails_together_is_one_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_seconds = 100.0
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: at_seconds)
    monkeypatch.setattr(random, "uniform", lambda _least, most: most)
    breaker = CircuitBreaker(5.0)
    assert breaker.pause_seconds() == 0
    for failures, pause_seconds in enumerate((1.0, 2.0, 4.0, 5.0, 5.0), 1):
        breaker.failed()
        breaker.failed()
        assert (breaker.failures, breaker.pause_seconds()) == (failures, pause_seconds)
        at_seconds += pause_seconds
    breaker.worked()
    breaker.failed(is_slow=True)
    assert (breaker.failures, breaker.pause_seconds()) == (1, 5.0)
    breaker.worked()
    breaker.failed()
    assert (breaker.failures, breaker.pause_seconds()) == (0, 5.0)
    breaker.reset()
    breaker.failed()
    assert (breaker.failures, breaker.pause_seconds()) == (1, 1.0)
