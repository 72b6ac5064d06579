"""Reconciler of receipts: changes those below ``/.spillway`` to what the catalogue says.

The first pass, and each one after a failure, compares all of both. Other passes read the runs of
which the follower has told. It does not tell of which runs rows are gone: so these passes also read
the runs that have another number of checkpoints than before.

A link is put in its place only while the checkpoint is what its row says, and the server removes it
before the checkpoint changes (gateway.db.latest_links). So the links of the runs that are read are
read too: they may be gone although no row says so.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any

from sqlalchemy import func, literal_column, select

from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.receipts import (
    LATEST_DURABLE,
    Document,
    Path,
    Receipt,
    ReceiptFacts,
    ReceiptLink,
    ReceiptRefused,
    Tree,
    links,
    receipts,
)
from gateway.catalogue.store import catalogue_of
from gateway.common.errors import ControlSocketClosed
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.statements import checkpoint, checkpoint_record
from gateway.namespace import latest_links
from gateway.namespace.data_files import DataFiles
from gateway.rpc.control import ControlSocket, Remote

log = logging.getLogger("checkpoints")

RETRY_SECONDS = 2.0
IDLE_SECONDS = 600.0
"""The time between passes in which nothing changed: the catalogue tells of changes."""
PUT_AT_ONCE = 8
"""The receipts that the server makes at once. It has twelve threads for all that ask it."""
FOR_GOOD = (errno.ENAMETOOLONG, errno.EINVAL, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
"""What another try would not change."""

RUNS_AT_ONCE = 16
"""If more runs than this changed, all are read."""

_IS_COMPLETE = checkpoint.c.state.not_in(
    [literal_column(f"'{state}'") for state in (CheckpointState.WRITING, CheckpointState.BROKEN)]
)
_FACTS = (
    select(
        *(
            checkpoint.c[name] if name in checkpoint.c else checkpoint_record.c[name]
            for name in ReceiptFacts._fields
        )
    )
    .select_from(
        checkpoint.outerjoin(checkpoint_record, checkpoint_record.c.ino == checkpoint.c.ino)
    )
    .where(_IS_COMPLETE)
)
FACTS = Statement(_FACTS)
"""Selects the checkpoints that are complete."""
FACTS_OF = Statement(_FACTS.where(checkpoint.c.run == b("run")))
COUNTS = Statement(
    select(checkpoint.c.run, func.count()).where(_IS_COMPLETE).group_by(checkpoint.c.run)
)


class ReceiptReconciler:
    """A background task (gateway.catalogue.background).

    Args:
        stop: after which a pass ends between two changes.
    """

    name = "receipts"

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._database = Database(settings.database_url)
        self._catalogue = catalogue_of(settings, self._database)
        self._tree = Tree(self._database, DataFiles(settings.files_dir))
        self._facts: dict[bytes, dict[int, ReceiptFacts]] = {}
        """The checkpoints as the last pass read them, by run and inode: a pass costs what the runs
        that changed have, and not what all have."""
        self._there: dict[bytes, dict[Path, Receipt]] | None = None
        """The receipts that are there, by run. None: not known, or not all of them."""
        self._lock = threading.Lock()
        self._changed: frozenset[bytes] = frozenset()
        """The runs of which the follower has told since the last pass."""

    def changed(self, runs: Collection[bytes]) -> None:
        """Hear of runs whose rows or links may have changed."""
        with self._lock:
            self._changed |= frozenset(runs)

    def run_once(self) -> float:
        """Bring the receipts up to date. Raises TryAgain."""
        try:
            with closing(Remote(self._settings)) as control:
                self._pass(control)
        except (FileNotFoundError, ConnectionRefusedError):
            return RETRY_SECONDS  # no server runs, so no client reads
        except (ReceiptRefused, ControlSocketClosed, OSError) as exc:
            log.warning("receipts: %s: all of them are compared again", exc)
            self._there = None
            return RETRY_SECONDS
        return RETRY_SECONDS if self._changed else IDLE_SECONDS

    def _pass(self, control: ControlSocket) -> None:
        with self._lock:
            changed, self._changed = self._changed, frozenset()
        there, self._there = self._there, None
        facts = self._read(frozenset() if there is None else changed)
        if there is None:
            if not self._tree.is_ours():
                return
            there = {}
            before = self._tree.read()
            runs = frozenset(facts)
        else:
            known_runs = facts.keys() | self._facts.keys()
            runs = changed.union(run for run in known_runs if self._differs(facts, run))
            known = [item for run in runs for item in there.pop(run, {}).items()]
            before = {path: receipt for path, receipt in known if isinstance(receipt, Document)}
            for run in runs:
                before |= self._tree.links(links(run))
        wanted = {
            run: self._wanted(run, list(facts[run].values()), before)
            for run in runs
            if run in facts
        }
        after = {
            path: receipt
            for receipts_of_run in wanted.values()
            for path, receipt in receipts_of_run.items()
        }
        if self._change(control, runs, before, after):
            self._facts = facts
            self._there = there | wanted

    def _wanted(
        self, run: bytes, facts: Sequence[ReceiptFacts], before: Mapping[Path, Receipt]
    ) -> dict[Path, Receipt]:
        """Return the receipts that a run is to have. A checkpoint that a new link would name, and
        that is not what its row said, has none: its run is read again. Raises TryAgain.

        Args:
            before: the receipts that are there.
        """
        while True:
            wanted = receipts(run, facts)
            late: set[int] = set()
            for path, receipt in wanted.items():
                if isinstance(receipt, ReceiptLink) and before.get(path) != receipt:
                    seen = self._seen(receipt.ino, is_durable=path[-1] == LATEST_DURABLE)
                    wanted[path] = replace(receipt, seen=seen)
                    if not seen:
                        late.add(receipt.ino)
            if not late:
                return wanted
            self.changed([run])
            facts = [receipt_facts for receipt_facts in facts if receipt_facts.ino not in late]

    def _seen(self, ino: int, *, is_durable: bool) -> int:
        """Return the number of the fingerprint of a checkpoint that is what its row says, or 0.

        Args:
            is_durable: whether it must be durable, and not only complete.
        """
        with self._catalogue.viewing() as view:
            row, now = self._catalogue.row(view, ino), self._catalogue.as_is(view, ino)
            if (
                row is None
                or now is None
                or row.state in (CheckpointState.WRITING, CheckpointState.BROKEN)
            ):
                return 0
            if is_durable and row.state != CheckpointState.DURABLE:
                return 0
            if (row.path, row.evidence) != (b"/".join(now.node.parts), now.evidence):
                return 0
            return latest_links.seen(view.session, ino)

    def _differs(self, facts: Mapping[bytes, Mapping[int, ReceiptFacts]], run: bytes) -> bool:
        """Return whether the checkpoints of a run are others than at the last pass."""
        before, now = self._facts.get(run), facts.get(run)
        return before is not now and before != now

    def _read(self, changed: frozenset[bytes]) -> dict[bytes, dict[int, ReceiptFacts]]:
        """Return the facts of all checkpoints, by run and inode. Empty: all of them.

        Args:
            changed: the runs that are read.
        """
        with self._database.reading() as session:
            runs = self._differing(session, changed) if changed else frozenset()
            if not 0 < len(runs) <= RUNS_AT_ONCE:
                return _by_run(session.all(FACTS))
            kept = {
                run: facts_of_run for run, facts_of_run in self._facts.items() if run not in runs
            }
            read = (session.all(FACTS_OF, run=run) for run in runs)
            return kept | _by_run(chain.from_iterable(read))

    def _differing(self, session: Session, changed: frozenset[bytes]) -> frozenset[bytes]:
        """Return the runs that changed, with those that have another number of checkpoints."""
        counts = {bytes(run): n for run, n in session.all(COUNTS)}
        known = {run: len(facts_of_run) for run, facts_of_run in self._facts.items()}
        other = (run for run in counts.keys() | known.keys() if counts.get(run) != known.get(run))
        return changed.union(other)

    def _change(
        self,
        control: ControlSocket,
        runs: Collection[bytes],
        before: Mapping[Path, Receipt],
        after: Mapping[Path, Receipt],
    ) -> bool:
        """Change what differs: links before documents, and what must go before what comes. Returns
        False if it was told to stop. Raises Refused after all others are done.

        Args:
            runs: runs of which the receipts are.
        """
        refused: list[ReceiptRefused] = []
        for kind in (ReceiptLink, Document):
            for path in sorted(
                path for path, receipt in before.items() if isinstance(receipt, kind)
            ):
                if self._stop.is_set():
                    return False
                if path not in after:
                    refused += self._removed(control, path)
            new = (
                (path, receipt) for path, receipt in after.items() if before.get(path) != receipt
            )
            come = sorted((path, receipt) for path, receipt in new if isinstance(receipt, kind))
            for at in range(0, len(come), PUT_AT_ONCE):
                if self._stop.is_set():
                    return False
                refused += self._tree.put(control, come[at : at + PUT_AT_ONCE])
        failed: ReceiptRefused | None = None
        for exc in refused:
            if exc.errno == errno.EBUSY:
                # A checkpoint changed while its link was made.
                self.changed(runs)
                continue
            if exc.errno not in FOR_GOOD:
                failed = exc
                continue
            log.warning("receipts: %s: a name of the run or the checkpoint cannot be used", exc)
        if failed is not None:
            raise failed
        return True

    def _removed(self, control: ControlSocket, path: Path) -> list[ReceiptRefused]:
        try:
            self._tree.remove(control, path)
        except ReceiptRefused as exc:
            return [exc]
        return []


def _by_run(rows: Iterable[Sequence[Any]]) -> dict[bytes, dict[int, ReceiptFacts]]:
    facts_by_run: dict[bytes, dict[int, ReceiptFacts]] = {}
    for row in rows:
        facts = ReceiptFacts(*row)
        facts = facts._replace(path=bytes(facts.path), run=bytes(facts.run))
        facts_by_run.setdefault(facts.run, {})[facts.ino] = facts
    return facts_by_run
