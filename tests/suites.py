"""Run the required suites: ``python -m tests.suites test`` or ``check``, as make does.

Two suites run side by side, so that both cores are used: whichever ends first is followed by the
next one. The tests that depend on time follow by themselves: beside others they would measure
those. What fails is run once
more at the end, with nothing beside it. A test that passes then is UNSTABLE: it is named with both
outputs, and a run with more than UNSTABLE_MAX of them fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SIDE_BY_SIDE = 2
UNSTABLE_MAX = 3
AGAIN_MAX = 20
"""With more failures than this nothing is run again: they are no accident."""
PROGRESS_SECONDS = 60.0
SOME_FAILED = 1
"""``pytest.ExitCode.TESTS_FAILED``. Any other code but 0 says that pytest did not run the tests."""


@dataclass(frozen=True)
class Lane:
    """Suites that one process of pytest runs."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What is run. Of the lanes of one step, ``SIDE_BY_SIDE`` run at a time, in their order."""

    steps: tuple[tuple[Lane, ...], ...]


def suites(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}" for name in names)


def without(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"--ignore={path}" for path in paths)


LONG = (
    "t4_drain",
    "t9_checkpoints",
    "t10_admin",
    "t12_recovery",
    "t11_package",
    "t7_nfs",
    "t8_cold",
    "t3_namespace",
    "t5_cli",
    "t6_fsal",
    "t2_db",
)
"""The longest first, so that the last ones end at about the same time."""
# make lint runs the first; the others need a virtual environment, and a Slurm, of their own.
NOT_REQUIRED = suites("t0_tidy", "frameworks", "slurm")
# No drain, no kills, one mount, and of PostgreSQL only the property test of all operations.
NOT_DAILY = suites(
    "t2_db/test_failover.py",
    "t2_db/test_fate.py",
    "t2_db/test_fence.py",
    "t2_db/test_standby.py",
    "t3_namespace/test_crash.py",
    "t6_fsal/test_control_kills.py",
    "t6_fsal/test_outage.py",
)
SHARED = ("-m", "not alone")
PLANS = {
    "test": Plan(
        (
            (
                *(Lane(name, (*SHARED, *suites(name))) for name in LONG),
                Lane("rest", (*SHARED, "tests", *without((*suites(*LONG), *NOT_REQUIRED)))),
            ),
            (Lane("alone", ("-m", "alone", "tests", *without(NOT_REQUIRED))),),
        )
    ),
    "check": Plan(
        (
            (
                Lane(
                    "names",
                    (
                        *SHARED,
                        *suites("t1_unit", "t2_db", "t3_namespace"),
                        *without(NOT_DAILY),
                        *("-k", "not postgres or test_model"),
                        "tests/t7_nfs/test_save.py::test_a_saved_checkpoint_reaches_the_bucket",
                    ),
                ),
                Lane("server", (*SHARED, *suites("t6_fsal"), *without(NOT_DAILY))),
            ),
        )
    ),
}


