"""Clocks of the machine that a test sets, for tests of the known time."""

from __future__ import annotations

import pytest

from gateway.common import clock
from gateway.common.clock import ClockReading
from gateway.lifecycle.retention.policy import DAY_NS


def read_at(monkeypatch: pytest.MonkeyPatch, days: float, uptime_days: float) -> None:
    """Set the clocks: days from now, and since the start of the machine."""
    read = ClockReading(clock.now_ns() + int(days * DAY_NS), "boot", int(uptime_days * DAY_NS))
    monkeypatch.setattr(clock, "reading", lambda: read)
