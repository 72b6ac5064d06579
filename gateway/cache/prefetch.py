"""Search for files to fetch that no client waits for.

These are the files that a person warms, the siblings of files that are read in the order of their
names, and those whose hydration failed.
"""

from __future__ import annotations

from collections import OrderedDict

from gateway.cache.fetch_scheduler import RETRY_MAX_SECONDS, FetchScheduler
from gateway.cache.hydration import now
from gateway.cache.rows import AbsentFileRow, HydrationFailure, Rows
from gateway.common import clock

DIRECTORIES = 1024
"""Directories whose readers are remembered."""


class Prefetcher:
    """Adds files to a scheduler.

    Args:
        at_once: how many files that no client waits for are fetched at once.
        reads_ahead: whether siblings are fetched.
    """

    def __init__(
        self, scheduler: FetchScheduler, rows: Rows, at_once: int, reads_ahead: bool
    ) -> None:
        self._scheduler = scheduler
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
        with self._scheduler.lock:
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
        with self._scheduler.lock:
            self._ahead[found.parent] = max(self._ahead.get(found.parent, b""), found.name)

    def _is_next(self, row: AbsentFileRow, before: bytes) -> bool:
        following = self._rows.siblings(row.parent, before, 1)
        return bool(following) and following[0][0] == row.name

    def find(self) -> None:
        """Add the next files, if few are being fetched. Raises NamespaceError."""
        self._add_failed()
        with self._scheduler.lock:
            idle = [candidate for candidate in self._scheduler if not candidate.is_asked]
            free_slots = self._at_once - sum(
                candidate.due_at <= now() and not candidate.retry_at for candidate in idle
            )
            known = len(self._scheduler)
        if free_slots <= 0:
            return
        for ino, has_failed in self._rows.warm_requests(free_slots + known):
            with self._scheduler.lock:
                free_slots -= self._scheduler.get(ino) is None
                hydration = self._scheduler.add(ino)
                if hydration.retry_at and not has_failed:
                    # A person asked again, which deleted the failure.
                    hydration.forgive_all()
                    self._scheduler.wake(hydration)
        if self._reads_ahead:
            self._find_siblings(free_slots)

    def _add_failed(self) -> None:
        most_ns = int(RETRY_MAX_SECONDS * clock.NS)
        due = [
            ino
            for ino, failure in self._failed.items()
            if not clock.is_ahead(failure.next_ns, most_ns)
        ]
        for ino in due:
            failure = self._failed.pop(ino)
            with self._scheduler.lock:
                self._scheduler.add(ino, failure.tries)

    def _find_siblings(self, free_slots: int) -> None:
        for parent, after in list(self._ahead.items()):
            if free_slots <= 0:
                return
            siblings = self._rows.siblings(parent, after, free_slots)
            with self._scheduler.lock:
                for _, ino in siblings:
                    free_slots -= self._scheduler.get(ino) is None
                    self._scheduler.add(ino)
                if siblings:
                    self._ahead[parent] = max(self._ahead[parent], siblings[-1][0])
                else:
                    self._ahead.pop(parent, None)
