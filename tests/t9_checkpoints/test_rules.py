"""Rules say "complete" only after the last step of a save, however its ranks take turns, and never
of a save that was killed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st

from gateway.catalogue.facts import Grade
from gateway.catalogue.frameworks import BUILT_IN
from gateway.catalogue.indexes import lone_number, step_in
from gateway.common import clock
from gateway.common.errors import ConfigError
from gateway.common.text import printable
from gateway.config import checks, loader
from tests.support.checkpoints.layouts import LAYOUTS, Layout, Steps, index, safetensors, tensors
from tests.support.checkpoints.memory import Memory, judge, parts, rules_of

NS = 1_000_000_000
DONE_BY_CUT = {"orbax, commit file", "marker", "patterns"}
"""Whose last file says by its name alone that the others are there."""
TOO_LARGE = b"x" * ((16 << 20) + 1)
NOT_SEEN = "count"
"""A bare number of files says nothing about their ends."""


def layouts(*names: str, but: str | None = None) -> pytest.MarkDecorator:
    """Run a test with the named layouts, or with all but one."""
    chosen = [
        layout for layout in LAYOUTS if layout.name in names or (not names and layout.name != but)
    ]
    return pytest.mark.parametrize("layout", chosen, ids=lambda layout: layout.name)


def require_only_the_last_step_completes(layout: Layout, steps: Steps) -> None:
    memory, rules = Memory(), rules_of(layout)
    for number, step in enumerate(steps):
        memory.apply(step)
        verdict = judge(memory, rules, layout.path)
        is_complete = verdict is not None and verdict[1].reason is None
        assert is_complete == (number >= len(steps) - 1 - layout.after), (number, step, verdict)
    assert verdict is not None
    assert verdict[0][:3] == (layout.rule, layout.run.encode(), layout.step)
    assert verdict[1].grade == layout.grade


@layouts()
def test_a_save_is_complete_at_its_end(layout: Layout) -> None:
    require_only_the_last_step_completes(layout, layout.steps())


@layouts()
@run_settings(max_examples=25)
@given(data=st.data())
def test_a_save_is_complete_at_its_end_in_any_order(layout: Layout, data: st.DataObject) -> None:
    steps: Steps = []
    for ranks in layout.phases:
        left = [list(rank) for rank in ranks if rank]
        while left:
            rank = data.draw(st.sampled_from(left))
            steps.append(rank.pop(0))
            left = [one for one in left if one]
    require_only_the_last_step_completes(layout, steps)


@layouts(but=NOT_SEEN)
def test_a_killed_save_is_never_complete(layout: Layout) -> None:
    """The client's end closes its files, which have the first half of their bytes."""
    steps = layout.steps()
    halves = {step.path: step.data[: len(step.data) // 2] for step in steps if step.verb == "close"}
    halves |= {step.path: halves[step.to] for step in steps if step.to in halves}
    for count in range(1, len(steps) - layout.after):
        memory, rules = Memory(), rules_of(layout)
        for step in steps[:count]:
            memory.apply(step)
        is_last = count == len(steps) - 1 and steps[-1].verb == "close"
        if is_last and layout.name in DONE_BY_CUT:
            continue
        for path, file in memory.files.items():
            if file.is_open:
                file.data, file.is_open = halves[b"/".join(path).decode()], False
        verdict = judge(memory, rules, layout.path)
        assert verdict is None or verdict[1].reason is not None, (count, steps[count - 1])


@layouts()
def test_any_open_or_held_member_says_that_it_is_not_complete(layout: Layout) -> None:
    memory, rules = Memory(), rules_of(layout)
    for step in layout.steps():
        memory.apply(step)
    below = [one for one in memory.below(parts(layout.path)) if one[1].data is not None]
    members = [file for path, file in below if not rules.holds.holds((), path[-1])]
    for file in members or [memory.files[parts(layout.path)]]:
        file.is_open = True
        verdict = judge(memory, rules, layout.path)
        assert verdict is not None
        assert verdict[1].reason == "1 file is open for writing"
        file.is_open = False
    if members and layout.name != "count":
        memory.add(parts(f"{layout.path}/part.tmp"), b"x")
        verdict = judge(memory, rules, layout.path)
        assert verdict is not None
        assert verdict[1].reason == "part.tmp is a temporary name"


@layouts()
def test_a_marker_beside_it_says_that_it_is_not_complete(layout: Layout) -> None:
    memory, rules = Memory(), rules_of(layout)
    for step in layout.steps():
        memory.apply(step)
    memory.add(parts(f"{layout.path}-unfinished"), b"")
    verdict = judge(memory, rules, layout.path)
    assert verdict is not None
    assert verdict[1].reason is not None
    assert "-unfinished is there" in verdict[1].reason


def saved(name: str) -> tuple[Memory, Layout]:
    (layout,) = [one for one in LAYOUTS if one.name == name]
    memory = Memory()
    for step in layout.steps():
        memory.apply(step)
    return memory, layout


@pytest.mark.parametrize(
    ("name", "path", "data", "reason"),
    [
        (
            "trainer",
            "model-00002-of-00002.safetensors",
            None,
            "model-00002-of-00002.safetensors is missing",
        ),
        ("trainer", "model-00002-of-00002.safetensors", b"", "is empty"),
        ("trainer", "model.safetensors.index.json", b'{"weight_map": {"a"', "no whole JSON object"),
        ("trainer", "model.safetensors.index.json", b"[" * 100_000, "no whole JSON object"),
        ("trainer", "model.safetensors.index.json", b"9" * 5000, "no whole JSON object"),
        ("trainer", "model.safetensors.index.json", b"\xff{}", "no whole JSON object"),
        ("trainer", "model.safetensors.index.json", b'{"weight_map": {}}', "names no shards"),
        ("trainer", "model.safetensors.index.json", b'{"weight_map": {"a": 1}}', "names no shards"),
        ("trainer", "model.safetensors.index.json", index("../x"), "../x is missing"),
        ("trainer", "model.safetensors.index.json", TOO_LARGE, "larger than 16.0 MiB"),
        ("trainer", "trainer_state.json", None, "trainer_state.json is missing"),
        ("dcp", ".metadata", b"", ".metadata is missing"),
        ("orbax", "_CHECKPOINT_METADATA", b"{", "no whole JSON object"),
        ("count", "rank1", None, "2 of 3 files are there"),
        ("patterns", "optim.bin", None, "no file matches *.bin"),
        ("marker", "DONE", None, "DONE is missing"),
    ],
)
def test_reasons(name: str, path: str, data: bytes | None, reason: str) -> None:
    memory, layout = saved(name)
    at = parts(f"{layout.path}/{path}")
    if data is None:
        del memory.files[at]
    else:
        memory.files[at].data = data
    verdict = judge(memory, rules_of(layout), layout.path)
    assert verdict is not None
    assert reason in (verdict[1].reason or "")


@pytest.mark.parametrize(
    ("name", "tracker", "text", "is_complete"),
    [
        ("deepspeed", "ds/latest", b"global_step19", False),
        ("deepspeed", "ds/latest", b"global_step21", False),
        ("deepspeed", "ds/latest", b"global_step20\n", True),
        ("deepspeed", "ds/latest", b"best", False),
        ("deepspeed", "ds/latest", b"", False),
        ("deepspeed", "ds/latest", b"\xff\xfe", False),
        ("megatron", "mega/latest_checkpointed_iteration.txt", b"99", False),
        ("megatron", "mega/latest_checkpointed_iteration.txt", b"1000\n", False),
        ("megatron", "mega/latest_checkpointed_iteration.txt", b"100\n", True),
        ("megatron", "mega/latest_checkpointed_iteration.txt", b"release", False),
        ("megatron", "mega/latest_checkpointed_iteration.txt", b"9" * 4000, False),
    ],
)
def test_a_tracker_shows_only_the_step_that_it_names(
    name: str, tracker: str, text: bytes, is_complete: bool
) -> None:
    memory, layout = saved(name)
    if name == "deepspeed":
        # Of pipelines the first rank's file does not tell the files of all ranks.
        memory.add(parts(f"{layout.path}/layer_00-model_states.pt"), tensors())
    memory.files[parts(tracker)].data = text
    verdict = judge(memory, rules_of(layout), layout.path)
    assert verdict is not None
    assert (verdict[1].reason is None) == is_complete


@pytest.mark.parametrize(
    "data",
    [
        safetensors()[:-1],
        safetensors() + b"x",
        b"\xff" * 32,
        (9).to_bytes(8, "little") + b"[1, 2, 3]",
        (12).to_bytes(8, "little") + b'{"w": "text"}'[:12],
        b"",
    ],
)
def test_a_file_of_tensors_that_is_not_whole(data: bytes) -> None:
    memory, layout = saved("save_file")
    memory.files[parts(layout.path)].data = data
    verdict = judge(memory, rules_of(layout), layout.path)
    assert verdict is not None
    assert verdict[1].reason is not None


def test_an_old_file_of_torch_has_no_end_to_look_at() -> None:
    memory, layout = saved("torch.save")
    memory.files[parts(layout.path)].data = b"\x80\x02l\n" + tensors()
    verdict = judge(memory, rules_of(layout), layout.path)
    assert verdict is not None
    assert verdict[1].reason is None


@pytest.mark.parametrize(
    "path",
    [
        "run/model-00001-of-00008.safetensors",
        "run/model.pt",
        "run/rank0.pt",
        "run/optimizer_0.bin",
        "run/events.out.step-3.log",
        "run/step-3.pt.orbax-checkpoint-tmp",
        "run/7.orbax-checkpoint-tmp-12/step-3.pt",
    ],
)
def test_files_that_are_no_checkpoints(path: str) -> None:
    memory = Memory()
    for depth in range(1, path.count("/") + 1):
        memory.add(parts(path)[:depth], None)
    memory.add(parts(path), tensors())
    assert judge(memory, rules_of(LAYOUTS[0]), path) is None


@pytest.mark.parametrize("path", ["2024", "run", "llama3-8b", "100"])
def test_directories_that_are_no_checkpoints(path: str) -> None:
    memory = Memory()
    memory.add(parts(path), None)
    memory.add(parts(f"{path}/notes.txt"), b"x")
    assert judge(memory, rules_of(LAYOUTS[0]), path) is None


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (b"100", None),
        (b"step-10k", None),
        (b"epoch-1.5", None),
        (b"step_1_000", None),
        (b"ep1-ba100-rank0.pt", 100),
        (b"step-1000", 1000),
        (b"global_step0020", 20),
        (b"epoch_2-step_1000", 1000),
        (b"epoch=3.ckpt", 3),
        (b"checkpoint_7", 7),
        (b"iter_0000100", 100),
        (b"llama3-8b", None),
        (b"timestep4", None),
        (b"step-" + b"9" * 40, None),
        (b"\xffstep", None),
    ],
)
def test_the_step_in_a_name(name: bytes, step: int | None) -> None:
    assert step_in(name) == step


