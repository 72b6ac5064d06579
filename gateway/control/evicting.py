"""Frees the local disk of files that are in the bucket, because a person wants it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from gateway.cache.candidates import Candidate, Candidates
from gateway.cache.eviction import TOGETHER, Eviction, Verdict, eviction_of
from gateway.control.names import Asker
from gateway.control.paths import files_below
from gateway.control.progress import Progress, Tell
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.db.statements import REKEY
from gateway.door.door import Door
from gateway.drain import statements as own
from gateway.drain.paths import file_of, object_of
from gateway.errors import DoorClosed, NotPossible
from gateway.escapes import encoded
from gateway.namespace import identity
from gateway.namespace.browse import Browser, Entry
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import shown
from gateway.types import Residency

SKIPPED_SHOWN = 10

Named = tuple[str, Entry]
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
    settings: Settings, database: Database, browser: Browser, door: Door
) -> Iterator[Evicting]:
    """Open what evicts. Raises UserError, StoreError."""
    identity.require_surroundings(settings)
    with eviction_of(settings, database) as eviction:
        yield Evicting(settings, database, browser, eviction, Asker(door))


class Evicting:
    """Evicts some paths, and counts what was done. Parameters: asker, which asks at the door."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        browser: Browser,
        eviction: Eviction,
        asker: Asker,
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
            except DoorClosed as exc:
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
            found = candidates.given(rows_of([(entry.attr.ino,) for _path, entry in batch]))
            for path, entry in batch:
                one = found.get(entry.attr.ino)
                why = (
                    _why_not_clean(session, entry)
                    if one is None
                    else candidates.why_not(one, by_time=False)
                )
                if why is not None:
                    reasons[path] = why
                elif one is not None:
                    wanted[one.ino] = (path, one)
                else:
                    self._absent += entry.attr.residency == Residency.ABSENT
        verdicts = self._eviction.run(self._asker.run, [one for _path, one in wanted.values()])
        for (path, one), verdict in zip(wanted.values(), verdicts, strict=True):
            if verdict is Verdict.EVICTED:
                self._evicted += 1
                self._freed_bytes += one.used
            elif verdict is not Verdict.GONE:
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


def _why_not_clean(session: Session, entry: Entry) -> str | None:
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
    if stored is not None and session.one(own.DOUBT, key=stored.key) is not None:
        return "a request for its object got no answer: it is looked at again (spillway status)"
    return "damaged (see spillway fsck), or its object has no block digests: write it again"
