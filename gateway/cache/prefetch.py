"""Finds files to fetch that no client waits for: those that a person warms, the siblings of files
that are read in the order of their names, and those whose hydration failed."""

from __future__ import annotations

from collections import OrderedDict

from gateway.cache.fetch_scheduler import RETRY_MAX_SECONDS, FetchScheduler
from gateway.cache.hydration import now
from gateway.cache.rows import AbsentFileRow, HydrationFailure, Rows
from gateway.common import clock

DIRECTORIES = 1024
"""Directories whose readers are remembered."""


class Finder:
    """Adds files to a board.

    Parameters: board, rows; at_once, how many files that no client waits for are fetched at once;
    reads_ahead, whether siblings are fetched.
    """

    def __init__(self, board: FetchScheduler, rows: Rows, at_once: int, reads_ahead: bool) -> None:
        self._board = board
        self._rows = rows
        self._at_once = at_once
        self._reads_ahead = reads_ahead
        self._last: OrderedDict[int, bytes] = OrderedDict()
        """The name that was asked for last in each directory."""
        self._ahead: dict[int, bytes] = {}
        """Directories that are read in order, and the name up to which files were added."""
        self._failed: dict[int, HydrationFailure] = {}

    def load(self) -> None:
        """Load the failures of earlier runs. Raises NamespaceError."""
        self._failed = self._rows.failures()

    def asked(self, found: AbsentFileRow) -> None:
        """Note that a client has asked for an absent file."""
        with self._board.lock:
            before = self._last.pop(found.parent, None)
            self._last[found.parent] = found.name
            if len(self._last) > DIRECTORIES:
                self._last.popitem(last=False)
            known = self._ahead.get(found.parent)
            if known is not None:
                self._ahead[found.parent] = max(known, found.name)
                return
        # Only the next absent file after the last one shows that they are read in order.
        if before is None or not self._is_next(found, before):
            return
        with self._board.lock:
            self._ahead[found.parent] = max(self._ahead.get(found.parent, b""), found.name)

    def _is_next(self, found: AbsentFileRow, before: bytes) -> bool:
        following = self._rows.siblings(found.parent, before, 1)
        return bool(following) and following[0][0] == found.name

    def find(self) -> None:
        """Add the next files, if few are being fetched. Raises NamespaceError."""
        self._add_failed()
        with self._board.lock:
            idle = [one for one in self._board if not one.is_asked]
            room = self._at_once - sum(one.due_at <= now() and not one.retry_at for one in idle)
            known = len(self._board)
        if room <= 0:
            return
        for ino, has_failed in self._rows.warming(room + known):
            with self._board.lock:
                room -= self._board.get(ino) is None
                one = self._board.add(ino)
                if one.retry_at and not has_failed:
                    # A person asked again, which deleted the failure.
                    one.forgive_all()
                    self._board.wake(one)
        if self._reads_ahead:
            self._find_siblings(room)

    def _add_failed(self) -> None:
        most_ns = int(RETRY_MAX_SECONDS * clock.NS)
        due = [
            ino
            for ino, failure in self._failed.items()
            if not clock.is_ahead(failure.next_ns, most_ns)
        ]
        for ino in due:
            failure = self._failed.pop(ino)
            with self._board.lock:
                self._board.add(ino, failure.tries)

    def _find_siblings(self, room: int) -> None:
        for parent, after in list(self._ahead.items()):
            if room <= 0:
                return
            found = self._rows.siblings(parent, after, room)
            with self._board.lock:
                for _, ino in found:
                    room -= self._board.get(ino) is None
                    self._board.add(ino)
                if found:
                    self._ahead[parent] = max(self._ahead[parent], found[-1][0])
                else:
                    self._ahead.pop(parent, None)
