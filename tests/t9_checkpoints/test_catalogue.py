"""The catalogue follows saves, renames, removals, drains and evictions, and is the same as one that
is rebuilt from the namespace alone."""

from __future__ import annotations

import threading

import pytest

from gateway.catalogue import judge as judge_module
from gateway.catalogue import store as catalogue_module
from gateway.catalogue.display_state import Look
from gateway.catalogue.tracker import Follower
from gateway.catalogue.tree import CatalogueView
from gateway.common import clock
from gateway.common.types import ROOT_CRED, Extent
from tests.support.checkpoints.layouts import LAYOUTS, index, metadata, safetensors, tensors
from tests.support.checkpoints.world import World, follow, rebuilt, rows_of
from tests.support.volumes import query

NS = 1_000_000_000


def test_each_step_of_a_save_is_followed(world: World) -> None:
    for saved, layout in enumerate(LAYOUTS):
        ruled = world.with_rules(*layout.tables)
        follower = ruled.follower()
        follow(follower)
        steps = layout.steps()
        for number, step in enumerate(steps):
            ruled.apply(step)
            follow(follower)
            is_complete = ruled.state(layout.path) == "complete"
            is_due = number >= len(steps) - 1 - layout.after
            assert is_complete == is_due, (layout.name, step, ruled.row(layout.path))
        row = ruled.row(layout.path)
        assert row is not None
        assert row.grade == layout.grade
        assert (row.rule, row.run, row.step) == (layout.rule, layout.run.encode(), layout.step)
        assert row.complete_ns is not None
        assert rows_of(world.settings) == rebuilt(ruled)
        # Another layout may have the same paths.
        world.rename(layout.path.partition("/")[0], f"saved-{saved}")


def test_a_checkpoint_becomes_durable(world: World, follower: Follower) -> None:
    paths = ["job/step-1/__0_0.distcp", "job/step-1/__1_0.distcp", "job/step-1/.metadata"]
    for path in paths:
        world.write(path, b"12345")
    world.directory("job/step-1/empty")
    seen = []
    for path in paths:
        follow(follower)
        seen.append(world.state("job/step-1"))
        world.drain(path)
    follow(follower)
    row = world.row("job/step-1")
    assert row is not None
    assert [*seen, row.state] == ["complete", "draining", "draining", "durable"]
    assert (row.files, row.size, row.dirty_files, row.dirty_size) == (3, 15, 0, 0)
    (newest,) = query(world.settings, "SELECT max(stored_ns) FROM object")
    assert row.durable_ns == newest[0]
    assert rows_of(world.settings) == rebuilt(world)
    world.open(paths[0])
    follow(follower)
    row = world.row("job/step-1")
    assert row is not None
    assert (row.state, row.reason) == ("writing", "1 file is open for writing")
    world.close(paths[0], b"123456")
    follow(follower)
    assert world.state("job/step-1") == "draining"


INDETERMINATE_WRITES = [
    "UPDATE object SET key = 'elsewhere' WHERE ino = :ino",
    "UPDATE object SET size = 4 WHERE ino = :ino",
    "UPDATE object SET content_version = 0 WHERE ino = :ino",
    "INSERT INTO rekey VALUES (:ino, 1)",
    "INSERT INTO damage VALUES (:ino, 1, 'r', 1)",
    "INSERT INTO indeterminate_write (key, ino, noted_ns)"
    " SELECT key, ino, 1 FROM object WHERE ino = :ino",
    "INSERT INTO upload (ino, content_version, key, started_ns)"
    " SELECT ino, 1, key, 1 FROM object WHERE ino = :ino",
    "INSERT INTO rekey SELECT parent, 1 FROM dirent WHERE ino = :ino",
]


def test_what_the_bucket_may_not_have_is_not_durable(world: World, follower: Follower) -> None:
    for number, insert in enumerate(INDETERMINATE_WRITES):
        ino = world.write(f"job/step-{number}/.metadata", b"12345")
        world.drain(f"job/step-{number}/.metadata")
        follow(follower)
        assert world.state(f"job/step-{number}") == "durable"
        query(world.settings, insert, ino=ino)
        query(world.settings, "INSERT INTO journal (what, inos) VALUES (4, :inos)", inos=f"[{ino}]")
        follow(follower)
        assert world.state(f"job/step-{number}") == "complete", insert


