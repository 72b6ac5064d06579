"""Expiry of the trash: the background task that removes what has been there for long enough.

What is removed are names, as by a client, so tombstones let the drain delete the objects. What a
kill leaves of it is removed in a later pass.

What clients removed of a checkpoint is held for a newer one, which the deletion guard and the
catalogue both must know as durable. It goes without one when a person released it, when its hours
are over, or when its run was removed (gateway.lifecycle.trash.held).

What is pinned or being copied stays: a person takes it back, or removes it by its id. So does what
its run cannot do without: the deletion guard is asked again right before the removal.

Grace is counted in elapsed time (gateway.common.clock). When the disk is short of space, the
evictor (gateway.cache.evictor) takes the clean files of the trash before all others, which loses
nothing. If that is not enough, entries with bytes that only the disk has are removed early, the
oldest first. Nothing is removed early that has been there for less than
``retention.trash_short_seconds``, nor before the disk was too full at each look for SHORT_SECONDS,
in which the evictor had its time.

While the trash is larger than ``retention.trash_max_bytes``, its oldest entries are removed early.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

from gateway.cache.eviction import look
from gateway.common import clock
from gateway.common.errors import ControlSocketClosed, TrashRefused, UserError
from gateway.common.text import printable
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.trash import held
from gateway.lifecycle.trash.rows import TrashRow, TrashState
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import identity
from gateway.rpc import control
from gateway.rpc.control import ControlSocket

TOO_LARGE = "the trash is larger than retention.trash_max_bytes"
"""The reason of such a removal."""


def surplus(
    entries: Sequence[TrashRow], max_bytes: int, may_go: Callable[[TrashRow], bool]
) -> Iterator[TrashRow]:
    """Yield the oldest entries without which the rest is not larger than the limit.

    Args:
        entries: all of the trash, the oldest first.
        max_bytes: the limit, 0 for none.
        may_go: asked right before an entry is yielded: one that stays counts on.
    """
    over = sum(entry.size for entry in entries) - max_bytes if max_bytes else 0
    for entry in entries:
        if over <= 0:
            return
        if may_go(entry):
            over -= entry.size
            yield entry


log = logging.getLogger("trash")

PASS_SECONDS = 60.0
RETRY_SECONDS = 10.0
SHORT_SECONDS = 60.0
LEAST_SECONDS = 0.2


class Expiry:
    """Background task: removes checkpoints whose grace in the trash is over.

    Args:
        stop: after which it ends between two entries.
        guard: returns why an entry must stay, or None.
        open_control: connects to the control socket.
    """

    name = "trash"

    def __init__(
        self,
        settings: Settings,
        database: Database,
        stop: threading.Event,
        guard: Callable[[TrashRow], str | None],
        open_control: Callable[[], AbstractContextManager[ControlSocket]] | None = None,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._guard = guard
        opened = open_control or partial(control.opened, settings, control.BACKGROUND_SECONDS)
        self._trash = Trash(settings, database, opened)
        self._short_since: float | None = None
        """Monotonic seconds since which the disk was too full at each look."""
        self._tick_at = 0.0
        """Monotonic seconds of the next time that the present moment is stored."""
        self._warned = ""
        self._ask_again_at: dict[str, float] = {}
        """Monotonic seconds until which the guard is not asked again, by id."""

    def run_once(self) -> float:
        """Remove what is due. Returns the seconds until the next pass. Raises NamespaceError."""
        try:
            self._trash.reconcile()
            entries = self._trash.entries()
            if not entries:
                self._short_since = None
                return PASS_SECONDS
            now_ns = self._now_ns(entries)
            wanted = self._trash.wanted()
            free = [
                entry
                for entry in entries
                if entry.state == TrashState.EXPIRING or entry.ino not in wanted
            ]
            reasons = self._trash.reasons(free, now_ns)
            due = [row for row in free if row.id in reasons]
            early = list(self._early([row for row in free if row not in due], now_ns))
            due += early
            if due:
                # The disk may not be mounted, or the database be an older one.
                identity.require_surroundings(self._settings)
            for entry in due:
                if self._stop.is_set():
                    break
                reason = reasons.get(entry.id, "room is short")
                if entry.state == TrashState.EXPIRING or self._may_go(entry, reason):
                    self._remove(entry, reason)
            self._shrink(now_ns)
            self._warned = ""
        except (UserError, ControlSocketClosed, OSError) as exc:
            self._say(f"nothing is removed from the trash now: {exc}")
            return RETRY_SECONDS
        left = [(row.expires_ns - now_ns) / clock.NS for row in free if row not in due]
        return max(LEAST_SECONDS, min(PASS_SECONDS, *left)) if left else PASS_SECONDS

    def _now_ns(self, entries: Sequence[TrashRow]) -> int:
        """Return the time that has passed for certain. It is stored once in PASS_SECONDS: passes
        are as frequent as saves."""
        now = clock.monotonic_seconds()
        if now < self._tick_at:
            return self._trash.now_ns()
        self._tick_at = now + PASS_SECONDS
        return self._trash.tick(entries)

    def _may_go(self, entry: TrashRow, reason: str) -> bool:
        """Return whether the run of an entry can do without it, and record why not."""
        if entry.rotated is not None and reason != held.NEWER:
            return True
        now = clock.monotonic_seconds()
        self._ask_again_at = {
            trash_id: until for trash_id, until in self._ask_again_at.items() if until > now
        }
        if entry.id in self._ask_again_at:
            return False
        why = self._guard(entry)
        if entry.rotated is None and why != entry.stays:
            self._trash.note_stay(entry, why)
            if why is not None:
                log.warning("%s stays in the trash: %s", _shown(entry), why)
        if why is not None:
            self._ask_again_at[entry.id] = now + PASS_SECONDS
        return why is None

    def _remove(self, entry: TrashRow, reason: str) -> None:
        try:
            self._trash.remove(entry, by=entry.deleted_by, reason=reason, only_closed=True)
        except TrashRefused as exc:
            log.info("%s stays for now: %s", _shown(entry), exc)
        else:
            log.info("%s was removed from the trash", _shown(entry))

    def _early(self, entries: Sequence[TrashRow], now_ns: int) -> Iterator[TrashRow]:
        """Yield the entries that must go because room is short, the oldest first."""
        space = look(self._settings)
        wanted_bytes = space.used - min(space.high, space.slow)
        now = clock.monotonic_seconds()
        if wanted_bytes <= 0:
            self._short_since = None
            return
        if self._short_since is None:
            self._short_since = now
        if now - self._short_since < SHORT_SECONDS:
            return
        least_ns = int(self._settings.retention.trash_short_seconds * clock.NS)
        for entry in entries:
            if wanted_bytes <= 0:
                return
            if entry.dirty_used and now_ns - entry.since_ns >= least_ns:
                log.warning("%s is removed early: the disk is too full", _shown(entry))
                wanted_bytes -= entry.dirty_used
                yield entry

    def _shrink(self, now_ns: int) -> None:
        """Remove the oldest entries while the trash is larger than its limit."""
        retention = self._settings.retention
        if not retention.trash_max_bytes:
            return
        wanted = self._trash.wanted()
        latest_ns = now_ns - int(retention.trash_short_seconds * clock.NS)

        def may_go(row: TrashRow) -> bool:
            is_free = row.state == TrashState.KEPT and row.ino not in wanted
            return is_free and row.since_ns <= latest_ns and self._may_go(row, TOO_LARGE)

        # What is held for a newer one is not what the limit is about.
        entries = [entry for entry in self._trash.entries() if entry.rotated is None]
        for entry in surplus(entries, retention.trash_max_bytes, may_go):
            if self._stop.is_set():
                return
            identity.require_surroundings(self._settings)
            self._remove(entry, TOO_LARGE)

    def _say(self, message: str) -> None:
        if message != self._warned:
            log.warning("%s", message)
        self._warned = message


def _shown(entry: TrashRow) -> str:
    return f"{entry.id} ({printable(entry.path)})"
