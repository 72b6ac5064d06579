"""Saves two checkpoints of one run, one after the other, for a recorder (recorder.py).

``python -m tests.frameworks.recorded CALL ROOT PATTERN``: CALL is one of ``libraries.CALLS``, and
PATTERN the path of a checkpoint below ROOT, with ``{step}`` for the step.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.frameworks import libraries

STEPS = (1, 2)
SAVED = ".saved"
"""The end of the name of a directory beside ROOT: what is made in it says that a save has ended."""


def main() -> None:
    call, root, pattern = sys.argv[1:]
    ends = Path(root + SAVED)
    for step in STEPS:
        libraries.CALLS[call](f"{root}/{pattern.format(step=step)}", step)
        (ends / str(step)).mkdir()


if __name__ == "__main__":
    main()
