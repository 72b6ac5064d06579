"""What happens to the names of a directory, in order, as the kernel tells it (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_KINDS = {0x100: "made", 0x200: "removed", 0x40: "renamed", 0x80: "renamed to"}
"""IN_CREATE, IN_DELETE, IN_MOVED_FROM, IN_MOVED_TO"""
_HEAD = struct.Struct("iIII")
_BUFFER_BYTES = 1 << 20

Event = tuple[str, str]
"""What happened, and the name."""


@contextmanager
def watching(directory: Path) -> Iterator[Callable[[], list[Event]]]:
    """Watch a directory. The body gets a function that returns what has happened so far."""
    fd = _libc.inotify_init1(os.O_NONBLOCK)
    try:
        watch = _libc.inotify_add_watch(fd, os.fsencode(directory), sum(_KINDS))
        assert min(fd, watch) >= 0, os.strerror(ctypes.get_errno())
        yield lambda: _events(os.read(fd, _BUFFER_BYTES))
    finally:
        os.close(fd)


def _events(raw: bytes) -> list[Event]:
    events, at = [], 0
    while at < len(raw):
        _watch, mask, _cookie, length = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        name = raw[at : at + length].rstrip(b"\0").decode()
        at += length
        events.append((next(kind for bit, kind in _KINDS.items() if mask & bit), name))
    return events
