"""Service for evictions and warm-ups that people ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from gateway.cache import warming
from gateway.cache.eviction import (
    TOGETHER,
    Candidate,
    Candidates,
    Eviction,
    EvictionVerdict,
    eviction_of,
)
from gateway.common import clock
from gateway.common.errors import START, ControlSocketClosed, NotPossible
from gateway.common.models import Model
from gateway.common.text import encoded, shown
from gateway.common.types import Residency
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.db.statements import REKEY
from gateway.drain import statements as own
from gateway.drain.paths import file_of, object_of
from gateway.namespace import identity
from gateway.namespace.lookup import Browser, NamedInode
from gateway.rpc.control import ControlSocket
from gateway.service import reports
from gateway.service.jobs import Progress, Tell
from gateway.service.names import RpcCaller
from gateway.service.paths import files_below
from gateway.service.reports import HydratorReport

SKIPPED_SHOWN = 10

Named = tuple[str, NamedInode]
"""A file, with its path as models have it."""


@dataclass(frozen=True, slots=True)
class Skipped(Model):
    """A file that stays on the disk."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Evicted(Model):
    """What became of files that a person wants off the disk."""

    evicted_files: int
    freed_bytes: int
    absent_before_files: int
    """Files that were evicted before."""
    skipped_files: dict[str, int]
    """The number of files that stay, by the reason."""
    skipped_first: list[Skipped]
    failures: list[str]
    """Why paths that were named were not evicted."""


@contextmanager
def evicting(
    settings: Settings, database: Database, browser: Browser, control: ControlSocket
) -> Iterator[Evicting]:
    """Open what evicts. Raises UserError, StoreError."""
    identity.require_surroundings(settings)
    with eviction_of(settings, database) as eviction:
        yield Evicting(settings, database, browser, eviction, RpcCaller(control))