@pytest.mark.parametrize(
    ("name", "lone"),
    [
        (b"100", (b"", 100, b"")),
        (b"llama-100", (b"llama-", 100, b"")),
        (b"10k", None),
        (b"1.5", None),
        (b"1_000", None),
        (b"2026-11-01", None),
        (b"rank0", None),
        (b"mp_rank_00", None),
        (b"model-00001", None),
        (b"job7", None),
        (b"v2", None),
        (b"x" * 10, None),
    ],
)
def test_the_number_that_may_be_a_step_beside_another(
    name: bytes, lone: tuple[bytes, int, bytes] | None
) -> None:
    assert lone_number(name) == lone


def test_a_quiet_time_passes() -> None:
    (marker,) = [one for one in LAYOUTS if one.name == "marker"]
    memory, _ = saved("marker")
    layout = replace(marker, tables=({**marker.tables[0], "quiet_seconds": 60},))
    now_ns = clock.now_ns()
    verdict = judge(memory, rules_of(layout), layout.path, now_ns)
    assert verdict is not None
    assert verdict[1][:3] == ("it has not been quiet for 60 s", now_ns + 60 * NS, None)
    verdict = judge(memory, rules_of(layout), layout.path, now_ns - 60 * NS)
    assert verdict is not None
    assert verdict[1][:3] == (None, None, Grade.MARKED)


