"""Finds the complete checkpoints that are not in the bucket yet, for the order of the uploads.

The catalogue says which they are. While the process that keeps it is away, its rows are old. Then
the order is not the best one, and nothing else is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.drain import statements as own
from gateway.drain.context import View

MOST = 256
"""With more of them that wait, the others are drained like all files."""


class Complete:
    """The complete checkpoints that wait. It remembers the directories of each."""

    def __init__(self) -> None:
        self._directories: dict[tuple[int, str], tuple[int, ...]] = {}
        """By inode and evidence: another set of members may have other directories."""

    def places(self, view: View) -> Sequence[tuple[bytes, int]]:
        """Return what they consist of, the oldest checkpoint first: the top-level directory and
        inode of each directory, or of the file that a checkpoint consists of."""
        before, self._directories = self._directories, {}
        places = []
        for ino, path, evidence in reversed(view.session.all(own.COMPLETE, most=MOST)):
            top, slash, _below = bytes(path).partition(b"/")
            found = before.get((ino, evidence))
            if found is None:
                rows = view.session.all(own.DIRECTORIES_BELOW, top=ino)
                found = tuple(below for (below,) in rows)
            self._directories[ino, evidence] = found
            is_file_in_root = not found and not slash
            places += [(b"" if is_file_in_root else top, one) for one in found or (ino,)]
        return places