class Evicting:
    """Evicts some paths, and counts what was done.

    Args:
        asker: asks over the control socket.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        browser: Browser,
        eviction: Eviction,
        asker: RpcCaller,
    ) -> None:
        self._settings = settings
        self._database = database
        self._browser = browser
        self._eviction = eviction
        self._asker = asker
        self._evicted = self._freed_bytes = self._absent = 0
        self._reasons: Counter[str] = Counter()
        self._skipped: list[tuple[str, str]] = []

    def run(self, paths: Iterable[str], progress: Tell) -> Evicted:
        """Evict files, and all files below directories. Raises UserError, StoreError,
        NamespaceError."""
        failures = []
        for path in paths:
            try:
                self._path(path, progress)
            except NotPossible as exc:
                failures.append(str(exc))
            except ControlSocketClosed as exc:
                failures.append(f"{exc}: what was done stays done: repeat")
                break
        return self._model(failures)

    def _path(self, path: str, progress: Tell) -> None:
        files = files_below(self._browser, self._settings, path)
        while batch := list(islice(files, TOGETHER)):
            reasons = self._batch(batch)
            progress(Progress(self._evicted, None, f"{self._evicted:,} files evicted"))
            if (reason := reasons.get(encoded(path))) is not None:
                raise NotPossible(f"{shown(path)}: {reason}")

    def _batch(self, batch: Sequence[Named]) -> dict[str, str]:
        """Evict some files. Returns why files were skipped, by path."""
        reasons: dict[str, str] = {}
        wanted: dict[int, tuple[str, Candidate]] = {}
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            candidates = Candidates(session, self._settings)
            candidate_by_ino = candidates.given(
                rows_of([(entry.attr.ino,) for _path, entry in batch])
            )
            for path, entry in batch:
                candidate = candidate_by_ino.get(entry.attr.ino)
                why = (
                    _reason_not_clean(session, entry)
                    if candidate is None
                    else candidates.reason_against(candidate, by_time=False)
                )
                if why is not None:
                    reasons[path] = why
                elif candidate is not None:
                    wanted[candidate.ino] = (path, candidate)
                else:
                    self._absent += entry.attr.residency == Residency.ABSENT
        verdicts = self._eviction.run(
            self._asker.run, [wanted_candidate for _path, wanted_candidate in wanted.values()]
        )
        for (path, wanted_candidate), verdict in zip(wanted.values(), verdicts, strict=True):
            if verdict is EvictionVerdict.EVICTED:
                self._evicted += 1
                self._freed_bytes += wanted_candidate.used
            elif verdict is not EvictionVerdict.GONE:
                reasons[path] = str(verdict)
        self._reasons.update(reasons.values())
        self._skipped += list(reasons.items())[: SKIPPED_SHOWN - len(self._skipped)]
        return reasons

    def _model(self, failures: list[str]) -> Evicted:
        return Evicted(
            evicted_files=self._evicted,
            freed_bytes=self._freed_bytes,
            absent_before_files=self._absent,
            skipped_files=dict(self._reasons.most_common()),
            skipped_first=[Skipped(path, why) for path, why in self._skipped],
            failures=failures,
        )


def _reason_not_clean(session: Session, entry: NamedInode) -> str | None:
    """Return why a file is not in the bucket as it is here, or None if its bytes are not here."""
    file = file_of(session, entry.attr.ino)
    if file is None or (file.size == 0 and not file.write_open) or not file.is_resident:
        return None
    if file.write_open:
        return "open for writing"
    if file.is_dirty:
        return "not drained yet"
    if session.one(REKEY, ino=file.ino) is not None:
        return "renamed, and its object is not moved yet"
    stored = object_of(session, file.ino)
    if stored is not None and session.one(own.INDETERMINATE_WRITE, key=stored.key) is not None:
        return "a request for its object got no answer: it is looked at again (spillway status)"
    return "damaged (see spillway fsck), or its object has no block digests: write it again"


WARMED_TOGETHER = 1024
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
    """The files that one person asked for.

    Args:
        database: database of the namespace.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._sizes: dict[int, int] = {}
        """Size in bytes of every file that was asked for, by inode."""
        self._paths: dict[int, str] = {}
        self._left: dict[int, warming.AbsentLeft] = {}
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
        while page := list(islice(files, WARMED_TOGETHER)):
            absent = {}
            for below, entry in page:
                if entry.attr.residency == Residency.ABSENT:
                    absent[entry.attr.ino] = entry.attr.size
                    self._paths[entry.attr.ino] = below
                else:
                    self._resident += 1
            if absent:
                with self._database.writing() as session:
                    warming.request_whole(session, absent)
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
            if all(absent_file.error is not None for absent_file in self._left.values()):
                return self._failed()
            now = clock.monotonic_seconds()
            report = reports.of_hydrator(self._settings) or HydratorReport(alive=False)
            self._has_room = report.has_room
            self._outage = report.bucket.outage
            alive_at = now if report.alive else alive_at
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
        absent_files: list[warming.AbsentLeft] = []
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            for start in range(0, len(inos), WARMED_TOGETHER):
                absent_files += warming.left(session, inos[start : start + WARMED_TOGETHER])
        self._left = {file.ino: file for file in absent_files}
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
        done_bytes = total_bytes - sum(
            absent_file.missing_bytes for absent_file in self._left.values()
        )
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
            hydrator_alive=datadir.alive(datadir.read(self._settings, datadir.CACHE)),
            failures=self._failures,
        )

    def _model(self, error: str | None) -> Warmed:
        return Warmed(
            files=len(self._sizes),
            bytes=sum(self._sizes.values()),
            resident_before_files=self._resident,
            left_files=len(self._left),
            damaged=[
                NotFetched(self._paths[absent_file.ino], absent_file.error)
                for absent_file in self._left.values()
                if absent_file.error is not None
            ],
            seconds=round(clock.monotonic_seconds() - self._started, 3),
            failures=self._failures,
            error=error,
        )
