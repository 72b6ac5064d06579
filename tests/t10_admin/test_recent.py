"""Facts that take long to get are kept, may be late, and are never older than that."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from admin_api.dashboard import AFTER_SECONDS, Recent
from gateway.common import clock
from gateway.common.errors import TryAgain
from tests.support.waiting import until

KEEP, LATE = 5.0, 60.0


class Source:
    """Counts from one. Its answers wait while the gate is shut."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self.count = 0
        self.begun = threading.Event()

    def get(self) -> int:
        self.begun.set()
        assert self.gate.wait(30)
        if self.fails:
            raise TryAgain
        self.count += 1
        return self.count


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let time pass. Getting takes none of it."""
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])

    def pass_(seconds: float) -> None:
        now[0] += seconds

    return pass_


def test_late_facts_are_given_while_new_ones_are_got(later: Callable[[float], None]) -> None:
    source = Source()
    made = Recent(source.get, KEEP, late_seconds=LATE)
    assert made.value() == 1
    later(KEEP - 0.1)
    assert made.value() == 1
    assert source.count == 1
    source.gate.clear()
    source.begun.clear()
    later(LATE)
    # No caller waits, and only one thread at a time gets new facts, after the answer.
    assert [made.value() for _ in range(3)] == [1, 1, 1]
    assert not source.begun.wait(AFTER_SECONDS / 2)
    source.gate.set()
    until(lambda: made.value() == 2, "the new facts")
    assert source.count == 2
    # Facts that are later than they may be are not given.
    later(KEEP + LATE)
    assert made.value() == 3


def test_facts_that_cannot_be_got_are_late_and_then_missing(
    later: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    made = Recent(source.get, KEEP, late_seconds=LATE)
    source.fails = True
    with pytest.raises(TryAgain):
        made.value()
    source.fails = False
    assert made.value() == 1
    source.fails = True
    later(KEEP + 7)
    assert made.value() == 1
    until(lambda: "7 s late" in caplog.text, "a line of the log")
    until(lambda: not made._lock.locked(), "the thread has ended")
    later(LATE)
    with pytest.raises(TryAgain):
        made.value()
    source.fails = False
    assert made.value() == 2


def test_facts_are_kept_for_as_long_as_they_are_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])

    def get() -> float:
        now[0] += 2.0
        return now[0]

    made = Recent(get, 0.0, 0.01)
    assert made.value() == 2.0
    now[0] += 197.9
    assert made.value() == 2.0
    now[0] += 0.2
    assert made.value() > 2.0
    # What may be late would be too old after all of that.
    made = Recent(get, 0.0, 0.01, 30.0)
    value = made.value()
    now[0] += 29.9
    assert made.value() == value
    now[0] += 30.2
    assert made.value() == now[0]
