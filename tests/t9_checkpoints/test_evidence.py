"""A checkpoint is complete only if its content shows it, and it stays what it was until its members
change."""

from __future__ import annotations

import pickle
import random

import pytest

from gateway.catalogue.tracker import Follower
from gateway.common import clock
from gateway.common.types import ROOT_CRED
from tests.support.checkpoints.layouts import (
    LAYOUTS,
    Layout,
    deepspeed_states,
    index,
    metadata,
    safetensors,
    tensors,
)
from tests.support.checkpoints.world import World, follow, forgotten, rebuilt, rows_of
from tests.support.volumes import query

SHARDS = ("__0_0.distcp", "__1_0.distcp", "__2_0.distcp")


def save(world: World, path: str, data: bytes = b"x" * 64) -> None:
    """Save a checkpoint of torch with three shards."""
    for shard in SHARDS:
        world.write(f"{path}/{shard}", data)
    world.write(f"{path}/.metadata", metadata(*SHARDS))


def drain(world: World, path: str, *names: str) -> None:
    for name in names or (*SHARDS, ".metadata"):
        world.drain(f"{path}/{name}")


def grade(world: World, path: str) -> str | None:
    row = world.row(path)
    return None if row is None else row.grade


def reason(world: World, path: str) -> str | None:
    row = world.row(path)
    return None if row is None else row.reason


# Members that are removed.


def test_a_durable_checkpoint_whose_members_are_removed_is_broken(
    world: World, follower: Follower
) -> None:
    save(world, "run/step-1")
    drain(world, "run/step-1")
    follow(follower)
    assert (world.state("run/step-1"), grade(world, "run/step-1")) == ("durable", "listed")
    for count, shard in enumerate(SHARDS[:2], 1):
        world.remove(f"run/step-1/{shard}")
        follow(follower)
        assert world.state("run/step-1") == "broken"
        verb = "file is gone" if count == 1 else "files are gone"
        assert reason(world, "run/step-1") == (
            f"{count} of 4 {verb.replace('file', 'files', 1) if count == 1 else verb}: {SHARDS[0]}"
        )
        assert grade(world, "run/step-1") is None
    # The index goes too, which showed that it is a checkpoint.
    world.remove("run/step-1/.metadata")
    follow(follower)
    assert world.state("run/step-1") == "broken"
    assert rows_of(world.settings) == rebuilt(world)
    ino = world.attr("run/step-1").ino
    world.remove(f"run/step-1/{SHARDS[2]}")
    follow(follower)
    assert rows_of(world.settings) == []
    assert query(world.settings, f"SELECT * FROM checkpoint_record WHERE ino = {ino}") == []


def test_what_has_no_index_is_broken_too(world: World, follower: Follower) -> None:
    for name in ("trainer_state.json", "optimizer.pt", "rng_state_0.pth"):
        world.write(f"out/checkpoint-5/{name}", b"{}" if name.endswith("json") else tensors())
    follow(follower)
    assert (world.state("out/checkpoint-5"), grade(world, "out/checkpoint-5")) == (
        "complete",
        "marked",
    )
    world.remove("out/checkpoint-5/optimizer.pt")
    # What is added makes it no more whole.
    world.write("out/checkpoint-5/README.md", b"a note")
    follow(follower)
    assert world.state("out/checkpoint-5") == "broken"


def test_a_member_that_becomes_shorter_breaks_it(world: World, follower: Follower) -> None:
    save(world, "run/step-1")
    follow(follower)
    world.write(f"run/step-1/{SHARDS[0]}", b"x" * 10)
    follow(follower)
    assert world.state("run/step-1") == "broken"
    assert reason(world, "run/step-1") == f"1 of 4 files is shorter than it was: {SHARDS[0]}"
    world.write(f"run/step-1/{SHARDS[0]}", b"y" * 64)
    follow(follower)
    assert (world.state("run/step-1"), grade(world, "run/step-1")) == ("complete", "listed")


