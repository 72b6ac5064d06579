"""Saves and loads checkpoints with the real libraries, in the virtual environment of frameworks.

A save makes its tensors from the step, and both return a digest of them. A save is a process of its
own, which may be killed. Imports are in the functions: a launcher imports what it needs before it
forks, and each library is in a launcher of its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RANKS = 4
ROWS, COLUMNS = 1024, 1024
LAYERS = 4
"""Each of 4 MiB, so that a save lasts for long enough to be killed in its middle."""
SHARD_BYTES = 600_000

MODULES = {
    # A save would import torch._dynamo, once in each rank.
    "torch": [
        *("torch.distributed.checkpoint", "torch.distributed.tensor", "torch._dynamo"),
        *("fsspec.core", "safetensors.torch"),
    ],
    "transformers": ["transformers.trainer", "transformers.models.llama.modeling_llama"],
    "jax": ["orbax.checkpoint", "jax.numpy"],
}
"""What a launcher imports, by its name."""


def digest_of(tensors: Mapping[str, Any]) -> str:
    """Return a digest of arrays (anything that numpy takes) with their names."""
    import numpy

    made = hashlib.sha256()
    for name in sorted(tensors):
        array = numpy.ascontiguousarray(numpy.asarray(tensors[name]))
        made.update(f"{name} {array.dtype} {array.shape} ".encode())
        made.update(array.tobytes())
    return made.hexdigest()


def _tensors(step: int) -> dict[str, Any]:
    import torch

    torch.manual_seed(step)
    return {f"layer.{number}": torch.randn(ROWS, COLUMNS) for number in range(LAYERS)}


# torch.save


def save_torch(path: str, step: int) -> str:
    import torch

    tensors = _tensors(step)
    digest = digest_of(tensors)
    torch.save(tensors, path)
    return digest


def load_torch(path: str) -> str:
    import torch

    return digest_of(torch.load(path, weights_only=True))


# safetensors


def save_safetensors(path: str, step: int) -> str:
    from safetensors.torch import save_file

    tensors = _tensors(step)
    digest = digest_of(tensors)
    save_file(tensors, path)
    return digest


def load_safetensors(path: str) -> str:
    from safetensors.torch import load_file

    return digest_of(load_file(path))


# torch.distributed.checkpoint


def save_dcp(path: str, step: int) -> str:
    """Save with one process for each rank. The caller is rank 0."""
    digest = digest_of(_tensors(step))
    with tempfile.TemporaryDirectory(prefix="ranks-", dir="/run") as directory:
        pids = []
        for rank in range(1, RANKS):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    _save_rank(path, step, rank, f"{directory}/store")
                    status = 0
                finally:
                    os._exit(status)
            pids.append(pid)
        _save_rank(path, step, 0, f"{directory}/store")
        if any(os.waitpid(pid, 0)[1] for pid in pids):
            raise RuntimeError("a rank failed")
    return digest


def _save_rank(path: str, step: int, rank: int, store: str) -> None:
    import torch
    import torch.distributed.checkpoint as dcp
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    state = {
        name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in _tensors(step).items()
    }
    dcp.save(state, checkpoint_id=path)
    distributed.destroy_process_group()


def load_dcp(path: str) -> str:
    import torch
    import torch.distributed.checkpoint as dcp

    state = {f"layer.{number}": torch.empty(ROWS, COLUMNS) for number in range(LAYERS)}
    dcp.load(state, checkpoint_id=path, no_dist=True)
    return digest_of(state)


# transformers


def _model(step: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(step)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32,
    )
    return LlamaForCausalLM(config)


def save_trainer(path: str, step: int) -> str:
    """Train a tiny model for so many steps. The last one is saved."""
    import torch
    from transformers import Trainer, TrainingArguments

    tokens = torch.arange(8)
    arguments = TrainingArguments(
        str(Path(path).parent),
        max_steps=step,
        save_steps=step,
        per_device_train_batch_size=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    model = _model(step)
    data: Any = [{"input_ids": tokens, "labels": tokens}] * step
    Trainer(model, arguments, train_dataset=data).train()
    return digest_of({name: one.detach() for name, one in model.state_dict().items()})


def save_pretrained(path: str, step: int) -> str:
    model = _model(step)
    digest = digest_of(model.state_dict())
    model.save_pretrained(path, max_shard_size=SHARD_BYTES)
    return digest


def load_pretrained(path: str) -> str:
    from transformers import LlamaForCausalLM

    return digest_of(LlamaForCausalLM.from_pretrained(path).state_dict())


# Orbax


def save_orbax(path: str, step: int) -> str:
    import jax.numpy
    import numpy
    import orbax.checkpoint

    # JAX would compile its own generator, which takes half a minute in the VM.
    made = numpy.random.default_rng(step)
    tree = {
        f"layer_{number}": jax.numpy.asarray(made.random((ROWS, COLUMNS), numpy.float32))
        for number in range(LAYERS)
    }
    digest = digest_of(tree)
    with orbax.checkpoint.CheckpointManager(Path(path).parent) as manager:
        manager.save(step, args=orbax.checkpoint.args.StandardSave(tree))
        manager.wait_until_finished()
    return digest


def load_orbax(path: str) -> str:
    import orbax.checkpoint

    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        return digest_of(checkpointer.restore(Path(path, "default")))


CALLS: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (
        *(save_torch, load_torch, save_safetensors, load_safetensors, save_dcp, load_dcp),
        *(save_trainer, save_pretrained, load_pretrained, save_orbax, load_orbax),
    )
}

if __name__ == "__main__":
    # ``python -m tests.frameworks.libraries load_torch PATH``: load a copy on the host.
    print(CALLS[sys.argv[1]](sys.argv[2]))
