"""Random changes of a namespace, for tests that compare a followed catalogue with a rebuilt one."""

from __future__ import annotations

import random

from tests.support.checkpoints.layouts import index, tensors
from tests.support.checkpoints.world import World

NAMES = ["a", "run", "step-1", "iter_0000001", "global_step2", "checkpoint-3", "x.tmp", "4"]


FILES = [
    *(".metadata", "__0_0.distcp", "latest", "latest_checkpointed_iteration.txt", "ckpt-1.pt"),
    *("trainer_state.json", "m.index.json", "commit_success.txt", "step-1-unfinished", "x.tmp"),
]


DATA = [b"", b"1", b"{}", b"global_step2", tensors(), index("x.tmp"), index(".metadata")]


def change(world: World, draw: random.Random, files: list[str]) -> None:
    """Make one random change.

    Args:
        files: the paths of files that were made.
    """
    directory = "/".join(draw.choices(NAMES, k=draw.randint(1, 3)))
    kind = draw.randrange(8)
    if kind < 4 or not files:
        path = f"{directory}/{draw.choice(FILES)}"
        world.write(path, draw.choice(DATA))
        files.append(path)
    elif kind == 4:
        world.remove(draw.choice(files))
    elif kind == 5:
        world.drain(draw.choice(files))
    else:
        old = draw.choice(files)
        cut = draw.randint(1, old.count("/") + 1)
        world.rename("/".join(old.split("/")[:cut]), directory)


def change_some(world: World, draw: random.Random, files: list[str]) -> None:
    for _ in range(draw.randint(1, 12)):
        try:
            change(world, draw, files)
        except Exception as exc:
            # The namespace refuses what makes no sense: a rename into itself, say.
            if not hasattr(exc, "errno"):
                raise