def test_what_comes_back_is_whole_again_and_no_newer(world: World, follower: Follower) -> None:
    save(world, "run/step-1")
    follow(follower)
    save(world, "run/step-2")
    follow(follower)
    before = query(world.settings, "SELECT * FROM checkpoint_record ORDER BY ino")
    for path in ("run/step-1/__0_0.distcp", "run/step-1/__1_0.distcp"):
        world.rename(path, path.replace("step-1/", "aside-"))
    follow(follower)
    assert world.state("run/step-1") == "broken"
    for path in ("run/step-1/__0_0.distcp", "run/step-1/__1_0.distcp"):
        world.rename(path.replace("step-1/", "aside-"), path)
    follow(follower)
    assert world.state("run/step-1") == "complete"
    assert query(world.settings, "SELECT * FROM checkpoint_record ORDER BY ino") == before


def test_a_file_that_is_added_makes_it_no_newer(world: World, follower: Follower) -> None:
    for step in (1, 2):
        save(world, f"run/step-{step}")
        follow(follower)
    world.write("run/step-1/eval.json", b'{"loss": 1}')
    world.chmod("run/step-1/eval.json", 0o600)
    follow(follower)
    order = "SELECT step, completion FROM checkpoint_record ORDER BY completion"
    assert [step for step, _number in query(world.settings, order)] == [1, 2]
    row = world.row("run/step-1")
    assert row is not None
    assert (row.state, row.grade, row.files) == ("complete", "listed", 5)
    # Written again, it is the newest.
    save(world, "run/step-1", b"y" * 64)
    follow(follower)
    assert [step for step, _number in query(world.settings, order)] == [2, 1]


