"""Frees the local disk of files that are in the bucket, because a person wants it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from gateway.cache.candidates import Candidate, Candidates
from gateway.cache.eviction import TOGETHER, Eviction, Verdict, eviction_of
from gateway.control.names import Asker
from gateway.control.paths import browsing, files_below, follow
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.db.statements import REKEY
from gateway.door.door import opened
from gateway.drain import statements as own
from gateway.drain.paths import file_of, object_of
from gateway.errors import NotPossible
from gateway.namespace import identity
from gateway.namespace.browse import Browser, Entry
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.types import Residency

SKIPPED_SHOWN = 10

Named = tuple[str, Entry]
"""A file, with its path as it can be shown."""


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


@contextmanager
def evicting(settings: Settings) -> Iterator[Evicting]:
    """Open what evicts. Raises UserError, StoreError."""
    identity.require_surroundings(settings)
    database = Database(settings.database_url)
    try:
        with (
            browsing(settings) as browser,
            opened(settings) as door,
            eviction_of(settings, database) as eviction,
        ):
            yield Evicting(settings, database, browser, eviction, Asker(door))
    finally:
        database.close()


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

    def path(self, path: str, on_batch: Callable[[int], None]) -> None:
        """Evict a file, or all files below a directory.

        Parameters: on_batch, called now and then with the number of files that are evicted; what
        it raises ends the eviction. Raises NotPossible, DoorClosed, UserError, StoreError,
        NamespaceError.
        """
        place = follow(self._browser, self._settings, path)
        files = files_below(self._browser, place)
        while batch := list(islice(files, TOGETHER)):
            reasons = self._batch(batch)
            on_batch(self._evicted)
        if not place.is_directory:
            for reason in reasons.values():
                raise NotPossible(f"{place.path}: {reason}")

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

    def model(self) -> Evicted:
        """Return what was done."""
        return Evicted(
            evicted_files=self._evicted,
            freed_bytes=self._freed_bytes,
            absent_before_files=self._absent,
            skipped_files=dict(self._reasons.most_common()),
            skipped_first=[Skipped(path, why) for path, why in self._skipped],
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
