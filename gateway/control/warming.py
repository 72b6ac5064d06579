"""Brings evicted files back to the disk, because a person wants them there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from gateway import clock, state
from gateway.cache import warming
from gateway.control import outage
from gateway.control.paths import files_below
from gateway.control.progress import Progress, Tell
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.errors import START, NotPossible
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
class Requested(Model):
    """Files that a person asked for and does not wait for."""

    job: str | None
    """The job of another gateway that asks for them. None: they are asked for."""
    files: int | None
    """Those that are not on the disk. None, as the rest: the job finds that out."""
    bytes: int | None
    resident_before_files: int | None
    hydrator_alive: bool | None
    """Whether the process runs that fetches them."""
    failures: list[str]
    """Why paths that were named were not asked for."""


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
    failures: list[str]
    """Why paths that were named were not asked for."""
    error: str | None
    """Why a longer wait for the rest is useless."""


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
        self._failures: list[str] = []
        self._started = clock.monotonic_seconds()
        self._outage: str | None = None
        """Why nothing can be fetched from the bucket, as of the last look."""
        self._has_room = True
        """Whether the disk has room for what no client waits for, as of the last look."""

    def ask(self, browser: Browser, paths: Iterable[str]) -> None:
        """Ask for files, and for all files below directories. Raises NamespaceError."""
        for path in paths:
            try:
                self._ask(browser, path)
            except NotPossible as exc:
                self._failures.append(str(exc))

    def _ask(self, browser: Browser, path: str) -> None:
        files = files_below(browser, self._settings, path)
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

    def wait(self, progress: Tell, rest: Callable[[float], None]) -> Warmed:
        """Wait until all files are there, or a longer wait is useless.

        Args:
            rest: called after each look with the time in seconds until the next one. What it
                raises ends the wait.

        Raises:
            NamespaceError: the database cannot be read now.
        """
        return self._model(self._wait(progress, rest))

    def _wait(self, progress: Tell, rest: Callable[[float], None]) -> str | None:
        """Returns why a longer wait is useless, or None."""
        alive_at = room_at = clock.monotonic_seconds()
        waiting = list(self._sizes)
        while True:
            before = clock.monotonic_seconds()
            waiting = self._look(waiting)
            if all(one.error is not None for one in self._left.values()):
                return self._failed()
            now = clock.monotonic_seconds()
            report = state.read(self._settings, state.CACHE) or {}
            self._has_room = report.get("has_room") is not False
            self._outage = outage.said(report)
            alive_at = now if state.alive(report) else alive_at
            room_at = now if self._has_room else room_at
            left = f"({len(waiting)} files are asked for and not there)"
            if now - alive_at > DEAD_SECONDS:
                return f"the hydrator does not run: start it: {START} {left}"
            if now - room_at > ROOM_SECONDS:
                return (
                    "the disk is short of room, so only what clients wait for is fetched: "
                    f"evict or delete files {left}"
                )
            progress(self.progress)
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

    @property
    def progress(self) -> Progress:
        """How far it is, as of the last look."""
        total_bytes = sum(self._sizes.values())
        done_bytes = total_bytes - sum(one.missing_bytes for one in self._left.values())
        text = f"{len(self._left):,} of {len(self._sizes):,} files are not there yet"
        text += "" if self._has_room else "; the disk is short of room"
        text += "" if self._outage is None else f"; {self._outage}"
        return Progress(done_bytes, total_bytes, text, in_bytes=True)

    def requested(self) -> Requested:
        """Return what was asked for."""
        return Requested(
            job=None,
            files=len(self._sizes),
            bytes=sum(self._sizes.values()),
            resident_before_files=self._resident,
            hydrator_alive=state.alive(state.read(self._settings, state.CACHE)),
            failures=self._failures,
        )

    def _model(self, error: str | None) -> Warmed:
        return Warmed(
            files=len(self._sizes),
            bytes=sum(self._sizes.values()),
            resident_before_files=self._resident,
            left_files=len(self._left),
            damaged=[
                NotFetched(self._paths[one.ino], one.error)
                for one in self._left.values()
                if one.error is not None
            ],
            seconds=round(clock.monotonic_seconds() - self._started, 3),
            failures=self._failures,
            error=error,
        )