def test_what_a_killed_save_left_is_no_member(world: World, follower: Follower) -> None:
    left = "out/checkpoint-5/.tmp1aB2cD"
    world.write("out/checkpoint-5/trainer_state.json", b"{}")
    world.drain("out/checkpoint-5/trainer_state.json")
    world.open(left)
    follow(follower)
    assert world.state("out/checkpoint-5") == "writing"
    world.close(left, b"12345")
    # Another rule has no such files: there the name may still be changed.
    world.write("job/step-5/.metadata", b"1")
    world.write("job/step-5/.tmp1aB2cD", b"1")
    follow(follower)
    row = world.row("out/checkpoint-5")
    assert row is not None
    assert (row.state, row.files, row.size) == ("durable", 1, 2)
    assert world.state("job/step-5") == "writing"
    assert rows_of(world.settings) == rebuilt(world)


def test_a_second_name_does_not_make_it_less_durable(world: World, follower: Follower) -> None:
    ino = world.write("job/step-1/.metadata", b"12345")
    world.namespace.link(ROOT_CRED, ino, *world.split("job/step-2/.metadata"))
    world.drain("job/step-1/.metadata")
    follow(follower)
    assert world.state("job/step-1") == world.state("job/step-2") == "durable"
    assert rows_of(world.settings) == rebuilt(world)


def test_a_directory_moves_with_all_that_is_in_it(world: World, follower: Follower) -> None:
    world.write("a/run/step-1/.metadata", b"1")
    world.write("a/run/ckpt-2.pt", tensors())
    follow(follower)
    world.rename("a", "b")
    follow(follower)
    assert [row.path for row in rows_of(world.settings)] == [b"b/run/step-1", b"b/run/ckpt-2.pt"]
    assert [row.run for row in rows_of(world.settings)] == [b"b/run", b"b/run/ckpt-N.pt"]
    world.rename("b", "iter_0000001")
    follow(follower)
    assert [row.path for row in rows_of(world.settings)] == [b"iter_0000001"]
    world.rename("iter_0000001", "c")
    follow(follower)
    assert len(rows_of(world.settings)) == 2
    assert rows_of(world.settings) == rebuilt(world)


def test_a_removed_checkpoint_has_no_row(world: World, follower: Follower) -> None:
    world.write("run/step-1/.metadata", b"1")
    world.write("run/ckpt-2.pt", tensors())
    follow(follower)
    world.remove("run/ckpt-2.pt")
    world.remove("run/step-1/.metadata")
    follow(follower)
    assert rows_of(world.settings) == []
    world.remove("run/step-1")
    follow(follower)
    assert rows_of(world.settings) == []


def test_a_final_model_beside_checkpoints_does_not_hide_them(
    world: World, follower: Follower
) -> None:
    world.write("out/checkpoint-5/trainer_state.json", b"{}")
    follow(follower)
    world.write("out/m.safetensors", safetensors())
    world.write("out/model.safetensors.index.json", index("m.safetensors"))
    follow(follower)
    rows = {row.path: row for row in rows_of(world.settings)}
    assert set(rows) == {b"out", b"out/checkpoint-5"}
    assert rows[b"out"].extent == Extent.FILES
    assert rows[b"out"].files == 2
    assert rows[b"out/checkpoint-5"].files == 1
    assert rows_of(world.settings) == rebuilt(world)


def test_a_tracker_that_moves_turns_only_those_that_it_concerns(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 21):
        world.write(f"ds/global_step{step}/mp_rank_00_model_states.pt", b"1")
        world.write("ds/latest", b"global_step%d" % step)
        follow(follower)
    assert {row.state for row in rows_of(world.settings)} == {"complete"}
    looked = []
    look = catalogue_module.Catalogue.look

    def counted(self: catalogue_module.Catalogue, ino: int) -> Look:
        looked.append(ino)
        return look(self, ino)

    monkeypatch.setattr(catalogue_module.Catalogue, "look", counted)
    before = rows_of(world.settings)
    world.open("ds/latest")
    follow(follower)
    for text in (b"global_step18", b"best", b""):
        world.write("ds/latest", text) if text != b"global_step18" else world.close(
            "ds/latest", text
        )
        follow(follower)
        assert rows_of(world.settings) == before
    world.remove("ds/latest")
    follow(follower)
    assert rows_of(world.settings) == before
    assert looked == []
    assert rows_of(world.settings) == rebuilt(world)
    # One that is being written is looked at when the tracker changes.
    world.write("ds/global_step21/layer_00_model_states.pt", b"1")
    follow(follower)
    assert world.state("ds/global_step21") == "writing"
    world.write("ds/latest", b"global_step21")
    follow(follower)
    assert world.state("ds/global_step21") == "complete"