def test_completions_are_in_the_order_in_which_they_were_seen(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = clock.now_ns
    for step, ahead_ns in ((100, 0), (300, 10**18), (200, -(10**17))):
        with monkeypatch.context() as patched:
            patched.setattr(clock, "now_ns", lambda ahead_ns=ahead_ns: now_ns() + ahead_ns)
            save(world, f"run/step-{step}")
            follow(follower)
    order = "SELECT step FROM checkpoint_record ORDER BY completion"
    assert query(world.settings, order) == [(100,), (300,), (200,)]
    with forgotten(world.settings):
        query(world.settings, "UPDATE checkpoint_record SET completion = NULL WHERE step = 200")
        follow(world.follower())
    assert query(world.settings, order) == [(100,), (300,), (200,)]


def test_a_shard_that_is_shorter_than_its_index_says_is_cut_off(
    world: World, follower: Follower
) -> None:
    for shard in SHARDS:
        world.write(f"run/step-1/{shard}", b"x" * (63 if shard == SHARDS[1] else 64))
    world.write("run/step-1/.metadata", metadata(*SHARDS))
    follow(follower)
    assert reason(world, "run/step-1") == f"{SHARDS[1]} ends too early"


def test_what_is_complete_in_one_look_is_in_the_order_of_time(
    world: World, follower: Follower
) -> None:
    world.write(f"run/step-2/{SHARDS[0]}", b"x" * 64)  # it is begun first, and complete last
    for step in (1, 2):
        save(world, f"run/step-{step}")
    follow(follower)
    order = "SELECT step FROM checkpoint_record ORDER BY completion"
    assert query(world.settings, order) == [(1,), (2,)]


# Trackers and ranks.


def half_of_megatron(world: World, step: int, ranks: int = 4) -> str:
    path = f"mega/iter_{step:07}"
    for rank in range(ranks):
        world.write(f"{path}/mp_rank_{rank:02}/model_optim_rng.pt", tensors())
    return path


def test_a_tracker_that_moved_on_completes_no_half_save(world: World, follower: Follower) -> None:
    tracker = "mega/latest_checkpointed_iteration.txt"
    whole = half_of_megatron(world, 100)
    world.write(tracker, b"100")
    follow(follower)
    half = half_of_megatron(world, 200, ranks=1)
    follow(follower)
    later = half_of_megatron(world, 300)
    world.write(tracker, b"300")
    follow(follower)
    assert [world.state(path) for path in (whole, half, later)] == [
        "complete",
        "writing",
        "complete",
    ]
    assert (grade(world, whole), grade(world, later)) == ("marked", "alike")
    # Setting it back, or to something else, makes nothing incomplete that was whole.
    for text in (b"100", b"release", b""):
        world.write(tracker, text)
        follow(follower)
        assert (world.state(whole), world.state(later)) == ("complete", "complete")


def test_a_whole_save_whose_tracker_moved_on_is_alike(world: World, follower: Follower) -> None:
    tracker = "mega/latest_checkpointed_iteration.txt"
    first = half_of_megatron(world, 100)
    world.write(tracker, b"100")
    follow(follower)
    # The catalogue is late: the tracker names a later one by now.
    second, third = half_of_megatron(world, 200), half_of_megatron(world, 300)
    world.write(tracker, b"300")
    follow(follower)
    assert [grade(world, path) for path in (first, second, third)] == ["marked", "alike", "alike"]


def test_deepspeed_names_it_before_the_last_rank_is_done(world: World, follower: Follower) -> None:
    """``latest`` is written before the barrier."""

    def rank(step: int, number: int) -> str:
        return f"ds/global_step{step}/zero_pp_rank_{number}_mp_rank_00_optim_states.pt"

    world.write("ds/global_step10/mp_rank_00_model_states.pt", deepspeed_states(4))
    for number in range(3):
        world.write(rank(10, number), tensors())
    world.write("ds/latest", b"global_step10")
    follow(follower)
    late = "zero_pp_rank_3_mp_rank_00_optim_states.pt is missing"
    assert reason(world, "ds/global_step10") == late
    world.write(rank(10, 3), tensors()[:-30])
    follow(follower)
    assert world.state("ds/global_step10") == "writing"
    assert "ends before the directory of its archive" in (reason(world, "ds/global_step10") or "")
    world.write(rank(10, 3), tensors())
    follow(follower)
    assert (world.state("ds/global_step10"), grade(world, "ds/global_step10")) == (
        "complete",
        "listed",
    )


@pytest.mark.parametrize("tag", ["best", "epoch3", "100"])
def test_a_tag_of_deepspeed_can_have_any_name(tag: str, world: World, follower: Follower) -> None:
    world.write(f"ds/{tag}/mp_rank_00_model_states.pt", deepspeed_states(2, is_divided=False))
    follow(follower)
    row = world.row(f"ds/{tag}")
    assert row is not None
    assert (row.rule, row.run, row.state, row.grade) == ("deepspeed", b"ds", "complete", "listed")


def test_a_rank_that_is_late_is_waited_for(world: World, follower: Follower) -> None:
    """The other ranks of the Trainer may write after ``trainer_state.json``."""

    def trainer(step: int, *ranks: int) -> str:
        path = f"out/checkpoint-{step}"
        world.write(f"{path}/model.safetensors", safetensors())
        for number in ranks:
            world.write(f"{path}/rng_state_{number}.pth", tensors())
        world.write(f"{path}/trainer_state.json", b"{}")
        return path

    first = trainer(5, 0, 1, 2)
    follow(follower)
    late = trainer(10, 0, 2)
    follow(follower)
    assert (grade(world, first), world.state(late)) == ("marked", "writing")
    assert reason(world, late) == "1 file is missing that step 5 has: rng_state_1.pth"
    trainer(10, 1)
    follow(follower)
    assert grade(world, late) == "alike"
    assert rows_of(world.settings) == rebuilt(world)


def test_no_other_one_is_alike_to_the_half_of_a_save(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trainer(step: int, ranks: int) -> str:
        path = f"out/checkpoint-{step}"
        for number in range(ranks):
            world.write(f"{path}/rng_state_{number}.pth", tensors())
        world.write(f"{path}/trainer_state.json", b"{}")
        follow(follower)
        return path

    # The first of the run was killed half-way: nothing tells that.
    assert grade(world, trainer(1, 2)) == "marked"
    assert grade(world, trainer(2, 4)) == "marked"
    assert grade(world, trainer(4, 4)) == "alike"
    half = trainer(3, 2)
    assert world.state(half) == "writing"
    now_ns, monotonic_seconds = clock.now_ns, clock.monotonic_seconds
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + 3601 * clock.NS)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: monotonic_seconds() + 3601)
    follow(follower)
    assert grade(world, half) == "marked"
    # The whole ones go: still none is alike to the halves.
    for step in (2, 4):
        for number in range(4):
            world.remove(f"out/checkpoint-{step}/rng_state_{number}.pth")
        world.remove(f"out/checkpoint-{step}/trainer_state.json")
        world.remove(f"out/checkpoint-{step}")
    follow(follower)
    assert grade(world, trainer(5, 2)) == "marked"


