"""Saves and loads checkpoints with the real libraries, in the virtual environment of frameworks.

A save makes its tensors from the step, and both return a digest of them. A save is a process of its
own, which may be killed. Imports are in the functions: a launcher imports what it needs before it
forks, and each library is in a launcher of its own.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

RANKS = 4
FEWER_RANKS = 2
ROWS = COLUMNS = int(os.environ.get("SPILLWAY_SAVED_ROWS", "1024"))
LAYERS = 4
"""Each of 4 MiB, so that a save lasts for long enough to be killed in its middle. What is recorded
needs no time, and is smaller."""
SHARD_BYTES = 600_000 * ROWS * COLUMNS >> 20

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
    return _save_ranks(path, step, is_async=False)


def save_dcp_async(path: str, step: int) -> str:
    return _save_ranks(path, step, is_async=True)


def _save_ranks(path: str, step: int, *, is_async: bool) -> str:
    digest = digest_of(_tensors(step))
    with tempfile.TemporaryDirectory(prefix="ranks-", dir="/run") as directory:
        store = f"{directory}/store"
        pids = [
            _forked(partial(_save_rank, path, step, rank, store, is_async=is_async))
            for rank in range(1, RANKS)
        ]
        _save_rank(path, step, 0, store, is_async=is_async)
        _wait_for(pids)
    return digest


def _forked(call: Callable[[], None]) -> int:
    """Make a call in a process of its own. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            call()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def _wait_for(pids: list[int]) -> None:
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(statuses):
        raise RuntimeError("a rank failed")


def _launch(call: Callable[[int], None]) -> None:
    """Make a call in FEWER_RANKS processes, with the environment of ``torchrun``. Its argument is
    the rank."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE"), str(FEWER_RANKS))

    def run(rank: int) -> None:
        import torch

        os.environ.update({**common, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        torch.set_num_threads(1)
        call(rank)

    _wait_for([_forked(partial(run, rank)) for rank in range(FEWER_RANKS)])


def _save_rank(path: str, step: int, rank: int, store: str, *, is_async: bool) -> None:
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
    if is_async:
        saved: Any = dcp.async_save(state, checkpoint_id=path)
        saved.result()
    else:
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
        vocab_size=2 * ROWS,
        hidden_size=ROWS // 8,
        intermediate_size=ROWS // 4,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32,
    )
    return LlamaForCausalLM(config)


def save_trainer(path: str, step: int) -> str:
    """Train a tiny model for so many steps. The last one is saved."""
    return _train(path, step)


def save_trainer_ranks(path: str, step: int) -> str:
    """The same with several processes. They divide the batches, not the model."""
    _launch(lambda _rank: print(_train(path, step, ddp_backend="gloo")))
    return ""


def save_trainer_fsdp(path: str, step: int) -> str:
    """The same, with the model divided."""
    config = {
        "version": 2,
        "state_dict_type": "SHARDED_STATE_DICT",
        "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
    }
    _launch(lambda _rank: print(_train(path, step, ddp_backend="gloo", fsdp_config=config)))
    return ""


def _train(path: str, step: int, **more: Any) -> str:
    import torch
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType
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
        fsdp="fsdp_config" in more,
        **more,
    )
    if arguments.fsdp:
        # Accelerate divides no model on CPUs (accelerate/state.py: AcceleratorState.__init__),
        # although torch does. What saves the parts asks only whether the model is divided.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    model = _model(step)
    data: Any = [{"input_ids": tokens, "labels": tokens}] * step * FEWER_RANKS
    Trainer(model, arguments, train_dataset=data).train()
    if arguments.fsdp:
        return ""
    return digest_of({name: one.detach() for name, one in model.state_dict().items()})


def save_pretrained(path: str, step: int) -> str:
    model = _model(step)
    digest = digest_of(model.state_dict())
    model.save_pretrained(path, max_shard_size=SHARD_BYTES)
    return digest


def load_pretrained(path: str) -> str:
    from transformers import LlamaForCausalLM

    return digest_of(LlamaForCausalLM.from_pretrained(path).state_dict())


# Accelerate


def save_accelerate(path: str, step: int) -> str:
    def save(_rank: int) -> None:
        import torch
        from accelerate import Accelerator
        from accelerate.utils import ProjectConfiguration

        top = str(Path(path).parents[1])
        project = ProjectConfiguration(top, automatic_checkpoint_naming=True, iteration=step)
        accelerator = Accelerator(cpu=True, project_config=project)
        model: Any = torch.nn.Linear(ROWS // 8, ROWS // 8)
        model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
        model(torch.ones(1, ROWS // 8)).sum().backward()
        optimizer.step()
        accelerator.save_state()

    _launch(save)
    return ""


# Lightning


def save_lightning(path: str, step: int) -> str:
    """Train for so many steps, and save the last one and ``last.ckpt``."""
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(ROWS // 8, ROWS // 8)

        def training_step(self, batch: Any, _number: int) -> Any:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    saving = ModelCheckpoint(
        dirpath=Path(path).parent,
        filename="{epoch}-{step}",
        every_n_train_steps=step,
        save_top_k=-1,
        save_last=True,
        enable_version_counter=False,
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=step,
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(torch.ones(8, ROWS // 8)))
    return digest_of({name: one.detach() for name, one in module.state_dict().items()})


# DeepSpeed


def save_deepspeed(path: str, step: int) -> str:
    """Save with ZeRO 1: each rank has a part of the optimizer."""
    _launch(lambda _rank: _save_engine(path, 1))
    return ""


def save_deepspeed_zero3(path: str, step: int) -> str:
    """Save with ZeRO 3: each rank has a part of the model too."""
    _launch(lambda _rank: _save_engine(path, 3))
    return ""


def _save_engine(path: str, stage: int) -> None:
    import deepspeed
    import torch

    # Its own operations would have to be compiled.
    deepspeed.ops.__compatible_ops__.clear()
    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(ROWS // 8, ROWS // 8)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.Adam(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    engine.backward(engine(torch.ones(1, ROWS // 8)).sum())
    engine.step()
    engine.save_checkpoint(str(Path(path).parent), tag=Path(path).name)


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
        *(save_dcp_async, save_trainer_ranks, save_trainer_fsdp, save_accelerate),
        *(save_lightning, save_deepspeed, save_deepspeed_zero3),
    )
}

if __name__ == "__main__":
    # ``python -m tests.frameworks.libraries load_torch PATH``: load a copy on the host.
    print(CALLS[sys.argv[1]](sys.argv[2]))