def test_a_clock_that_jumps_makes_no_save_quiet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"name": "ours", "path": "{run}/s{step}", "quiet_seconds": 60}
    world = world.with_rules(table)
    follower = world.follower()
    world.write("x/s1/file", b"1")
    follow(follower)
    assert world.state("x/s1") == "writing"
    now_ns, monotonic_seconds = clock.now_ns, clock.monotonic_seconds
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + 3600 * NS)
    world.chmod("x/s1/file", 0o600)
    follow(follower)
    world.chmod("x", 0o700)
    follow(follower)
    assert world.state("x/s1") == "writing"
    # It went back: the time that is left is no longer for it.
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() - 3600 * NS)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: monotonic_seconds() + 61)
    follow(follower)
    assert world.state("x/s1") == "complete"


def test_an_evicted_tracker_is_asked_for(world: World, follower: Follower) -> None:
    world.write("ds/global_step1/mp_rank_00_model_states.pt", b"1")
    world.write("ds/latest", b"global_step1")
    world.drain("ds/latest")
    world.evict("ds/latest")
    follow(follower)
    row = world.row("ds/global_step1")
    assert row is not None
    assert (row.state, row.reason) == ("writing", "latest is evicted, so it cannot be read now")
    ino = world.attr("ds/latest").ino
    assert query(world.settings, "SELECT ino FROM warm_request") == [(ino,)]
    world.arrive("ds/latest", b"global_step1")
    follow(follower)
    assert world.state("ds/global_step1") == "complete"


def test_an_eviction_changes_nothing_and_asks_for_nothing(world: World, follower: Follower) -> None:
    paths = ["m-1.safetensors", "model.safetensors.index.json", "trainer_state.json"]
    data = [safetensors(), index("m-1.safetensors"), b"{}"]
    for path, text in zip(paths, data, strict=True):
        world.write(f"out/checkpoint-5/{path}", text)
        world.drain(f"out/checkpoint-5/{path}")
    follow(follower)
    before = rows_of(world.settings)
    assert before[0].state == "durable"
    # Another process, which remembers nothing.
    follower = world.follower()
    for path in paths:
        world.evict(f"out/checkpoint-5/{path}")
    follow(follower)
    assert rows_of(world.settings) == before
    assert query(world.settings, "SELECT * FROM warm_request") == []
    # More came, so it is judged again, and keeps its state until what a rule needs can be read.
    world.write("out/checkpoint-5/args.bin", tensors())
    follow(follower)
    assert world.state("out/checkpoint-5") == "draining"
    assert len(query(world.settings, "SELECT * FROM warm_request")) == 1


def test_a_large_evicted_file_is_not_fetched_for_its_end(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "READ_MAX_BYTES", 16)
    world.write("run/ckpt-1.pt", tensors())
    world.drain("run/ckpt-1.pt")
    world.evict("run/ckpt-1.pt")
    follow(follower)
    assert world.state("run/ckpt-1.pt") == "writing"
    assert query(world.settings, "SELECT * FROM warm_request") == []


def test_what_an_older_release_found_complete_is_judged_again(world: World) -> None:
    """It kept no records, and the files are evicted: what a rule must read is fetched."""
    files = {"__0_0.distcp": b"x" * 64, ".metadata": metadata("__0_0.distcp")}
    for name, data in files.items():
        world.write(f"run/step-1/{name}", data)
        world.drain(f"run/step-1/{name}")
    follow(world.follower())
    before = rows_of(world.settings)
    for name in files:
        world.evict(f"run/step-1/{name}")
    query(world.settings, "DELETE FROM checkpoint_record")
    query(world.settings, "DELETE FROM catalogue")
    follower = world.follower()
    follow(follower)
    (row,) = rows_of(world.settings)
    assert (row.state, row.grade, row.complete_ns) == ("durable", "marked", before[0].complete_ns)
    assert query(world.settings, "SELECT * FROM checkpoint_record") == []
    ino = world.attr("run/step-1/.metadata").ino
    assert query(world.settings, "SELECT ino FROM warm_request") == [(ino,)]
    world.arrive("run/step-1/.metadata", files[".metadata"])
    follow(follower)
    assert rows_of(world.settings) == before
    (numbered,) = query(world.settings, "SELECT grade, completion FROM checkpoint_record")
    assert numbered == ("listed", 1)


