"""Files that root has read before its process became the user of the gateway.

That user may not read them: the credentials of the bucket, a file of policies in /root.
"""

from __future__ import annotations

import os
from pathlib import Path

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