def test_fewer_ranks_are_believed_after_an_hour(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step, ranks in ((5, 3), (10, 2)):
        for number in range(ranks):
            world.write(f"out/checkpoint-{step}/rng_state_{number}.pth", tensors())
        world.write(f"out/checkpoint-{step}/trainer_state.json", b"{}")
        follow(follower)
    assert world.state("out/checkpoint-10") == "writing"
    now_ns, monotonic_seconds = clock.now_ns, clock.monotonic_seconds
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + 3601 * clock.NS)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: monotonic_seconds() + 3601)
    follow(follower)
    assert (world.state("out/checkpoint-10"), grade(world, "out/checkpoint-10")) == (
        "complete",
        "marked",
    )


def test_the_first_of_a_run_without_an_index_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world.with_quiet(60)
    follower = world.follower()
    world.write("out/checkpoint-5/rng_state_0.pth", tensors())
    world.write("out/checkpoint-5/trainer_state.json", b"{}")
    save(world, "run/step-1")
    follow(follower)
    assert reason(world, "out/checkpoint-5") == "it has not been quiet for 60 s"
    assert grade(world, "run/step-1") == "listed"
    world.write("out/checkpoint-5/rng_state_1.pth", tensors())
    now_ns, monotonic_seconds = clock.now_ns, clock.monotonic_seconds
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + 61 * clock.NS)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: monotonic_seconds() + 61)
    # It changed meanwhile: the time begins again.
    follow(follower)
    assert world.state("out/checkpoint-5") == "writing"
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + 122 * clock.NS)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: monotonic_seconds() + 122)
    follow(follower)
    assert grade(world, "out/checkpoint-5") == "marked"


# Files that are cut off.


def whole_and_cut(
    world: World, follower: Follower, files: dict[str, bytes], name: str, cut: bytes
) -> str | None:
    """Save a checkpoint, and another one with one file that is cut off. Returns what is said of the
    second, which must be complete as soon as that file is whole."""
    for step in (1, 2):
        for path, data in files.items():
            world.write(f"a/checkpoint_{step}/{path}", cut if (step, path) == (2, name) else data)
        follow(follower)
    assert grade(world, "a/checkpoint_1") == "marked"
    assert world.state("a/checkpoint_2") == "writing"
    said = reason(world, "a/checkpoint_2")
    world.write(f"a/checkpoint_2/{name}", files[name])
    follow(follower)
    assert grade(world, "a/checkpoint_2") == "alike"
    return said


@pytest.mark.parametrize(
    ("data", "cut", "said"),
    [
        (tensors(), b"", "random_states_1.pkl is empty"),
        (tensors(), tensors()[:-9], "random_states_1.pkl ends before the directory of its archive"),
        (pickle.dumps({"seed": 1}), b"\x80\x04}\x94\x8c", "random_states_1.pkl ends too early"),
        (pickle.dumps([1], 0), b"(lp0\nI1", "random_states_1.pkl ends too early"),
    ],
)
def test_random_states_that_are_cut_off_are_not_alike(
    data: bytes, cut: bytes, said: str, world: World, follower: Follower
) -> None:
    """Accelerate writes them last, as archives with the name of a pickle."""
    files = {f"random_states_{rank}.pkl": data for rank in (0, 1)}
    assert whole_and_cut(world, follower, files, "random_states_1.pkl", cut) == said


