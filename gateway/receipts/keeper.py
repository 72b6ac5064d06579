"""Keeps the receipts of checkpoints: brings what is there to what the catalogue says.

The first turn, and each one after a failure, compares all of both. Other turns read the runs of
which the follower has told. It does not tell of which runs rows are gone: so these turns also read
the runs that have another number of checkpoints than before. A receipt that must go is gone before
another one comes: a link never names a checkpoint that is known to be partial for longer than
needed.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

from sqlalchemy import func, select

from gateway.checkpoints.facts import State
from gateway.data.layout import DataFiles
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.statements import checkpoint
from gateway.door.door import Door
from gateway.door.remote import Remote
from gateway.errors import DoorClosed
from gateway.receipts.tree import Refused, Tree
from gateway.receipts.wanted import Document, Fact, Link, Path, Receipt, receipts
from gateway.settings import Settings

log = logging.getLogger("checkpoints")

RETRY_SECONDS = 2.0
REST_SECONDS = 600.0
"""The time between turns in which nothing changed: the catalogue tells of changes."""
PUT_AT_ONCE = 8
"""The receipts that the server makes at once. It has twelve threads for all that ask it."""
FOR_GOOD = (errno.ENAMETOOLONG, errno.EINVAL, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
"""What another try would not change."""

RUNS_AT_ONCE = 16
"""If more runs than this changed, all are read."""

_IS_COMPLETE = checkpoint.c.state != b("state")
_FACTS = select(*(checkpoint.c[name] for name in Fact._fields)).where(_IS_COMPLETE)
FACTS = Statement(_FACTS)
"""Selects the checkpoints that are complete."""
FACTS_OF = Statement(_FACTS.where(checkpoint.c.run == b("run")))
COUNTS = Statement(
    select(checkpoint.c.run, func.count()).where(_IS_COMPLETE).group_by(checkpoint.c.run)
)


class Receipts:
    """A duty (gateway.checkpoints.duties).

    Parameters: settings; stop, after which a turn ends between two changes.
    """

    name = "receipts"

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._database = Database(settings.database_url)
        self._tree = Tree(self._database, DataFiles(settings.files_dir))
        self._facts: dict[int, Fact] = {}
        self._there: dict[bytes, dict[Path, Receipt]] | None = None
        """The receipts that are there, by run. None: not known, or not all of them."""
        self._lock = threading.Lock()
        self._changed: frozenset[bytes] = frozenset()
        """The runs of which the follower has told since the last turn."""

    def changed(self, runs: Collection[bytes]) -> None:
        """Hear of runs whose rows changed. Called by the thread of the follower."""
        with self._lock:
            self._changed |= frozenset(runs)

    def turn(self) -> float:
        """Bring the receipts up to date. Raises TryAgain."""
        try:
            with closing(Remote(self._settings)) as door:
                self._turn(door)
        except (FileNotFoundError, ConnectionRefusedError):
            return RETRY_SECONDS  # no server runs, so no client reads
        except (Refused, DoorClosed, OSError) as exc:
            log.warning("receipts: %s: all of them are compared again", exc)
            self._there = None
            return RETRY_SECONDS
        return REST_SECONDS

    def _turn(self, door: Door) -> None:
        with self._lock:
            changed, self._changed = self._changed, frozenset()
        there, self._there = self._there, None
        facts = self._read(frozenset() if there is None else changed)
        if there is None:
            if not self._tree.is_ours():
                return
            there = {}
            before, runs = self._tree.read(), {one.run for one in facts.values()}
        else:
            both = (facts.items() ^ self._facts.items()) if facts != self._facts else ()
            runs = {fact.run for _ino, fact in both}
            before = {path: one for run in runs for path, one in there.pop(run, {}).items()}
        members: dict[bytes, list[Fact]] = {run: [] for run in runs}
        for fact in facts.values():
            if fact.run in members:
                members[fact.run].append(fact)
        wanted = {run: receipts(run, found) for run, found in members.items() if found}
        after = {path: one for found in wanted.values() for path, one in found.items()}
        if self._change(door, before, after):
            self._facts = facts
            self._there = there | wanted

    def _read(self, changed: frozenset[bytes]) -> dict[int, Fact]:
        """Return the facts of all checkpoints. Parameters: changed, the runs that are read. Empty:
        all of them."""
        state = str(State.WRITING)
        with self._database.reading() as session:
            runs = self._differing(session, changed) if changed else frozenset()
            if not 0 < len(runs) <= RUNS_AT_ONCE:
                return _facts(session.all(FACTS, state=state))
            kept = {ino: one for ino, one in self._facts.items() if one.run not in runs}
            found = (session.all(FACTS_OF, state=state, run=run) for run in runs)
            return kept | _facts(chain.from_iterable(found))

    def _differing(self, session: Session, changed: frozenset[bytes]) -> frozenset[bytes]:
        """Return the runs that changed, with those that have another number of checkpoints."""
        counts = {bytes(run): n for run, n in session.all(COUNTS, state=str(State.WRITING))}
        known = Counter(one.run for one in self._facts.values())
        other = (run for run in counts.keys() | known.keys() if counts.get(run, 0) != known[run])
        return changed.union(other)

    def _change(self, door: Door, before: dict[Path, Receipt], after: dict[Path, Receipt]) -> bool:
        """Change what differs: links before documents, and what must go before what comes. Returns
        False if it was told to stop. Raises Refused after all others are done."""
        refused: list[Refused] = []
        for kind in (Link, Document):
            for path in sorted(path for path, one in before.items() if isinstance(one, kind)):
                if self._stop.is_set():
                    return False
                if path not in after:
                    refused += self._removed(door, path)
            new = ((path, one) for path, one in after.items() if before.get(path) != one)
            come = sorted((path, one) for path, one in new if isinstance(one, kind))
            for at in range(0, len(come), PUT_AT_ONCE):
                if self._stop.is_set():
                    return False
                refused += self._tree.put(door, come[at : at + PUT_AT_ONCE])
        failed: Refused | None = None
        for exc in refused:
            if exc.errno not in FOR_GOOD:
                failed = exc
                continue
            log.warning("receipts: %s: a name of the run or the checkpoint cannot be used", exc)
        if failed is not None:
            raise failed
        return True

    def _removed(self, door: Door, path: Path) -> list[Refused]:
        try:
            self._tree.remove(door, path)
        except Refused as exc:
            return [exc]
        return []


def _facts(rows: Iterable[Sequence[Any]]) -> dict[int, Fact]:
    found = (Fact(*row) for row in rows)
    return {one.ino: one._replace(path=bytes(one.path), run=bytes(one.run)) for one in found}