def test_bytes_of_another_version_are_not_believed(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracker is replaced between the look at its row and the reading of its bytes."""
    world.write("ds/global_step1/mp_rank_00_model_states.pt", b"1")
    world.write("ds/latest", b"global_step0")
    follow(follower)
    entry = CatalogueView.entry

    def late(self: CatalogueView, parent: int, name: bytes) -> object:
        place_entry = entry(self, parent, name)
        if name == b"latest" and place_entry is not None and not world.opened:
            world.open("ds/latest")
            path = world.namespace.files.path(place_entry.ino, place_entry.epoch)
            path.write_bytes(b"global_step9")
        return place_entry

    # Another process, which remembers no bytes.
    follower = world.follower()
    with monkeypatch.context() as patched:
        patched.setattr(CatalogueView, "entry", late)
        world.write("ds/global_step1/y.pt", b"1")
        follow(follower)
    assert world.state("ds/global_step1") == "writing"
    world.close("ds/latest", b"global_step0")
    follow(follower)
    assert world.state("ds/global_step1") == "writing"


def test_a_disk_that_does_not_read_concerns_one_checkpoint(
    world: World, follower: Follower
) -> None:
    world.write("ds/global_step1/mp_rank_00_model_states.pt", b"1")
    ino = world.write("ds/latest", b"global_step1")
    path = world.namespace.files.path(ino, 0)
    path.unlink()
    path.mkdir()
    world.write("run/step-1/.metadata", b"1")
    follow(follower)
    row = world.row("ds/global_step1")
    assert row is not None
    assert row.reason == "latest cannot be read now"
    assert world.state("run/step-1") == "complete"


def test_a_quiet_time_ends_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"name": "ours", "path": "{run}/s{step}", "quiet_seconds": 60}
    world = world.with_rules(table)
    world.write("x/s1/file", b"1")
    follower = world.follower()
    follow(follower)
    row = world.row("x/s1")
    assert row is not None
    assert (row.state, row.reason) == ("writing", "it has not been quiet for 60 s")
    # A process that was started since knows of the time too.
    follower = world.follower()
    follow(follower)
    due_ns = row.due_ns
    assert due_ns is not None
    world.write("x/s2/file", b"1")
    follow(follower)
    world.remove("x/s2/file")
    world.remove("x/s2")
    assert follower._due.keys() - {row.ino} != set()
    now_ns, monotonic_seconds = clock.now_ns, clock.monotonic_seconds
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + 60 * NS)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: monotonic_seconds() + 60)
    follow(follower)
    assert world.state("x/s1") == "complete"
    assert follower._due == {}


def test_other_rules_make_the_catalogue_anew(world: World, follower: Follower) -> None:
    world.write("x/exp-a/s3/DONE", b"")
    follow(follower)
    assert rows_of(world.settings) == []
    marker = {"name": "ours", "path": "x/{run}/s{step}", "marker": "DONE"}
    follow(world.with_rules(marker).follower())
    assert [row.rule for row in rows_of(world.settings)] == ["ours"]
    follow(world.follower())
    assert rows_of(world.settings) == []


@pytest.mark.parametrize("lost", ["DELETE FROM reader", "UPDATE reader SET position = -1"])
def test_a_reader_that_lost_the_journal_reads_everything(
    lost: str, world: World, follower: Follower
) -> None:
    world.write("run/step-1/.metadata", b"1")
    follow(follower)
    query(world.settings, lost)
    world.write("run/step-2/.metadata", b"1")
    world.rename("run/step-1", "run/gone")
    follow(follower)
    assert {row.path for row in rows_of(world.settings)} == {b"run/gone", b"run/step-2"}
    world.remove("run/gone/.metadata")
    follow(follower)
    assert {row.path for row in rows_of(world.settings)} == {b"run/step-2"}


def test_a_row_that_the_namespace_does_not_give_is_deleted(
    world: World, follower: Follower
) -> None:
    world.write("run/step-1/.metadata", b"1")
    follow(follower)
    query(world.settings, "DELETE FROM reader")
    query(world.settings, "UPDATE dirent SET name = :name WHERE name = :old",
          name=b"other", old=b".metadata")  # fmt: skip
    query(world.settings, "DELETE FROM checkpoint_record")
    follow(follower)
    assert rows_of(world.settings) == []


def test_it_stops_between_two_transactions(world: World) -> None:
    for step in range(5):
        world.write(f"run/step-{step}/.metadata", b"1")
    stop = threading.Event()
    follower = world.follower(stop)
    stop.set()
    follower.run()
    follower.step()
    assert rows_of(world.settings) == []
    follow(world.follower())
    assert len(rows_of(world.settings)) == 5
