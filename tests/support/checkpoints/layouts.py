"""Layouts of frameworks: what each writes when it saves a checkpoint, and in which order.

A save is a list of phases. In a phase several ranks work beside each other; a barrier ends it. Its
last step is the one that completes the checkpoint.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
import types
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import pytest


class Step(NamedTuple):
    """One request of a client."""

    verb: str
    """mkdir, open, close, rename or remove."""
    path: str
    data: bytes = b""
    """What a close leaves in the file."""
    to: str = ""
    """The new path of a rename."""


Steps = list[Step]


def mkdir(path: str) -> Steps:
    return [Step("mkdir", path)]


def write(path: str, data: bytes = b"x" * 64) -> Steps:
    return [Step("open", path), Step("close", path, data)]


def rename(path: str, to: str) -> Steps:
    return [Step("rename", path, to=to)]


def renamed(path: str, data: bytes = b"x" * 64, end: str = ".tmp") -> Steps:
    """Write a file under a temporary name, and rename it."""
    return [*write(path + end, data), *rename(path + end, path)]


def left(directory: str) -> Steps:
    """Leave what a killed ``save_file`` leaves: it has renamed nothing yet."""
    return write(f"{directory}/.tmp1aB2cD")


def tensors() -> bytes:
    """Return what ``torch.save`` writes: a zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", b"\0" * 256)
    return made.getvalue()


def save_file(path: str) -> Steps:
    """Write a file as safetensors does, which renames it before it closes it."""
    directory, _, name = path.rpartition("/")
    temporary = f"{directory}/.tmp{zlib.crc32(name.encode()) & 0xFFFFFF:06x}"
    return [
        *(Step("open", temporary), Step("rename", temporary, to=path)),
        Step("close", path, safetensors()),
    ]


def safetensors() -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(64)


def ocdbt() -> bytes:
    """Return a manifest of TensorStore's OCDBT: its kind, its length, and what it says."""
    return b"\x0c\xdb\x3a\x2a" + (64).to_bytes(8, "little") + bytes(52)


def index(*shards: str) -> bytes:
    weights = {f"layer.{number}": shard for number, shard in enumerate(shards)}
    return json.dumps({"metadata": {"total_size": 128}, "weight_map": weights}).encode()


class _StorageInfo:
    """What torch.distributed.checkpoint tells of a piece of a tensor."""

    def __init__(self, relative_path: str, offset: int, length: int) -> None:
        self.relative_path, self.offset, self.length = relative_path, offset, length


_StorageInfo.__module__ = "torch.distributed.checkpoint.filesystem"


def metadata(*shards: str, size: int = 64) -> bytes:
    """Return a ``.metadata`` that names shards of a size, each with two pieces, as torch pickles
    it. A test compares what is read of it with what is read of one by torch itself."""
    half = size // 2
    pieces = [
        _StorageInfo(shard, offset, length)
        for shard in shards
        for offset, length in ((0, half), (half, size - half))
    ]
    module = types.ModuleType(_StorageInfo.__module__)
    module._StorageInfo = _StorageInfo  # type: ignore[attr-defined]
    parts = _StorageInfo.__module__.split(".")
    with pytest.MonkeyPatch.context() as patch:
        for count in range(1, len(parts)):
            name = ".".join(parts[:count])
            patch.setitem(sys.modules, name, types.ModuleType(name))
        patch.setitem(sys.modules, _StorageInfo.__module__, module)
        return pickle.dumps({"storage_data": dict(enumerate(pieces))})


def deepspeed_states(ranks: int, *, is_divided: bool = True) -> bytes:
    """Return the file of the model of DeepSpeed's first rank: a zip archive with a pickle that
    tells the number of ranks, and whether ZeRO divided the optimizer."""
    told = {
        "module": None,
        "param_shapes": [{"w": (4, 4)}] if is_divided else None,
        "dp_world_size": ranks,
        "mp_world_size": 1,
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(told, protocol=2))
        archive.writestr("archive/data/0", b"\0" * 256)
    return made.getvalue()


def together(ranks: Sequence[Steps]) -> Steps:
    """Return the steps of ranks that take turns."""
    return [step for step in chain.from_iterable(zip_longest(*ranks)) if step is not None]


@dataclass(frozen=True)
class Layout:
    """A save by one framework."""

    name: str
    rule: str
    path: str
    """The path of the checkpoint."""
    run: str
    step: int | None
    phases: list[list[Steps]]
    tables: tuple[dict[str, Any], ...] = field(default=())
    """Rules of the configuration."""
    after: int = 0
    """The steps after the one that completes it."""
    grade: str = "marked"
    """What shows that the first of its run is complete."""

    def steps(self) -> Steps:
        return [step for ranks in self.phases for step in together(ranks)]


SHARDS = [f"model-{number:05}-of-00002.safetensors" for number in (1, 2)]
RANKS = range(3)


def _dcp(at: str) -> list[list[Steps]]:
    return [
        [mkdir(at)],
        [write(f"{at}/__{rank}_0.distcp") for rank in RANKS],
        [renamed(f"{at}/.metadata", metadata(*(f"__{rank}_0.distcp" for rank in RANKS)))],
    ]


