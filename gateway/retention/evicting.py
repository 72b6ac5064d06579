"""Evicts the files of a checkpoint that were not used for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from gateway.cache.candidates import Candidate, Candidates
from gateway.cache.eviction import TOGETHER, Verdict, eviction_of
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.door import door
from gateway.namespace.browse import Browser
from gateway.settings import Settings
from gateway.types import Kind


class UnusedFiles:
    """Evicts files of checkpoints, as ``spillway evict`` does.

    Parameters: settings; database.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database

    def candidates(self, ino: int, before_ns: int) -> list[Candidate]:
        """Return the files of a checkpoint that may leave the disk. Raises TryAgain.

        Parameters: ino, of the directory or file; before_ns, the time since which they were not
        used.
        """
        found: list[Candidate] = []
        with Browser(self._settings) as browser, self._database.reader() as connection:
            candidates = Candidates(Session(connection, self._database.dialect), self._settings)
            inos = _files(browser, ino)
            while page := list(islice(inos, TOGETHER)):
                for one in candidates.given(rows_of([(ino,) for ino in page])).values():
                    if one.used_ns < before_ns and candidates.why_not(one) is None:
                        found.append(one)
        return found

    def run(self, candidates: Sequence[Candidate]) -> Counter[Verdict]:
        """Evict files. Returns how many got which verdict. Raises UserError, StoreError,
        DoorClosed, NamespaceError, OSError."""
        verdicts: Counter[Verdict] = Counter()
        remaining = iter(candidates)
        with (
            eviction_of(self._settings, self._database) as eviction,
            door.opened(self._settings, door.BACKGROUND_SECONDS) as opened,
        ):
            while batch := list(islice(remaining, TOGETHER)):
                verdicts.update(eviction.run(opened.run, batch))
        return verdicts


def _files(browser: Browser, ino: int) -> Iterator[int]:
    """Yield a file, or all files below a directory."""
    waiting = [ino]
    is_file = True
    while waiting:
        at = waiting.pop()
        for child in browser.entries(at):
            is_file = False
            if child.attr.kind == Kind.DIRECTORY:
                waiting.append(child.attr.ino)
            elif child.attr.kind == Kind.REGULAR:
                yield child.attr.ino
    if is_file:
        yield ino
