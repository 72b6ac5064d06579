"""Which names are not final, which files name others, and what trackers say."""

from __future__ import annotations

import pytest

from gateway.common.patterns import IncompleteNames
from gateway.config.settings import INCOMPLETE_PATTERNS
from gateway.namespace import trackers

HELD = [
    *("model.pt.tmp", "model.pt.tmp.4711", "model.pt.tmp.3f9a-11", ".tmp1aB2cD", ".metadata.tmp"),
    *("tmp-checkpoint-500", "tmp_ckpt_5", "tmp-100", "tmp_model.safetensors", "tmp-step-5"),
    *("a-unfinished", "100.orbax-checkpoint-tmp-17", "default.orbax-checkpoint-tmp"),
    *("checkpoint_tmp", "checkpoint.tmp0f3a", "ckpt-3.index.tempstate77", "manifest.ocdbt.__lock"),
    *("m.bin.partial", "m.bin.incomplete", ".nfs00000000012ab", ".~tmp~", ".rsync-partial"),
    *(".model.pt.swp", ".model.pt.swo"),
    *(".rclone_temp_put_5f0c", ".rclone_temp_multipart_5f0c", ".rclone_multipart_upload_5f0c"),
    "run/ckpt-3_temp/part-00000-of-00001",
    "run/ckpt-3_temp_5e1f/part-00000-of-00001",
]
FINAL = [
    *("tmp_trainer", "tmp-exp7", "x.tmp.d", "tmp", "tmpfs", "template", "x.tmpl", "attempt_3"),
    *("checkpoint-500", "step-100", "poetry.lock", "uv.lock", ".metadata", ".gitignore"),
    *(".cache.pickle", ".env.backup", ".done.marker", ".DS_Store", "._model.pt", "room_temp"),
    *("rclone_temp", ".rclone.conf"),
    *("model-00001-of-00002.safetensors", "latest", "checkpoint", "part-00000-of-00001"),
]


def is_held(path: str) -> bool:
    *above, name = path.encode().split(b"/")
    return IncompleteNames(INCOMPLETE_PATTERNS).holds(above, name)


@pytest.mark.parametrize("path", HELD)
def test_temporary_names_are_held(path: str) -> None:
    assert is_held(path)


@pytest.mark.parametrize("path", FINAL)
def test_final_names_are_not_held(path: str) -> None:
    assert not is_held(path)


@pytest.mark.parametrize(
    ("name", "is_half"),
    [
        *((name, True) for name in (b"tmp-checkpoint-5", b"5.tmp", b"tmp_100", b"step-7.tmp.12")),
        *((name, False) for name in (b"tmp_trainer", b"tmp-exp7", b"x.tmp.d", b"llama3.tmp")),
    ],
)
def test_half_a_save_is_told_from_a_run(name: bytes, is_half: bool) -> None:
    assert trackers.is_half_save(name) == is_half


def test_files_that_name_others_have_an_order() -> None:
    names = [b"model.index.json", b"_CHECKPOINT_METADATA", b"trainer_state.json"]
    names += [b"commit_success.txt", b"latest"]
    ranks = [trackers.rank_of(name) for name in names]
    assert ranks == sorted(ranks, key=lambda rank: -1 if rank is None else rank)
    assert len(set(ranks)) == len(ranks)
    shards = (b"__0_0.distcp", b"model.safetensors", b"config.json", b"ckpt-3.index", b"README")
    assert {trackers.rank_of(name) for name in shards} == {None}
    assert trackers.data_of(b"ckpt-3.index") == b"ckpt-3.data-"
    assert trackers.data_of(b".index") is None


@pytest.mark.parametrize(
    ("tracker", "text", "first", "step", "is_certain"),
    [
        (b"latest", b"global_step20\n", b"global_step20", None, True),
        (b"latest", b"/ckpt/run/step-5/", b"step-5", None, True),
        (b"latest", b"best", b"best", None, False),
        (b"latest_checkpointed_iteration.txt", b"100", b"iter_0000100", 100, True),
        (b"latest_checkpointed_iteration.txt", b"release", b"release", None, False),
        (b"latest_step", b"7\n", b"iter_0000007", 7, False),
        (b"checkpoint", b'model_checkpoint_path: "ckpt-3"\nall: "x"\n', b"ckpt-3", None, True),
    ],
)
def test_what_a_tracker_names(
    tracker: bytes, text: bytes, first: bytes, step: int | None, is_certain: bool
) -> None:
    named = trackers.named_by(tracker, text)
    assert named is not None
    assert (named.names[0], named.step, named.is_certain) == (first, step, is_certain)


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"two\nlines", b"..", b"a\0b", b"x" * 300, b'{\n"a": 1}']
)
def test_what_names_nothing(text: bytes) -> None:
    assert trackers.named_by(b"latest", text) is None