def _trainer(at: str) -> list[list[Steps]]:
    return [
        [mkdir(at)],
        [
            [step for shard in SHARDS for step in save_file(f"{at}/{shard}")]
            + write(f"{at}/model.safetensors.index.json", index(*SHARDS))
        ],
        [
            [*write(f"{at}/optimizer.pt", tensors()), *write(f"{at}/scheduler.pt", tensors())],
            *(write(f"{at}/rng_state_{rank}.pth", tensors()) for rank in RANKS),
        ],
        [write(f"{at}/trainer_state.json", json.dumps({"global_step": 500}, indent=2).encode())],
    ]


def _orbax(at: str) -> list[list[Steps]]:
    begun = {"item_handlers": None, "init_timestamp_nsecs": 1, "commit_timestamp_nsecs": None}
    done = {**begun, "commit_timestamp_nsecs": 2}
    metadata = f"{at}/_CHECKPOINT_METADATA"
    return [
        [[*mkdir(at), *write(metadata, json.dumps(begun).encode())]],
        [[*mkdir(f"{at}/default"), *mkdir(f"{at}/default/d")]],
        [write(f"{at}/default/ocdbt.process_{rank}") for rank in RANKS],
        [[*write(f"{at}/default/d/0"), *write(f"{at}/default/_METADATA", b"{}")]],
        [write(metadata, json.dumps(done).encode())],
    ]


def _orbax_item(at: str) -> list[list[Steps]]:
    """Orbax 0.12, whose items have temporary names too."""
    item, shards = f"{at}/default.orbax-checkpoint-tmp", "ocdbt.process_0"
    begun, *_, done = (phase[-1][-1].data for phase in _orbax(at) if phase[-1])
    metadata = f"{at}/_CHECKPOINT_METADATA"
    locked = {f"{item}/{shards}/manifest.ocdbt": ocdbt(), f"{item}/_sharding": b"{}"}
    return [
        [[*mkdir(at), *write(metadata, begun), *mkdir(item), *mkdir(f"{item}/{shards}")]],
        [[step for path, data in locked.items() for step in renamed(path, data, end=".__lock")]],
        [write(f"{item}/{shards}/d/0"), write(f"{item}/array_metadatas/process_0")],
        [[*write(f"{item}/_METADATA", b"{}"), *write(metadata, begun)]],
        [[*write(f"{item}/d/0"), *renamed(f"{item}/manifest.ocdbt", ocdbt(), end=".__lock")]],
        [[*write(f"{item}/commit_success.txt"), *rename(item, f"{at}/default")]],
        [[*write(metadata, done), *write(f"{at}/commit_success.txt")]],
    ]


