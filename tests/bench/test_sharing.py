"""The programs that contend for files, on local files, and what is made of their reports."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.bench import sharing
from tests.support.client import GUEST
from tests.support.guest import share
from tests.support.guest.share import Records, Report, Step, Steps

PROGRAM = GUEST / "share.py"
SECONDS = 1.0
MEETINGS_MAX = 20


@pytest.fixture
def memory() -> Iterator[Path]:
    """Make a directory on a tmpfs."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def run(*arguments: object) -> dict[str, object]:
    words = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def report(*arguments: object) -> Report:
    return Report(**run(*arguments))  # type: ignore[arg-type]


def records(path: Path) -> Records:
    return Records(**run("records", path))  # type: ignore[arg-type]


def test_processes_change_one_table(memory: Path) -> None:
    steps = set[str]()
    # Whether a process finds the lock file of another one in a second is up to the scheduler.
    for _ in range(MEETINGS_MAX):
        outcome = report("table", memory, SECONDS, 3)
        assert outcome.errors == []
        assert len(outcome.rounds) == 3 and sum(outcome.rounds.values()) > 0
        steps |= set(outcome.longest_wait_seconds)
        if "lock" in steps:
            break
    assert {"link", "lock", "rename", "unlink"} <= steps


@pytest.mark.parametrize("how", ["append", "ask"])
def test_processes_append_to_one_file(memory: Path, how: str) -> None:
    path = memory / "records"
    outcome = report(how, path, SECONDS, "a", "b")
    assert outcome.errors == []
    assert sum(outcome.rounds.values()) > 0
    assert asdict(records(path)) == {"counts": outcome.rounds, "errors": []}


def test_a_lost_change_of_the_table_is_found(memory: Path) -> None:
    (memory / "table").write_text("one 3\ntwo 4\n")
    assert share.table_errors(str(memory), {"one": 3, "two": 4}) == []
    [lost] = share.table_errors(str(memory), {"one": 3, "two": 5})
    assert "'two': 4" in lost


def test_what_is_left_beside_the_table_is_found(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "LEFT_SECONDS", 0.0)
    (memory / "table").write_text("")
    (memory / "table~").touch()
    assert share.table_errors(str(memory), {}) == ["the directory has ['table', 'table~']"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [*lines[:1], *lines[2:]], ["line 1 is a 2, not a 1"]),
        (lambda lines: [*lines, lines[0]], ["line 3 is a 0, not a 3"]),
        (lambda lines: [lines[0][:5] + lines[1], lines[2]], ["is torn", "not a 0"]),
        (lambda lines: [lines[0], bytes(len(lines[1]) - 1) + b"\n", lines[2]], ["torn", "not a 1"]),
    ],
    ids=["lost", "twice", "written over", "zeros"],
)
def test_a_record_that_is_not_whole_is_found(memory: Path, change: object, said: list[str]) -> None:
    assert callable(change)
    path = memory / "records"
    path.write_bytes(b"".join(change([share.record("a", number, 20) for number in range(3)])))
    errors = records(path).errors
    assert len(errors) == len(said)
    assert all(text in error for text, error in zip(said, errors, strict=True))


def test_a_lock_that_is_never_granted_is_an_error(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "PATIENCE_SECONDS", 0.2)
    path = memory / "records"
    with path.open("wb") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        for asks in (False, True):
            [error] = share.run_append(str(path), SECONDS, ["a"], asks).errors
            assert "no lock after 0.2 s" in error


def test_a_process_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "GRACE_SECONDS", 0.2)

    def hang(_steps: Steps, _until: float) -> int:
        time.sleep(3600)
        return 0

    outcome = share.contend({"quick": lambda _steps, _until: 1, "slow": hang}, 0.0)
    assert outcome.rounds == {"quick": 1}
    [error] = outcome.errors
    assert error.startswith("slow hangs: ")


def test_a_process_that_is_killed_is_reported() -> None:
    def die(_steps: Steps, _until: float) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 1

    outcome = share.contend({"one": die}, 0.0)
    assert outcome.errors == ["one: ended without a word"]
    assert sharing.faults(outcome) == [*outcome.errors, "one did nothing"]


def test_a_long_step_is_a_fault_unless_the_machine_stood_still() -> None:
    step = Step("rename", 100.0, 12.0)
    still = [Step("late", 95.0, 6.0), Step("late", 100.5, 2.5)]
    outcome = Report()
    share.judge(outcome, [step], [])
    assert sharing.faults(outcome) == ["rename took 12.0 s, without what the client stood still"]
    excused = Report()
    share.judge(excused, [step], still)
    assert excused.longest_seconds == {"rename": 12.0}
    assert excused.longest_wait_seconds == {"rename": 9.0}  # 100 to 103 is covered
    assert sharing.faults(excused) == []
    assert "rename 12.00 (for the server 9.00)" in sharing.told(excused)


def test_trouble_is_found_in_logs() -> None:
    kernel = "[1.0] nfs: server 10.0.2.2 not responding, still trying\n[2.0] random: crng init\n"
    assert sharing.trouble(kernel, sharing.CLIENT_TROUBLE) == [kernel.splitlines()[0]]
    server = (
        "vm : ganesha.nfsd-1[svc_1] f :FSAL :CRIT :no\nvm : ganesha.nfsd-1[x] f :FSAL :EVENT :a"
    )
    assert sharing.trouble(server, sharing.SERVER_TROUBLE) == [server.splitlines()[0]]
    many = kernel.splitlines()[:1] * (sharing.SHOWN_LINES_MAX + 5)
    assert sharing.trouble("\n".join(many), sharing.CLIENT_TROUBLE)[-1] == "5 more lines"
