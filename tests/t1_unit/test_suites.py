"""A test that fails is run once more by itself, and what passes then is named as unstable."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.suites import AGAIN_MAX, PLANS, SIDE_BY_SIDE, UNSTABLE_MAX, Lane, Plan, run_plan

PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert not 'always'\n"


def unstable(directory: Path, count: int = 1) -> str:
    """Return tests that fail only when they run for the first time."""
    return textwrap.dedent(f"""
        import pathlib, pytest
        @pytest.mark.parametrize("one", range({count}))
        def test_unstable(one):
            ran = pathlib.Path("{directory}") / f"ran-{{one}}"
            print("once" if not ran.exists() else "again")
            is_first = not ran.exists()
            ran.touch()
            assert not is_first, "the machine was busy"
    """)


def run(directory: Path, *texts: str) -> tuple[bool, str]:
    """Run each text as a lane beside the others."""
    (directory / "pytest.ini").touch()
    lanes = []
    for number, text in enumerate(texts):
        (directory / f"test_{number}.py").write_text(text)
        lanes.append(Lane(f"test-of-suites-{number}", (f"test_{number}.py",)))
    return run_plan(Plan((tuple(lanes),)), directory / "outputs", directory)


def test_what_passes_is_not_run_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, PASSES, PASSES) == (True, "passed, 0 UNSTABLE")
    assert "again" not in capfd.readouterr().out


def test_what_passes_only_by_itself_is_named_with_both_outputs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, PASSES, unstable(tmp_path)) == (True, "passed, 1 UNSTABLE")
    out = capfd.readouterr().out
    assert out.splitlines()[-1].startswith("UNSTABLE: ")
    assert out.splitlines()[-1].endswith("test_1.py::test_unstable[0]")
    assert "the machine was busy" in out
    assert "Captured stdout call" in out.split("are run again by themselves")[1]


def test_what_fails_twice_fails_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, FAILS, unstable(tmp_path)) == (False, "FAILED: 1, and 1 UNSTABLE")
    assert "FAILED twice: " in capfd.readouterr().out


def test_only_some_may_be_unstable(tmp_path: Path) -> None:
    passed, line = run(tmp_path, unstable(tmp_path, UNSTABLE_MAX))
    assert (passed, line) == (True, f"passed, {UNSTABLE_MAX} UNSTABLE")


def test_more_are_a_failure(tmp_path: Path) -> None:
    passed, line = run(tmp_path, unstable(tmp_path, UNSTABLE_MAX + 1))
    assert (passed, line) == (False, f"FAILED: {UNSTABLE_MAX + 1} UNSTABLE, and 3 may be")


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    passed, line = run(tmp_path, unstable(tmp_path, AGAIN_MAX + 1))
    assert not passed
    assert "too many" in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\ndef test_dies(): os._exit(70)\n", "ended with 70"),
        ("def nothing(): pass\n", "ended with 5"),
        ("def test_ends(): import pytest; pytest.exit('now', 3)\n", "ended with 3"),
    ],
)
def test_a_lane_that_did_not_run_is_no_success(tmp_path: Path, text: str, said: str) -> None:
    passed, line = run(tmp_path, PASSES, text)
    assert not passed
    assert said in line


def test_each_lane_is_run_and_so_many_side_by_side(tmp_path: Path) -> None:
    text = textwrap.dedent(f"""
        import os, pathlib, time
        here = pathlib.Path("{tmp_path}")
        def count(word):
            return len(list(here.glob(word + "-*")))
        def test_has_company():
            (here / f"began-{{os.getpid()}}").touch()
            end = time.monotonic() + 60
            while count("began") < {SIDE_BY_SIDE}:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert count("began") - count("ended") <= {SIDE_BY_SIDE}
            (here / f"ended-{{os.getpid()}}").touch()
    """)
    assert run(tmp_path, text, text, text) == (True, "passed, 0 UNSTABLE")
    assert len(list(tmp_path.glob("ended-*"))) == 3


def test_what_failed_before_is_forgotten(tmp_path: Path) -> None:
    assert not run(tmp_path, FAILS)[0]
    assert run(tmp_path, PASSES) == (True, "passed, 0 UNSTABLE")


def test_no_file_of_tests_is_left_out() -> None:
    """The lanes of ``make test`` together are all of tests/ but what is named."""
    *long, rest = PLANS["test"].steps[0]
    ignored = {
        argument.removeprefix("--ignore=") for argument in rest.arguments if "--ignore" in argument
    }
    left = ignored - {argument for lane in long for argument in lane.arguments}
    assert left == {"tests/t0_tidy", "tests/frameworks", "tests/slurm"}
    for lane in (lane for plan in PLANS.values() for step in plan.steps for lane in step):
        named = [argument.removeprefix("--ignore=").split("::")[0] for argument in lane.arguments]
        for path in (one for one in named if one.startswith("tests/")):
            assert Path(__file__).parents[2].joinpath(path).exists(), path