LAYOUTS = [
    Layout("dcp", "dcp", "job/step-1000", "job", 1000, _dcp("job/step-1000"), grade="listed"),
    Layout("dcp without a step", "dcp", "job/last", "job", None, _dcp("job/last"), grade="listed"),
    Layout("trainer", "trainer", "out/checkpoint-500", "out", 500, _trainer("out/checkpoint-500")),
    Layout(
        "trainer after a kill",
        "trainer",
        "out/checkpoint-500",
        "out",
        500,
        [[left("out/checkpoint-500")], *_trainer("out/checkpoint-500")],
    ),
    Layout(
        "trainer by a rename",
        "trainer",
        "out/checkpoint-500",
        "out",
        500,
        [
            *_trainer("out/tmp-checkpoint-500"),
            [rename("out/tmp-checkpoint-500", "out/checkpoint-500")],
        ],
    ),
    Layout(
        "deepspeed",
        "deepspeed",
        "ds/global_step20",
        "ds",
        20,
        [
            [mkdir("ds/global_step20")],
            [
                write(f"ds/global_step20/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", tensors())
                for rank in RANKS
            ]
            + [write("ds/global_step20/mp_rank_00_model_states.pt", deepspeed_states(len(RANKS)))],
            [write("ds/zero_to_fp32.py")],
            [write("ds/latest", b"global_step20")],
        ],
        after=4,
        grade="listed",
    ),
    Layout(
        "megatron",
        "megatron",
        "mega/iter_0000100",
        "mega",
        100,
        [
            [mkdir("mega/iter_0000100")],
            [
                [
                    *mkdir(f"mega/iter_0000100/mp_rank_{rank:02}"),
                    *write(f"mega/iter_0000100/mp_rank_{rank:02}/model_optim_rng.pt", tensors()),
                ]
                for rank in RANKS
            ],
            [write("mega/latest_checkpointed_iteration.txt", b"100")],
        ],
    ),
    Layout(
        "megatron, distributed",
        "megatron",
        "mega/iter_0000100",
        "mega",
        100,
        [
            *_dcp("mega/iter_0000100"),
            [write("mega/iter_0000100/common.pt", tensors())],
            [write("mega/iter_0000100/metadata.json", b'{"sharded_backend": "torch_dist"}')],
            [write("mega/latest_checkpointed_iteration.txt", b"100\n")],
        ],
        after=2,
        grade="listed",
    ),
    Layout(
        "nemo",
        "nemo",
        "nemo/gpt--val_loss=1.5-step=9-consumed_samples=80.0",
        "nemo/gpt--val_loss=N-step=N-consumed_samples=N",
        9,
        [
            [write("nemo/gpt--val_loss=1.5-step=9-consumed_samples=80.0-unfinished", b"")],
            [mkdir("nemo/gpt--val_loss=1.5-step=9-consumed_samples=80.0")],
            [
                mkdir("nemo/gpt--val_loss=1.5-step=9-consumed_samples=80.0/context")
                + write(
                    "nemo/gpt--val_loss=1.5-step=9-consumed_samples=80.0/context/io.json", b"{}"
                )
            ],
            *_dcp("nemo/gpt--val_loss=1.5-step=9-consumed_samples=80.0/weights"),
            [
                [
                    Step(
                        "remove",
                        "nemo/gpt--val_loss=1.5-step=9-consumed_samples=80.0-unfinished",
                    )
                ]
            ],
        ],
        grade="listed",
    ),
    Layout(
        "nemo, one file",
        "lightning",
        "nemo/gpt--step=9.ckpt",
        "nemo/gpt--step=N.ckpt",
        9,
        [
            [write("nemo/gpt--step=9-unfinished", b"")],
            [write("nemo/gpt--step=9.ckpt", tensors())],
            [[Step("remove", "nemo/gpt--step=9-unfinished")]],
        ],
        grade="listed",
    ),
    Layout(
        "lightning",
        "lightning",
        "pl/epoch=0-step=10.ckpt",
        "pl/epoch=N-step=N.ckpt",
        10,
        [[write("pl/epoch=0-step=10.ckpt", tensors())]],
        grade="listed",
    ),
    Layout(
        "lightning, sharded",
        "lightning",
        "pl/epoch=0-step=10.ckpt",
        "pl/epoch=N-step=N.ckpt",
        10,
        [
            *_dcp("pl/epoch=0-step=10.ckpt"),
            [write("pl/epoch=0-step=10.ckpt/meta.pt", tensors())],
        ],
        grade="listed",
    ),
    Layout(
        "orbax",
        "orbax",
        "jax/100",
        "jax",
        100,
        [
            *_orbax("jax/100.orbax-checkpoint-tmp-1700000000"),
            [rename("jax/100.orbax-checkpoint-tmp-1700000000", "jax/100")],
        ],
    ),
    Layout(
        "orbax 0.12",
        "orbax",
        "jax/100",
        "jax",
        100,
        [
            *_orbax_item("jax/100.orbax-checkpoint-tmp"),
            [rename("jax/100.orbax-checkpoint-tmp", "jax/100")],
        ],
    ),
    Layout(
        "orbax, commit file",
        "orbax",
        "jax/100",
        "jax",
        100,
        [
            [mkdir("jax/100")],
            [write(f"jax/100/shard{rank}") for rank in RANKS],
            [write("jax/100/commit_success.txt")],
        ],
    ),
    Layout(
        "save_pretrained",
        "index",
        "out/final",
        "out",
        None,
        [
            [mkdir("out/final") + write("out/final/config.json", b"{}")],
            [left("out/final")],
            [[step for shard in SHARDS for step in save_file(f"out/final/{shard}")]],
            [write("out/final/model.safetensors.index.json", index(*SHARDS))],
        ],
        grade="listed",
    ),
    Layout(
        "torch.save",
        "file",
        "a/m_step_7.pt",
        "a/m_step_N.pt",
        7,
        [[write("a/m_step_7.pt", tensors())]],
        grade="listed",
    ),
    Layout(
        "save_file",
        "file",
        "a/ckpt-7.safetensors",
        "a/ckpt-N.safetensors",
        7,
        [[save_file("a/ckpt-7.safetensors")]],
        grade="listed",
    ),
    Layout(
        "marker",
        "ours",
        "x/exp-a/s3",
        "x/exp-a",
        3,
        [
            [mkdir("x/exp-a") + mkdir("x/exp-a/s3")],
            [write(f"x/exp-a/s3/rank{rank}") for rank in RANKS],
            [write("x/exp-a/s3/DONE", b"")],
        ],
        ({"name": "ours", "path": "x/{run}/s{step}", "marker": "DONE"},),
    ),
    Layout(
        "count",
        "ours",
        "x/exp-a/s3",
        "x/exp-a",
        3,
        [
            [mkdir("x/exp-a") + mkdir("x/exp-a/s3")],
            [write(f"x/exp-a/s3/rank{rank}") for rank in RANKS],
        ],
        ({"name": "ours", "path": "x/{run}/s{step}", "files": len(RANKS)},),
        grade="listed",
    ),
    Layout(
        "patterns",
        "ours",
        "x/exp-a/s3",
        "x/exp-a",
        3,
        [
            [mkdir("x/exp-a") + mkdir("x/exp-a/s3")],
            [write(f"x/exp-a/s3/rank{rank}") for rank in RANKS],
            [write("x/exp-a/s3/optim.bin", tensors())],
        ],
        ({"name": "ours", "path": "x/*/s{step}", "files": ["rank?", "*.bin"]},),
        grade="listed",
    ),
]
