"""`spillway evict`: frees the local disk of files that are in the bucket."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from gateway import config
from gateway.cache.candidates import Candidate, Candidates
from gateway.cache.eviction import TOGETHER, Eviction, Verdict, eviction_of
from gateway.cli.change import Asker
from gateway.cli.progress import Line
from gateway.control.paths import browsing, files_below, follow
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.db.statements import REKEY
from gateway.door.door import opened
from gateway.drain.paths import file_of
from gateway.errors import DoorClosed, NotPossible
from gateway.namespace import identity
from gateway.namespace.browse import Browser, Entry
from gateway.settings import Settings
from gateway.types import Residency
from gateway.units import size

SKIPPED_SHOWN = 10

Named = tuple[str, Entry]
"""A file, with its path as it can be shown."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace) -> int:
    """Evict files. Returns exit status 1 if a named path could not be evicted. Raises UserError."""
    settings = config.load(args.config)
    identity.require_surroundings(settings)
    database = Database(settings.database_url)
    try:
        with (
            browsing(settings) as browser,
            opened(settings) as door,
            eviction_of(settings, database) as eviction,
        ):
            evicting = _Evicting(settings, database, eviction, Asker(door), args.json)
            for path in args.paths:
                try:
                    evicting.path(browser, path)
                except NotPossible as exc:
                    evicting.asker.fail(exc)
                except DoorClosed as exc:
                    evicting.asker.fail(NotPossible(f"{exc}: what was done stays done: repeat"))
                    break
    finally:
        database.close()
    evicting.show()
    return evicting.asker.status


class _Evicting:
    """One run of the command.

    Parameters: asker, which asks at the door and keeps the exit status; as_json, whether only JSON
    is printed.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        eviction: Eviction,
        asker: Asker,
        as_json: bool,
    ) -> None:
        self.asker = asker
        self._settings = settings
        self._database = database
        self._eviction = eviction
        self._as_json = as_json
        self._line = Line(quiet=as_json)
        self._evicted = self._freed_bytes = self._absent = 0
        self._reasons: Counter[str] = Counter()
        self._skipped: list[tuple[str, str]] = []

    def path(self, browser: Browser, path: str) -> None:
        """Evict a file, or all files below a directory. Raises NotPossible, DoorClosed, UserError,
        NamespaceError."""
        place = follow(browser, self._settings, path)
        files = files_below(browser, place)
        try:
            while batch := list(islice(files, TOGETHER)):
                reasons = self._batch(batch)
                self._line.show(f"{self._evicted:,} files evicted")
        finally:
            self._line.end()
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
        verdicts = self._eviction.run(self.asker.run, [one for _path, one in wanted.values()])
        for (path, one), verdict in zip(wanted.values(), verdicts, strict=True):
            if verdict is Verdict.EVICTED:
                self._evicted += 1
                self._freed_bytes += one.used
            elif verdict is not Verdict.GONE:
                reasons[path] = str(verdict)
        self._reasons.update(reasons.values())
        self._skipped += list(reasons.items())[: SKIPPED_SHOWN - len(self._skipped)]
        return reasons

    def show(self) -> None:
        """Print what was done."""
        if self._as_json:
            facts = {
                "evicted_files": self._evicted,
                "freed_bytes": self._freed_bytes,
                "absent_before_files": self._absent,
                "skipped_files": dict(self._reasons),
                "skipped_first": [{"path": path, "reason": why} for path, why in self._skipped],
            }
            print(json.dumps(facts, indent=2))
            return
        print(f"{self._evicted:,} files evicted, {size(self._freed_bytes)} freed")
        if self._absent:
            print(f"{self._absent:,} files were evicted before")
        for why, count in self._reasons.most_common():
            print(f"{count:,} files skipped: {why}")
        for path, why in self._skipped:
            print(f"  {path}: {why}")


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
    return "damaged, or its object has no block digests yet"
