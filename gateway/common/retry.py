"""Pauses between tries of what failed, and copies of files that only root may read.

A process that becomes the user of the gateway may then not read the credentials of the bucket, or a
file of policies in /root: ``keep`` reads them before.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

FIRST_PAUSE_SECONDS = 0.5
DOUBLINGS_MAX = 30


def jittered_seconds(tries: int, most_seconds: float) -> float:
    """Draw a pause before the next try, up to a bound that doubles with each try."""
    bound = min(most_seconds, FIRST_PAUSE_SECONDS * 2.0 ** min(tries, DOUBLINGS_MAX))
    return random.uniform(0.05 * bound, bound)


_kept: dict[Path, int] = {}
"""Descriptors of copies in memory."""


def keep(path: Path) -> None:
    """Keep a file as it is now, if there is one and it can be read."""
    try:
        content = path.read_bytes()
    except OSError:
        return  # what uses it says so
    descriptor = os.memfd_create("kept", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    _kept[path] = descriptor


def place(path: Path) -> Path:
    """Return where a file can be read: the copy, or the file itself without one."""
    return Path(f"/proc/self/fd/{_kept[path]}") if path in _kept else path