def test_a_rule_of_the_configuration_comes_first() -> None:
    memory, layout = saved("trainer")
    table = {"name": "mine", "path": "out/checkpoint-{step}", "files": 1}
    layout = replace(layout, tables=(table,))
    del memory.files[parts("out/checkpoint-500/trainer_state.json")]
    verdict = judge(memory, rules_of(layout), layout.path)
    assert verdict is not None
    assert verdict[0].rule == "mine"
    assert verdict[1].reason is None


GOOD = {"name": "ours", "path": "{run}/s{step}", "marker": "DONE"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": ""}, "without a name"),
        ({"name": "Über"}, "without a name"),
        ({"name": "orbax"}, "known framework"),
        ({"path": "{run}/s"}, r"\{step\} once"),
        ({"path": "{step}{step}"}, r"\{step\} once"),
        ({"path": "/a/{step}"}, "below the export"),
        ({"path": "a//{step}"}, "below the export"),
        ({"path": "a/../{step}"}, "below the export"),
        ({"path": "{run}{step}"}, "something between"),
        ({"path": "{name}/{step}"}, "no other braces"),
        ({"files": 0}, "at least 1"),
        ({"files": True}, "a number, or a list"),
        ({"files": []}, "a number, or a list"),
        ({"files": [1]}, "a number, or a list"),
        ({"marker": "a/b"}, "one name"),
        ({"quiet_seconds": -1}, "quiet_seconds from 0"),
        ({"quiet_seconds": "1"}, "quiet_seconds from 0"),
        ({"quiet": 1}, "has the key quiet"),
    ],
)
def test_a_wrong_rule_is_refused(change: dict[str, object], text: str) -> None:
    values = {"bucket": {"name": "b"}, "checkpoints": {"rule": [{**GOOD, **change}]}}
    with pytest.raises(ConfigError, match=text):
        loader.from_mapping(values, {})


