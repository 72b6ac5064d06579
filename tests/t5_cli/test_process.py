"""One supervised child: its back-off, on a clock of the test's own, and its death with `up`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gateway.common import clock
from gateway.common.process import start_ticks
from gateway.processes.supervisor import (
    LINE_MAX_BYTES,
    ChildProcess,
    Command,
    Phase,
    Say,
    _die_with,
)
from tests.support.waiting import until


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(clock, "monotonic_seconds", lambda: self.seconds)


def command(*argv: str, log: Path | None = None) -> Command:
    return Command("child", argv, dict(os.environ), 1.0, "look", log=log)


def run_to_death(child: ChildProcess, seconds: float, moved: Clock) -> None:
    """Start a child that ends by itself, and move the clock by its life in seconds."""
    child.tick()
    pid = child.pid
    assert pid is not None
    # This waits without reaping the child, because tick must notice the death.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    moved.seconds += seconds
    child.tick()
    assert child.phase is Phase.WAITING


def pause(child: ChildProcess, moved: Clock) -> float:
    """Wait until the back-off is over. Returns its seconds."""
    due = child.due()
    assert due is not None
    seconds = due - moved.seconds
    moved.seconds = due - 0.001
    child.tick()
    assert child.phase is Phase.WAITING, "started before the back-off was over"
    moved.seconds = due
    return seconds


def into(lines: list[str]) -> Say:
    """Return what appends the lines of a child."""
    return lambda who, text: lines.append(f"{who}: {text}")


def test_back_off_doubles_to_its_limit_and_forgets_after_health(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved = Clock(monkeypatch)
    lines: list[str] = []
    child = ChildProcess(command("true"), into(lines))
    pauses = []
    for _ in range(8):
        run_to_death(child, 0.1, moved)
        pauses.append(pause(child, moved))
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30])
    assert any("died 5 times in a row without serving" in line for line in lines)
    run_to_death(child, 61, moved)
    assert pause(child, moved) == pytest.approx(0.5)
    assert child.restarts == 8


def test_the_last_line_without_a_newline_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = Clock(monkeypatch)
    lines: list[str] = []
    child = ChildProcess(command("printf", r"one\ntwo"), into(lines))
    run_to_death(child, 0.1, moved)
    assert "child: one" in lines
    assert "child: two" in lines


def test_an_endless_line_is_cut() -> None:
    lines: list[str] = []
    child = ChildProcess(command("sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x"), into(lines))
    child.tick()

    def ended() -> bool:
        child.read_output()
        child.tick()
        return child.phase is Phase.WAITING

    until(ended, "the end of the child")
    shown = [line.removeprefix("child: ") for line in lines if line.startswith("child: ")]
    assert sum(map(len, shown)) == 100_000
    assert max(map(len, shown)) <= LINE_MAX_BYTES + 65_536


def test_a_child_whose_parent_died_before_it_could_ask_does_not_run() -> None:
    nobody = 2**22 + 1
    result = subprocess.run(["true"], preexec_fn=_die_with(nobody))
    assert result.returncode == 1
    assert subprocess.run(["true"], preexec_fn=_die_with(os.getpid())).returncode == 0


def test_retired_before_its_first_start() -> None:
    child = ChildProcess(command("true"), into([]))
    child.stop()
    child.tick()
    assert child.phase is Phase.STOPPED
    assert child.pid is None


def test_a_process_is_known_by_its_start() -> None:
    assert start_ticks(os.getpid()) == start_ticks(os.getpid())
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert start_ticks(ended.pid) is None, "a zombie does not run"
    assert start_ticks(ended.pid) is None