@pytest.mark.parametrize("size", [0, 31])
def test_a_file_of_less_than_half_the_bytes_is_not_alike(
    size: int, world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is killed has just opened it. Nothing shows where a file of its kind ends."""
    files = {"random_states_0.pkl": tensors(), "state.npy": bytes(64)}
    said = "state.npy has less than half of the bytes that it has in step 1"
    assert whole_and_cut(world, follower, files, "state.npy", bytes(size)) == said
    world.write("a/checkpoint_3/random_states_0.pkl", tensors())
    world.write("a/checkpoint_3/state.npy", bytes(32))
    follow(follower)
    assert grade(world, "a/checkpoint_3") == "alike"
    for name, data in files.items():
        world.write(f"a/checkpoint_4/{name}", data[:10] if name == "state.npy" else data)
    follow(follower)
    assert world.state("a/checkpoint_4") == "writing"
    now_ns, monotonic_seconds = clock.now_ns, clock.monotonic_seconds
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + 3601 * clock.NS)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: monotonic_seconds() + 3601)
    follow(follower)
    assert grade(world, "a/checkpoint_4") == "marked"


@pytest.mark.parametrize("path", ["a/checkpoint_1", "out/checkpoint-1"])
def test_a_piece_of_fsdp_that_is_cut_off_is_waited_for(
    path: str, world: World, follower: Follower
) -> None:
    """The model and the optimizer are in directories with indexes of their own."""
    for part in ("pytorch_model_fsdp_0", "optimizer_0"):
        save(world, f"{path}/{part}")
    world.write(f"{path}/random_states_0.pkl", tensors())
    world.write(f"{path}/trainer_state.json", b"{}")
    late = f"{path}/optimizer_0/{SHARDS[1]}"
    world.write(late, b"x" * 63)
    follow(follower)
    assert reason(world, path) == f"optimizer_0/{SHARDS[1]} ends too early"
    world.write(late, b"x" * 64)
    follow(follower)
    assert grade(world, path) == "marked"


@pytest.mark.parametrize("name", ["_CHECKPOINT_METADATA", "item/_METADATA", "item/_sharding"])
def test_the_metadata_of_orbax_end_as_json(name: str, world: World, follower: Follower) -> None:
    for inner in ("_CHECKPOINT_METADATA", "item/_METADATA", "item/_sharding"):
        world.write(f"jax/5/{inner}", b'{"a": {}}'[: 8 if inner == name else 9])
    world.write("jax/5/commit_success.txt", b"x")
    world.write("jax/5/item/manifest.ocdbt", b"\x0c\xdb\x3a\x2a" + (20).to_bytes(8, "little"))
    follow(follower)
    assert reason(world, "jax/5") in (f"{name} ends too early", f"{name} is no whole JSON object")
    world.write(f"jax/5/{name}", b'{"a": {}}')
    follow(follower)
    assert reason(world, "jax/5") == "item/manifest.ocdbt ends too early"
    whole = b"\x0c\xdb\x3a\x2a" + (20).to_bytes(8, "little") + bytes(8)
    world.write("jax/5/item/manifest.ocdbt", whole)
    follow(follower)
    assert grade(world, "jax/5") == "marked"


# Copies.


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_copy_is_complete_only_when_it_is_whole(
    layout: Layout, world: World, follower: Follower
) -> None:
    """A copy writes the files in any order. What has an index never seems whole before it is. Of
    the others the first in its run waits for a quiet time, and later ones for their files."""
    source = world.with_rules(*layout.tables)
    follower = source.follower()
    for step in layout.steps():
        source.apply(step)
    follow(follower)
    assert source.state(layout.path) in ("complete", "durable")
    files = saved_files(layout)
    draw = random.Random(layout.name)
    for turn in range(20):
        name = f"{layout.path.rpartition('/')[2]}"
        top = f"copy-{turn}"
        order = list(files)
        draw.shuffle(order)
        where = f"{layout.path.rpartition('/')[0]}".partition("/")
        path = f"{top}/{where[2] + '/' if where[2] else ''}{name}"
        rules = source
        for count, (inner, data) in enumerate(order, 1):
            rules.write(f"{path}/{inner}" if inner else path, data)
            follow(follower)
            row = rules.row(path)
            is_whole = count == len(order)
            if not is_whole and row is not None:
                assert row.grade in (None, "marked"), (count, order, row)
        row = rules.row(path)
        if row is not None and layout.grade == "listed":
            assert row.grade == "listed"
        for inner, _data in order:
            rules.remove(f"{path}/{inner}" if inner else path)


def saved_files(layout: Layout) -> list[tuple[str, bytes]]:
    """Return the files of a checkpoint after its save, by paths in it."""
    found: dict[str, bytes] = {}
    for step in layout.steps():
        if step.verb == "close":
            found[step.path] = step.data
        elif step.verb == "rename":
            for path in [one for one in found if (one + "/").startswith(step.path + "/")]:
                found[step.to + path[len(step.path) :]] = found.pop(path)
            if step.path not in found and step.to not in found:
                found.setdefault(step.to, b"") if "." in step.to.rpartition("/")[2] else None
        elif step.verb == "remove":
            found.pop(step.path, None)
    below = layout.path + "/"
    return [
        (path[len(below) :] if path != layout.path else "", data)
        for path, data in found.items()
        if (path == layout.path or path.startswith(below)) and "/.tmp" not in path
    ]


# What is no member.


@pytest.mark.parametrize(
    "left",
    [".nfs000000000001", ".__0_0.distcp.Ab12Cd", "._notes", ".DS_Store", ".x.swp", "x.lock"],
)
def test_what_others_leave_is_no_member(left: str, world: World, follower: Follower) -> None:
    save(world, "run/step-1")
    drain(world, "run/step-1")
    follow(follower)
    before = rows_of(world.settings)
    world.write(f"run/step-1/{left}", b"anything")
    follow(follower)
    assert [row[:14] for row in rows_of(world.settings)] == [row[:14] for row in before]


def test_a_file_that_is_replaced_while_it_is_read_stays_durable(
    world: World, follower: Follower
) -> None:
    """The client of a reader renames the replaced file, and removes it at the reader's end."""
    save(world, "run/step-1")
    drain(world, "run/step-1")
    follow(follower)
    world.rename("run/step-1/__0_0.distcp", "run/step-1/.nfs0000000000000001")
    world.write("run/step-1/__0_0.distcp", b"y" * 64)
    world.drain("run/step-1/__0_0.distcp")
    follow(follower)
    assert world.state("run/step-1") == "durable"


def test_a_file_that_a_client_removed_and_still_writes_is_no_member(
    world: World, follower: Follower
) -> None:
    save(world, "run/step-1")
    follow(follower)
    world.open("run/step-1/.nfs0000000000000001")
    follow(follower)
    assert world.state("run/step-1") == "complete"


def test_a_temporary_file_older_than_the_save_is_abandoned(
    world: World, follower: Follower
) -> None:
    world.write("run/step-1/__0_0.distcp.tmp", b"half")
    save(world, "run/step-1")
    follow(follower)
    assert world.state("run/step-1") == "complete"
    world.write("run/step-2/.metadata.tmp", b"newer than all")
    world.write("run/step-2/__0_0.distcp", b"x" * 64)
    world.write("run/step-2/__1_0.distcp.tmp", b"about to be renamed")
    follow(follower)
    assert reason(world, "run/step-2") == "__1_0.distcp.tmp is a temporary name"


def test_a_run_may_have_a_name_that_a_pattern_holds(world: World) -> None:
    """The drain sends what is in a directory with steps, too."""
    world = world.with_holds("tmp_*", "*.tmp")
    for path in ("tmp_trainer/step-1", "tmp_step_5/step-1", "run/step-1.tmp"):
        save(world, path)
    follow(world.follower())
    assert world.state("tmp_trainer/step-1") == "complete"
    assert reason(world, "tmp_step_5/step-1") == "tmp_step_5 is a temporary name"
    assert reason(world, "run/step-1.tmp") == "step-1.tmp is a temporary name"


# Damage.


def test_an_object_that_cannot_be_fetched_makes_it_not_durable(
    world: World, follower: Follower
) -> None:
    save(world, "run/step-1")
    drain(world, "run/step-1")
    follow(follower)
    assert world.state("run/step-1") == "durable"
    ino = world.attr("run/step-1/__1_0.distcp").ino
    from gateway.cache.rows import Rows, failure_now
    from gateway.db.engine import Database

    database = Database(world.settings.database_url)
    rows = Rows(database)
    rows.save_failures([(ino, "", failure_now(2, "NoSuchKey", 60.0))])
    follow(follower)
    assert world.state("run/step-1") == "draining"
    rows.save_failures([(ino, "", None)])
    follow(follower)
    assert world.state("run/step-1") == "durable"
    database.close()


# Runs and steps.


def test_directories_of_runs_are_no_steps(world: World, follower: Follower) -> None:
    """Numbers of jobs, dates and epochs of a sweep name runs, which have checkpoints in them."""
    for job in ("1001", "1002", "2026-11-01", "sft_epoch3"):
        world.write(f"sweep/{job}/m.safetensors", safetensors())
        world.write(f"sweep/{job}/model.safetensors.index.json", index("m.safetensors"))
        for step in (1, 2):
            save(world, f"sweep/{job}/step-{step}")
    follow(follower)
    rows = {bytes(row.path).decode(): row for row in rows_of(world.settings)}
    assert len(rows) == 12
    for job in ("1001", "1002", "2026-11-01", "sft_epoch3"):
        assert rows[f"sweep/{job}"].files == 2
        assert {rows[f"sweep/{job}/step-{step}"].run for step in (1, 2)} == {
            f"sweep/{job}".encode()
        }
    assert rows_of(world.settings) == rebuilt(world)


def test_a_bare_number_is_a_step_beside_another_one(world: World, follower: Follower) -> None:
    save(world, "run/100")
    follow(follower)
    row = world.row("run/100")
    assert row is not None
    assert row.step is None
    save(world, "run/200")
    follow(follower)
    assert {row.step for row in rows_of(world.settings)} == {100, 200}
    # It stays one when the other is gone.
    for name in (*SHARDS, ".metadata"):
        world.remove(f"run/100/{name}")
    world.remove("run/100")
    follow(follower)
    assert [row.step for row in rows_of(world.settings)] == [200]
    assert rows_of(world.settings) == rebuilt(world)


def test_the_files_of_ranks_are_no_steps(world: World, follower: Follower) -> None:
    for rank in range(3):
        world.write(f"mine/rank{rank}.pt", tensors())
        world.write(f"mine/{rank}.pt", tensors())
    follow(follower)
    assert rows_of(world.settings) == []


def test_two_series_in_one_directory_are_two_runs(world: World, follower: Follower) -> None:
    for name in ("generator-step-5.pt", "critic-step-5.pt", "generator-step-10.pt"):
        world.write(f"gan/{name}", tensors())
    world.write("gan/last.ckpt", tensors())
    follow(follower)
    assert {(row.run, row.step) for row in rows_of(world.settings)} == {
        (b"gan/generator-step-N.pt", 5),
        (b"gan/generator-step-N.pt", 10),
        (b"gan/critic-step-N.pt", 5),
        (b"gan/last.ckpt", None),
    }


def test_the_runs_of_two_owners_are_two(world: World) -> None:
    rule = {"name": "ours", "path": "users/*/{run}/s{step}", "files": 1}
    world = world.with_rules(rule)
    for owner in ("ada", "bob"):
        world.write(f"users/{owner}/exp/s1/a", b"1")
    follow(world.follower())
    assert {row.run for row in rows_of(world.settings)} == {b"users/ada/exp", b"users/bob/exp"}


@pytest.mark.parametrize(
    ("path", "files", "rule", "step"),
    [
        (
            "v/global_step_10",
            {
                f"actor/{kind}_world_size_2_rank_{rank}.pt": tensors()
                for kind in ("model", "optim")
                for rank in (0, 1)
            },
            "verl",
            10,
        ),
        (
            "acc/checkpoint_3",
            {"model.safetensors": safetensors(), "random_states_0.pkl": b"\x80\x04."},
            "accelerate",
            3,
        ),
        (
            "lora/out",
            {"adapter_model.safetensors": safetensors(), "adapter_config.json": b"{}"},
            "peft",
            None,
        ),
        ("flax/checkpoint_4", {"": b"\x81\xa6params"}, "file", 4),
        ("llm/ep1-ba20-rank0.pt", {"": tensors()}, "file", 20),
    ],
)
def test_other_frameworks_are_known(
    path: str,
    files: dict[str, bytes],
    rule: str,
    step: int | None,
    world: World,
    follower: Follower,
) -> None:
    for name, data in files.items():
        world.write(f"{path}/{name}" if name else path, data)
    follow(follower)
    row = world.row(path)
    assert row is not None
    assert (row.rule, row.step, row.state) == (rule, step, "complete")


def test_a_hard_link_is_a_member(world: World, follower: Follower) -> None:
    save(world, "run/step-1")
    ino = world.attr("run/step-1/__0_0.distcp").ino
    world.namespace.link(ROOT_CRED, ino, *world.split("run/step-1/again.distcp"))
    follow(follower)
    row = world.row("run/step-1")
    assert row is not None
    assert (row.files, row.grade) == (5, "listed")