def test_rules_are_read_from_toml_and_from_the_environment() -> None:
    values = {"bucket": {"name": "b"}, "checkpoints": {"rule": [GOOD]}}
    assert loader.from_mapping(values, {}).checkpoints.rule == (GOOD,)
    environ = {"SPILLWAY_CHECKPOINTS_RULE": json.dumps([GOOD])}
    assert loader.from_mapping({"bucket": {"name": "b"}}, environ).checkpoints.rule == (GOOD,)
    rendered = loader.render({"bucket": {"name": "b"}, "checkpoints": {"rule": (GOOD,)}})
    assert 'rule = [{name = "ours"' in rendered
    without = {"name": "ours", "path": "{step}"}
    assert "must say when" in (checks.rules((without,)) or "")
    assert "two rules" in (checks.rules((GOOD, GOOD)) or "")
    with pytest.raises(ConfigError, match="must be tables"):
        loader.from_mapping({"bucket": {"name": "b"}, "checkpoints": {"rule": ["x"]}}, {})


def test_no_rule_can_have_the_name_of_a_framework() -> None:
    assert {rule.name for rule in BUILT_IN} == checks.FRAMEWORKS


def test_names_are_shown_on_one_line() -> None:
    assert printable(b"a\n\xff\x1b[0m\xc3\xbc") == "a\\n\\xff\\x1b[0mü"
