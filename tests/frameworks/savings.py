"""Saves by real libraries, and their recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.frameworks import lab, recorder
from tests.frameworks.recorded import STEPS
from tests.frameworks.recorder import Recording
from tests.frameworks.replay import Replay

ENVIRONMENT = {**lab.ENVIRONMENT, "SPILLWAY_SAVED_ROWS": "64"}


class Saving(NamedTuple):
    """A save by a library, of two checkpoints of one run."""

    call: str
    path: str
    rule: str
    is_listed: bool
    """Whether an index shows that it is whole. Else the first of its run is marked, and the second
    is alike."""
    processes: int = 1
    unseen: tuple[str, ...] = ()
    """Shell patterns of files in it whose end nothing shows, and no index names: a copy may be
    killed in one of them, and the rest of the checkpoint is trusted."""

    def at(self, number: int) -> str:
        return self.path.format(step=STEPS[number])

    def grade(self, number: int) -> str:
        """Return what shows that the first or the second one is whole."""
        return "listed" if self.is_listed else ("marked", "alike")[number]


SAVINGS = [
    Saving("save_torch", "torch/model_step_{step}.pt", "file", True),
    Saving("save_safetensors", "safetensors/ckpt-{step}.safetensors", "file", True),
    Saving("save_dcp", "dcp/step-{step}", "dcp", True, 4),
    Saving("save_dcp_async", "dcp/step-{step}", "dcp", True, 4),
    Saving("save_trainer", "out/checkpoint-{step}", "trainer", False),
    Saving("save_trainer_ranks", "out/checkpoint-{step}", "trainer", False, 2),
    Saving("save_trainer_fsdp", "out/checkpoint-{step}", "trainer", False, 2),
    Saving("save_pretrained", "out/step-{step}", "index", True, 1, ("generation_config.json",)),
    Saving("save_accelerate", "a/checkpoints/checkpoint_{step}", "accelerate", False, 2),
    Saving("save_orbax", "jax/{step}", "orbax", False, 1, ("*/d/*", "*commit_success.txt")),
    Saving("save_lightning", "pl/epoch=0-step={step}.ckpt", "lightning", True),
    Saving("save_deepspeed", "ds/global_step{step}", "deepspeed", True, 2),
    Saving("save_deepspeed_zero3", "ds/global_step{step}", "deepspeed", True, 2),
]
DIVIDED = [saving for saving in SAVINGS if saving.processes > 1]

Record = Callable[[Saving], Recording]


def recorded(saving: Saving, root: Path) -> Recording:
    """Record a save.

    Args:
        root: a directory that is made for it.
    """
    trace = recorder.record(lab.PYTHON, saving.call, saving.path, root, ENVIRONMENT)
    saves = recorder.read(trace, root)
    trace.unlink()
    replay = Replay(None)
    trees = []
    for calls in saves:
        replay.apply(calls)
        replay.kill()
        trees.append(replay.tree())
    files = (path for path in root.rglob("*") if path.is_file())
    # Nothing was written that the trace does not show.
    assert trees[-1] == {str(path.relative_to(root)): path.read_bytes() for path in files}
    assert all(len({call.pid for call in calls}) == saving.processes for calls in saves)
    return Recording(saves, trees)
