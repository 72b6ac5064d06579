"""Counts the files that hold patterns keep from the bucket for long, as the survey finds them.

A save renames its temporary names within minutes. What is held for longer is what a killed save has
left, or a directory of a run whose name a pattern matches by chance: then nothing of the run
reaches the bucket, and its bytes fill the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from gateway import clock
from gateway.drain.context import View

HELD_SECONDS = 3600.0
KEPT = 4096
"""The files that are known one by one, the oldest. Of others there is a count, which is right when
everything was read."""
SHOWN = 5
"""The files that the report names."""
DIRECTORIES_AT_ONCE = 64
DIRECTORIES_KEPT = 4096


class Held:
    """The files of one drain that patterns hold."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        """Time of the seal and size by inode."""
        self._more = (0, 0)
        """The files that are not known one by one, and their bytes."""
        self._fresh: dict[int, tuple[int, int]] | None = None
        """What an unfinished reading of everything has found, or None."""
        self._fresh_more = (0, 0)
        self._directories: dict[int, None] = {}
        """The directories that patterns hold. They are looked at in turn."""

    def begin(self) -> None:
        """Begin a reading of everything."""
        self._fresh, self._fresh_more = {}, (0, 0)

    def end(self) -> None:
        """End a reading of everything."""
        if self._fresh is not None:
            self._known, self._more, self._fresh = self._fresh, self._fresh_more, None

    def add(self, view: View, ino: int, sealed_ns: int, size: int) -> None:
        """Add a file without a key, unless it has none because a person or retention holds it, or
        because it is in the trash."""
        for one, is_held in view.paths.temporary.items():
            if is_held and len(self._directories) < DIRECTORIES_KEPT:
                self._directories.setdefault(one)
        place = view.paths.place(ino)
        is_known = place is None or place.is_trashed or view.paths.is_held_by_order(ino)
        if is_known or not size:
            return
        into = self._known if self._fresh is None else self._fresh
        if len(into) < KEPT or ino in into:
            into[ino] = (sealed_ns, size)
        elif self._fresh is not None and _is_long(sealed_ns):
            self._fresh_more = (self._fresh_more[0] + 1, self._fresh_more[1] + size)

    def discard(self, inos: Iterable[int]) -> None:
        """Forget files that changed."""
        for ino in inos:
            self._known.pop(ino, None)
            if self._fresh is not None:
                self._fresh.pop(ino, None)

    def is_released(self, view: View) -> bool:
        """Return whether a directory that was held is held no more, because it was found to be the
        directory of a run."""
        found = False
        for ino in list(islice(self._directories, DIRECTORIES_AT_ONCE)):
            del self._directories[ino]
            if view.paths.place(ino) is None:
                continue
            if view.paths.temporary.get(ino):
                self._directories[ino] = None
            else:
                found = True
        return found

    def shown(self) -> dict[str, Any]:
        """Return what is held for long, for the drain's report."""
        known = list(self._known.items())
        old = sorted(
            (sealed_ns, ino, size) for ino, (sealed_ns, size) in known if _is_long(sealed_ns)
        )
        more_files, more_bytes = self._more
        return {
            "files": len(old) + more_files,
            "bytes": sum(size for *_, size in old) + more_bytes,
            "first": [
                {"ino": ino, "sealed_ns": sealed_ns, "bytes": size}
                for sealed_ns, ino, size in old[:SHOWN]
            ],
        }


def _is_long(sealed_ns: int) -> bool:
    return clock.now_ns() - sealed_ns >= HELD_SECONDS * clock.NS
