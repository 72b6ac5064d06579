"""A save by a real library is killed at each system call that changes a file, and one of its
processes while the others finish. No half of it is ever trusted.

The library saves once, and the calls of that save are replayed in a namespace with a follower: all
of them up to the kill, which closes the files as they are. A call that writes is also killed in its
middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.catalogue.display_state import CheckpointRow
from gateway.catalogue.facts import TRUSTED
from gateway.catalogue.tracker import Follower
from tests.frameworks.recorded import STEPS
from tests.frameworks.recorder import Call, Recording
from tests.frameworks.replay import Replay, below
from tests.frameworks.savings import DIVIDED, SAVINGS, Record, Saving
from tests.support.checkpoints.world import World, follow, rows_of
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings, make_volume

COMPLETE = ("complete", "draining", "durable")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    settings = make_settings(tmp_path / "data")
    make_volume(settings)
    made = World(settings, Namespace(settings))
    yield made
    made.end()
    made.namespace.close()


@pytest.fixture
def follower(world: World) -> Follower:
    made = world.follower()
    follow(made)
    return made


class Trial(NamedTuple):
    """A save that is replayed below a directory of its own, up to some call."""

    top: str
    replay: Replay
    done: Sequence[Call]
    rest: Sequence[Call]
    """The calls that are not done."""


class Trials:
    """Many replays of the first or the second save of a recording. One round of the follower looks
    at all of them.

    Args:
        number: number of the save: of the second, the first one is whole and in the catalogue.
    """

    def __init__(
        self, world: World, follower: Follower, saving: Saving, recording: Recording, number: int
    ) -> None:
        self._world, self._follower = world, follower
        self._saving, self._recording, self._number = saving, recording, number
        self.made: list[Trial] = []

    def add(self, done: Sequence[Call], rest: Sequence[Call] = ()) -> None:
        """Begin a trial, in which some calls will be done, and others later."""
        top = f"trial-{len(self.made)}"
        before = self._recording.trees[0] if self._number else {}
        for path, data in before.items():
            self._world.write(f"{top}/{path}", data)
        self.made.append(Trial(top, Replay(self._world, top, before), done, rest))

    def run(self, *, kill: bool) -> None:
        """Do the calls of all trials."""
        self.follow()
        if self._number:
            self.must_be_complete(0)
        for trial in self.made:
            trial.replay.apply(trial.done)
            if kill:
                trial.replay.kill()
        self.follow()

    def finish(self) -> None:
        """Do the rest of the calls of all trials."""
        for trial in self.made:
            trial.replay.apply(trial.rest)
            trial.replay.kill()
        self.follow()

    def follow(self) -> None:
        follow(self._follower)

    def must_be_complete(self, number: int, trials: Iterable[Trial] | None = None) -> None:
        """Check that the first or the second checkpoint is complete, with the grade that its layout
        promises."""
        rows = self._rows()
        saving = self._saving
        wrong = []
        for trial in self.made if trials is None else trials:
            row = rows[trial.top].get(saving.at(number))
            found = None if row is None else (row.rule, row.step, row.state, row.grade)
            expected = saving.rule, STEPS[number], "complete", saving.grade(number)
            if found != expected:
                wrong.append((trial.top, _text(trial.done), expected, row))
        assert not wrong, f"{len(wrong)}: {wrong[0]}"

    def must_be_waited_for(self, what: str) -> None:
        """Check that no half is trusted. If anything but the last step of the save shows that it is
        whole, none is complete."""
        marked = self.no_half_is_trusted()
        print(f"{len(self.made)} {what}, {marked} halves are marked")
        assert not (marked and (self._saving.is_listed or self._number))

    def no_half_is_trusted(self, unseen: Sequence[str] = ()) -> int:
        """Check that what is trusted is whole. Returns how many saves are complete that are not.

        Args:
            unseen: patterns of files that may be less than whole.
        """
        rows = self._rows()
        wrong, marked = [], 0
        for trial in self.made:
            tree = trial.replay.tree()
            for path, row in rows[trial.top].items():
                files = below(tree, path)
                trees = [below(one, path) for one in self._recording.trees]
                if row.state not in COMPLETE or (files and files in trees):
                    continue
                marked += 1
                if row.grade in TRUSTED:
                    whole = trees[-1]
                    lacking = [one for one in whole if files.get(one) != whole[one]]
                    inner = [one.removeprefix(path + "/") for one in lacking]
                    if not all(any(fnmatch(name, pat) for pat in unseen) for name in inner):
                        wrong.append((_text(trial.done), path, row.grade, lacking))
        assert not wrong, f"{len(wrong)}: {wrong[0]}"
        return marked

    def _rows(self) -> dict[str, dict[str, CheckpointRow]]:
        """Return the catalogue, by trials and the paths in them."""
        rows: dict[str, dict[str, CheckpointRow]] = {trial.top: {} for trial in self.made}
        for row in rows_of(self._world.settings):
            top, _, path = row.path.decode().partition("/")
            rows[top][path] = row
        return rows


def _text(calls: Sequence[Call]) -> str:
    """Return how many calls were done, and the last one, for people."""
    last = calls[-1]._replace(data=b"") if calls else None
    return f"{len(calls)} calls, last {last}"


def _pids(calls: Iterable[Call]) -> list[int]:
    return sorted({call.pid for call in calls})


def _cuts(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield the calls that are done at each kill: up to each of them, and up to the middle of each
    that writes."""
    for count, call in enumerate(calls):
        if len(call.data) > 1:
            yield [*calls[:count], call._replace(data=call.data[: len(call.data) // 2])]
        yield list(calls[: count + 1])


def _copied(path: str, data: bytes, length: int) -> list[Call]:
    """Return the calls of a copy that is killed after so many bytes of a file."""
    opened = Call(0, "open", path, 3, size=0)
    return [opened, Call(0, "write", path, 3, data[:length]), Call(0, "close", path, 3)]


both = pytest.mark.parametrize("number", [0, 1], ids=["the first", "the second"])
each = pytest.mark.parametrize("saving", SAVINGS, ids=lambda saving: saving.call)


@both
@each
def test_a_save_is_killed_at_each_call(
    saving: Saving, number: int, record: Record, world: World, follower: Follower
) -> None:
    recording = record(saving)
    trials = Trials(world, follower, saving, recording, number)
    for done in _cuts(recording.saves[number]):
        trials.add(done)
    trials.run(kill=True)
    trials.must_be_waited_for("kills")
    trials.must_be_complete(number, trials.made[-1:])


@both
@each
def test_a_save_is_looked_at_after_each_call(
    saving: Saving, number: int, record: Record, world: World, follower: Follower
) -> None:
    recording = record(saving)
    trials = Trials(world, follower, saving, recording, number)
    trials.add([])
    trials.run(kill=False)
    for call in recording.saves[number]:
        trials.made[0].replay.apply([call])
        trials.follow()
        trials.no_half_is_trusted()
    trials.must_be_complete(number)


@both
@pytest.mark.parametrize("saving", DIVIDED, ids=lambda saving: saving.call)
def test_one_process_is_killed_and_the_others_finish(
    saving: Saving, number: int, record: Record, world: World, follower: Follower
) -> None:
    """Each in turn. And the other way round: one finishes, and the others are killed."""
    recording = record(saving)
    trials = Trials(world, follower, saving, recording, number)
    calls = recording.saves[number]
    for pid in _pids(calls):
        own = [call for call in calls if call.pid == pid]
        others = [call for call in calls if call.pid != pid]
        for finished, killed in ((others, own), (own, others)):
            trials.add(finished)
            for done in _cuts(killed):
                trials.add([*finished, *done])
    trials.run(kill=True)
    trials.must_be_waited_for("kills")


@both
@pytest.mark.parametrize("saving", DIVIDED, ids=lambda saving: saving.call)
def test_one_process_is_late(
    saving: Saving, number: int, record: Record, world: World, follower: Follower
) -> None:
    """Each in turn is late with its last calls, while the others have finished."""
    recording = record(saving)
    trials = Trials(world, follower, saving, recording, number)
    calls = recording.saves[number]
    for pid in _pids(calls):
        own = [call for call in calls if call.pid == pid]
        others = [call for call in calls if call.pid != pid]
        for count in range(len(own)):
            trials.add([*others, *own[:count]], own[count:])
    trials.run(kill=False)
    trials.must_be_waited_for("times")
    trials.finish()
    trials.no_half_is_trusted()
    trials.must_be_complete(number)


@both
@each
def test_a_copy_is_killed_in_its_last_file(
    saving: Saving, number: int, record: Record, world: World, follower: Follower
) -> None:
    """A copy writes the files in any order, so that each of them may be the last. It has not begun
    it, has just opened it, or has the half of it."""
    recording = record(saving)
    trials = Trials(world, follower, saving, recording, number)
    before = recording.trees[0] if number else {}
    files = {
        path: data for path, data in recording.trees[number].items() if before.get(path) != data
    }
    for last in files:
        rest = [path for path in files if path != last]
        done = [call for path in rest for call in _copied(path, files[path], len(files[path]))]
        for length in (0, len(files[last]) // 2):
            trials.add([*done, *_copied(last, files[last], length)])
        trials.add(done)
    trials.run(kill=True)
    marked = trials.no_half_is_trusted(saving.unseen)
    print(f"{len(trials.made)} copies, {marked} halves are marked")
