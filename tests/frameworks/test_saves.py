"""The catalogue knows what the real libraries save, and calls no save complete that was killed."""

from __future__ import annotations

import fnmatch
import json
import signal
from functools import partial

import pytest

from tests.frameworks.cases import CASES, Case
from tests.frameworks.conftest import Restore
from tests.frameworks.lab import Launcher, Outcome, Watch, guest_path, load_on_host, save
from tests.frameworks.launcher import sizes
from tests.support.gateway import Gateway
from tests.support.vm.client import ClientVm
from tests.support.waiting import until

TRIES = 5
"""A save may end before its kill."""
FIRST = 1
AGAIN = 1
"""Which of the killed saves is repeated: one that has left a file under a temporary name."""
ALMOST = 0.99
WHOLE = {"complete", "draining", "durable"}


def is_whole(case: Case, step: int, files: dict[str, int], finished: dict[str, int]) -> bool:
    """Return whether a save that was killed may have written all that a finished one leaves."""
    patterns = case.patterns(step)
    is_full = sum(files.values()) >= ALMOST * sum(finished.values())
    return is_full and all(fnmatch.filter(files, pattern) for pattern in patterns)


def killed_saves(launcher: Launcher, case: Case, finished: dict[str, int]) -> list[int]:
    """Kill a save at each moment of a case. Returns the steps, none of which was finished.

    Args:
        finished: the files of a finished save.
    """
    steps: list[int] = []
    step = FIRST
    for moment in case.moments:
        for _ in range(TRIES):
            step += 1
            outcome = save(launcher, case, step, moment)
            assert outcome.status in (0, -signal.SIGKILL), outcome.log
            if outcome.status and not is_whole(case, step, outcome.files, finished):
                print(f"step {step} was killed at {moment}: {outcome.files}")
                steps.append(step)
                break
            print(f"step {step} was finished before {moment}")
        else:
            raise AssertionError(f"no save was killed at {moment}")
    return steps


def finished_save(launcher: Launcher, case: Case, step: int) -> Outcome:
    outcome = save(launcher, case, step)
    assert outcome.status == 0, outcome.log
    return outcome


def manifest_names(gateway: Gateway, case: Case, step: int, files: int) -> bool:
    """Return whether the bucket alone says that a save is whole: its manifest names so many files,
    and each of them is there with the bytes that the manifest says."""
    arguments = ("bucket", "verify", "--run", case.run, "--step", str(step), "--deep", "--json")
    done = gateway.spillway(*arguments, check=False)
    (found, *more) = json.loads(done.stdout)["manifests"] or [None]
    return done.returncode == 0 and not more and found["files"] == files


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.save)
def test_a_save(
    case: Case,
    vm: ClientVm,
    launchers: dict[str, Launcher],
    gateway: Gateway,
    watch: Watch,
    restore: Restore,
) -> None:
    launcher = launchers[case.launcher]
    vm.run(["mkdir", guest_path(case.directory)])
    saves = {FIRST: finished_save(launcher, case, FIRST)}
    watch.until(case.at(FIRST), *WHOLE)
    killed = killed_saves(launcher, case, saves[FIRST].files)
    never = watch.states([case.at(step) for step in killed])
    # A job that begins again after its kill saves the same step again, over what was left.
    again = killed.pop(AGAIN)
    saves[again] = finished_save(launcher, case, again)
    watch.until(case.at(again), *WHOLE)
    # What the journal says of the other killed saves is older, so the catalogue has seen it.
    never |= watch.states([case.at(step) for step in killed])
    assert never & WHOLE == set()
    for step, saved in saves.items():
        sighting = watch.until(case.at(step), "durable")
        assert (sighting.rule, sighting.run, sighting.step) == (case.rule, case.run, step)
        until(partial(manifest_names, gateway, case, step, sighting.files), "its manifest is right")
        copy = restore(case.at(step))
        members = sizes(copy)
        # What a killed save left under a temporary name is no member.
        assert members == {path: saved.files[path] for path in members}
        patterns = case.patterns(step)
        assert [pattern for pattern in patterns if not fnmatch.filter(members, pattern)] == []
        assert [
            member for member in members if not any(fnmatch.fnmatch(member, p) for p in patterns)
        ] == []
        assert (sighting.files, sighting.size) == (len(members), sum(members.values()))
        assert load_on_host(case.load, copy) == saved.result
        vm.drop_caches()
        whole = case.at(step)
        # What a killed save left is on the local disk only.
        paths = [f"{whole}/{member}" for member in members] if copy.is_dir() else [whole]
        gateway.evict(*paths)
        loaded = launcher.call(case.load, guest_path(case.at(step)))
        assert (loaded.status, loaded.result) == (0, saved.result), loaded.log