class Run:
    """A process of pytest, which is started. Its output is in a file.

    Args:
        directory: for the output and for pytest's cache.
        root: where the names of tests begin.
    """

    def __init__(self, lane: Lane, directory: Path, root: Path) -> None:
        self.lane = lane
        self._began = time.monotonic()
        self.output = directory / f"{lane.name}.txt"
        self._cache = directory / f"{lane.name}.cache"
        shutil.rmtree(self._cache, ignore_errors=True)
        # Each has a temporary directory of its own: pytest changes the mode of one that it shares,
        # and PostgreSQL runs as another user.
        temporary = Path(f"/tmp/spillway-{lane.name}-{os.getuid()}")
        temporary.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={self._cache}"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *lane.arguments],
                cwd=root,
                env={**os.environ, "PYTEST_DEBUG_TEMPROOT": str(temporary)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def seconds(self) -> float:
        """The time since its start."""
        return time.monotonic() - self._began

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.process.poll()

    def share_done(self) -> str:
        """Return how many per cent of the tests were run, as pytest last wrote it."""
        found = re.findall(r"\[ *(\d+%)\]", self.output.read_text(errors="replace"))
        return str(found[-1]) if found else "0%"

    def failed(self) -> list[str]:
        """Return the names of the tests that failed."""
        try:
            names = json.loads((self._cache / "v/cache/lastfailed").read_text())
        except FileNotFoundError:
            return []
        return list(names)

    def report(self) -> str:
        """Return the output from the first failure on, or its summary."""
        text = self.output.read_text(errors="replace")
        start = re.search(
            r"^=+ (ERRORS|FAILURES|PASSES|warnings summary|slowest .*) =+$", text, re.M
        )
        return text[start.start() :] if start else text


def run_lanes(lanes: Sequence[Lane], directory: Path, root: Path) -> list[Run]:
    """Run lanes, print how far they are, and the report of each at its end."""
    began = time.monotonic()
    runs: list[Run] = []
    with ExitStack() as stack:
        running: list[Run] = []
        left, next_line = list(lanes), began + PROGRESS_SECONDS
        while left or running:
            while left and len(running) < SIDE_BY_SIDE:
                running.append(Run(left.pop(0), directory, root))
                stack.callback(stack.enter_context(running[-1].process).kill)
                runs.append(running[-1])
            time.sleep(0.2)
            for run in [run for run in running if run.code is not None]:
                running.remove(run)
                print(f"---- {run.lane.name}: {run.seconds:.0f} s\n{run.report()}", flush=True)
            if running and time.monotonic() >= next_line:
                next_line += PROGRESS_SECONDS
                shares = ", ".join(f"{run.lane.name} {run.share_done()}" for run in running)
                print(f"{(time.monotonic() - began) / 60:.0f} min: {shares}", flush=True)
    return runs


def run_plan(plan: Plan, directory: Path, root: Path = ROOT) -> tuple[bool, str]:
    """Run a plan.

    Args:
        directory: for the outputs; it is made if missing.
        root: where the names of tests begin.

    Returns:
        Whether it passed, and a line that says why.
    """
    directory.mkdir(parents=True, exist_ok=True)
    runs = [run for step in plan.steps for run in run_lanes(step, directory, root)]
    if broken := [run for run in runs if run.code not in (0, SOME_FAILED)]:
        said = ", ".join(f"{run.lane.name} ended with {run.code}" for run in broken)
        return False, f"FAILED: pytest did not run everything: {said}"
    failed = [name for run in runs for name in run.failed()]
    if any(run.code == SOME_FAILED for run in runs) and not failed:
        return False, "FAILED: pytest did not say which tests"
    if not failed:
        return True, "passed, 0 UNSTABLE"
    if len(failed) > AGAIN_MAX:
        return False, f"FAILED: {len(failed)} tests, which is too many to run them again"
    print(f"---- {len(failed)} failed, and are run again by themselves", flush=True)
    [again] = run_lanes([Lane("again", ("-rA", *failed))], directory, root)
    if again.code not in (0, SOME_FAILED):
        return False, f"FAILED: pytest did not run them again: it ended with {again.code}"
    lasting = set(again.failed())
    for name in failed:
        print(f"{'FAILED twice' if name in lasting else 'UNSTABLE'}: {name}")
    unstable = sum(name not in lasting for name in failed)
    if lasting:
        return False, f"FAILED: {len(lasting)}, and {unstable} UNSTABLE"
    if unstable > UNSTABLE_MAX:
        return False, f"FAILED: {unstable} UNSTABLE, and {UNSTABLE_MAX} may be"
    return True, f"passed, {unstable} UNSTABLE"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", choices=PLANS)
    name = parser.parse_args().plan
    passed, line = run_plan(PLANS[name], ROOT / "build" / "tests")
    print(f"make {name}: {line}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
