"""Brings evicted files back to the disk, because a person wants them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from gateway import clock, state
from gateway.cache import warming
from gateway.control import outage
from gateway.control.paths import files_below, follow
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.errors import START
from gateway.namespace.browse import Browser
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.types import Residency

TOGETHER = 1024
"""The files of one transaction, and of one query."""
POLL_SECONDS = 0.5
DEAD_SECONDS = 10.0
"""The time that the hydrator may be away: `spillway up` restarts it."""
ROOM_SECONDS = 60.0
"""The time for which the disk may be short of room: the evictor makes room, if it can."""


@dataclass(frozen=True, slots=True)
class NotFetched(Model):
    """A file that cannot be fetched."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Warmed(Model):
    """What became of files that a person asked for."""

    files: int
    """Those that were not on the disk."""
    bytes: int
    resident_before_files: int
    left_files: int
    """Those that are not there yet."""
    damaged: list[NotFetched]
    seconds: float
    """The time since the first was asked for."""


class Warming:
    """The files that one person asked for. Parameters: settings; database, of the namespace."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._sizes: dict[int, int] = {}
        """Size in bytes of every file that was asked for, by inode."""
        self._paths: dict[int, str] = {}
        self._left: dict[int, warming.Left] = {}
        self._resident = 0
        self._started = clock.monotonic_seconds()
        self.outage: str | None = None
        """Why nothing can be fetched from the bucket, as of the last look."""
        self.has_room = True
        """Whether the disk has room for what no client waits for, as of the last look."""

    @property
    def files(self) -> int:
        """The number of files that were asked for."""
        return len(self._sizes)

    @property
    def left_files(self) -> int:
        return len(self._left)

    @property
    def total_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def done_bytes(self) -> int:
        """The bytes that have arrived, as of the last look."""
        return self.total_bytes - sum(one.missing_bytes for one in self._left.values())

    def ask(self, browser: Browser, path: str) -> None:
        """Ask for a file, or for all files below a directory.

        Raises NotPossible, NamespaceError.
        """
        files = files_below(browser, follow(browser, self._settings, path))
        while page := list(islice(files, TOGETHER)):
            absent = {}
            for below, entry in page:
                if entry.attr.residency == Residency.ABSENT:
                    absent[entry.attr.ino] = entry.attr.size
                    self._paths[entry.attr.ino] = below
                else:
                    self._resident += 1
            if absent:
                with self._database.writing() as session:
                    warming.wish(session, absent)
            self._sizes |= absent

    def wait(self, rest: Callable[[float], None]) -> str | None:
        """Wait until all files are there. Returns why a longer wait is useless, or None.

        Parameters: rest, called after each look with the time in seconds until the next one; what
        it raises ends the wait. Raises NamespaceError.
        """
        alive_at = room_at = clock.monotonic_seconds()
        waiting = list(self._sizes)
        while True:
            before = clock.monotonic_seconds()
            waiting = self._look(waiting)
            if all(one.error is not None for one in self._left.values()):
                return self._failed()
            now = clock.monotonic_seconds()
            report = state.read(self._settings, state.CACHE) or {}
            self.has_room = report.get("has_room") is not False
            self.outage = outage.said(report)
            alive_at = now if state.alive(report) else alive_at
            room_at = now if self.has_room else room_at
            left = f"({len(waiting)} files are asked for and not there)"
            if now - alive_at > DEAD_SECONDS:
                return f"the hydrator does not run: start it: {START} {left}"
            if now - room_at > ROOM_SECONDS:
                return (
                    "the disk is short of room, so only what clients wait for is fetched: "
                    f"evict or delete files {left}"
                )
            rest(max(POLL_SECONDS, 5 * (now - before)))

    def _look(self, inos: Sequence[int]) -> list[int]:
        """Look which of these files are not there yet. Returns them."""
        found: list[warming.Left] = []
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            for start in range(0, len(inos), TOGETHER):
                found += warming.left(session, inos[start : start + TOGETHER])
        self._left = {one.ino: one for one in found}
        return list(self._left)

    def _failed(self) -> str | None:
        if not self._left:
            return None
        return (
            f"{len(self._left)} files cannot be fetched: restore the versions of their objects, or "
            "delete the files: spillway status shows them"
        )

    def damaged(self) -> list[tuple[str, str]]:
        """Return path and reason of the files that cannot be fetched."""
        return [
            (self._paths[one.ino], one.error)
            for one in self._left.values()
            if one.error is not None
        ]

    def model(self) -> Warmed:
        """Return what was done."""
        return Warmed(
            files=len(self._sizes),
            bytes=self.total_bytes,
            resident_before_files=self._resident,
            left_files=len(self._left),
            damaged=[NotFetched(path, why) for path, why in self.damaged()],
            seconds=round(clock.monotonic_seconds() - self._started, 3),
        )
