"""Reconciliation: the names follow the bucket, where it has more than a restored database knows.

No other process works on the namespace meanwhile. In the bucket nothing is written or deleted.
Each page is one transaction, which can be repeated: what it has mended is found to be right.

1. Objects are compared with the rows of their keys, page by page as they are listed. What is newer
   is taken, and what no row has becomes a file again.
2. When everything was listed, rows without their object are judged: it may have been found at
   another key. Such a file is sent again from the local disk, or is damaged.

As soon as anything changes, readers of the journal read everything again, and policies delete
nothing before a person has approved it: they would decide by names that have just changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from sqlalchemy import insert

from gateway.common.errors import OtherOwner
from gateway.config.settings import Settings
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Connection, Database
from gateway.db.writer import Effects, Ids, Tx
from gateway.drain.send import intent
from gateway.lifecycle.retention import store as policies
from gateway.namespace.data_files import DataFiles
from gateway.namespace.lookup import way_up
from gateway.objectstore import key_mapper
from gateway.objectstore.ownership import Ownership
from gateway.recovery import reconcile_rows as rows
from gateway.recovery import reconcile_rules as rules
from gateway.recovery.bucket_comparison import (
    BucketComparison,
    Compared,
    FoundPage,
    file_of,
    state_of,
)
from gateway.recovery.reconcile_report import BucketReport, Judged, RunFinder, Tally
from gateway.recovery.reconcile_rows import Namer
from gateway.recovery.reconcile_rules import Case, FileState, Outcome, Take

AUTHOR = "spillway reconcile"
KEYS_NOTED_MAX = 100_000
"""The drain looks at so many of the keys that changed. It reads all of their rows in each pass."""

_MANIFEST_INSERT = Statement(insert(sql.manifest))

_OF_TAKE = {
    Take.ROW: Outcome.RECORDED,
    Take.ALL: Outcome.FOLLOWED,
    Take.BYTES: Outcome.FOLLOWED,
    Take.NOTHING_LOCAL: Outcome.KEPT_LOCAL,
}


Progress = Callable[[str], None]


def _say_nothing(_line: str) -> None:
    pass


def compare(
    settings: Settings,
    database: Database,
    also_ours: Collection[str] = (),
    imports: bool = False,
    progress: Progress = _say_nothing,
) -> BucketReport:
    """Compare the bucket with the names, and change nothing. A gateway may run meanwhile.

    Args:
        settings, database, also_ours: as of ``BucketComparison``.
        imports: whether objects of other programs would become files.
        progress: is told how far it is, after each page.

    Raises:
        StoreError: the bucket cannot be read.
        TryAgain: the database does not answer.
    """
    files = DataFiles(settings.files_dir)
    return _Reconciliation(settings, database, files, also_ours, imports, is_trial=True).run(
        progress
    )


def reconcile(
    settings: Settings,
    database: Database,
    files: DataFiles,
    also_ours: Collection[str] = (),
    imports: bool = False,
    progress: Progress = _say_nothing,
) -> BucketReport:
    """Compare the bucket with the names, and have the names follow it.

    Args:
        settings, database, also_ours: as of ``BucketComparison``.
        files: the data files of the gateway, which were adopted.
        imports: whether objects of other programs become files.
        progress: is told how far it is, after each page.

    Raises:
        StoreError: the bucket cannot be read, or is not this gateway's.
        TryAgain: the database does not answer.
        OSError: a data file cannot be looked at or set aside.
    """
    Ownership(settings, database).require()
    return _Reconciliation(settings, database, files, also_ours, imports, is_trial=False).run(
        progress
    )


def require_ours(settings: Settings, database: Database) -> None:
    """Raise OtherOwner if the bucket is another gateway's. It changes nothing.

    Raises:
        OtherOwner: it is another gateway's.
        StoreError: the bucket cannot be read.
    """
    if (problem := Ownership(settings, database).problem()) is not None:
        raise OtherOwner(problem)


class _Decision(NamedTuple):
    """What becomes of a finding."""

    case: Case
    outcome: Outcome
    state: FileState | None = None
    """The file that it is about."""
    how: Take | None = None


class _Page(NamedTuple):
    """The transaction of a page."""

    tx: Tx
    namer: Namer
    placed: set[int]
    """Files that got the object of a finding of this page."""
    noted: dict[str, int]
    """The keys that the drain looks at, with their inodes."""
    aside: list[tuple[int, int]]
    """The data files that are set aside after the commit."""


class _Reconciliation:
    """One reconciliation.

    Args:
        settings, database, files, also_ours, imports: as of ``reconcile``.
        is_trial: whether nothing is changed.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        files: DataFiles,
        also_ours: Collection[str],
        imports: bool,
        is_trial: bool,
    ) -> None:
        self._bucket = settings.bucket
        self._prefix = settings.bucket.prefix
        self._database = database
        self._files = files
        self._imports = imports
        self._is_trial = is_trial
        self._comparison = BucketComparison(settings, database, also_ours)
        with database.reading() as session:
            self._tally = Tally(RunFinder(session))
        self._progress: Progress = _say_nothing
        self._keys_left = KEYS_NOTED_MAX
        self._displaced: dict[int, str] = {}
        """The keys that files had whose key another one's object has, for people."""

    def run(self, progress: Progress) -> BucketReport:
        """Do it. Args and errors as of ``reconcile``."""
        self._progress = progress
        if self._is_trial:
            self._try()
        else:
            connection = self._database.connect(for_writing=True)
            try:
                for page in self._comparison.pages():
                    self._mend(connection, page)
                for page in self._comparison.lacking():
                    self._mend(connection, page)
            finally:
                connection.close()
        return self._tally.report(self._bucket.name, self._prefix, not self._is_trial)

    def _try(self) -> None:
        for pages in (self._comparison.pages(), self._comparison.lacking()):
            for page in pages:
                self._count(page)
                with self._database.reading() as session:
                    self._tally.add(
                        [
                            Judged(found.case, found.outcome, finding.key, self._parts(finding))
                            for finding in page.findings
                            for found in (self._decide(session, finding, ()),)
                        ]
                    )

    def _count(self, page: FoundPage) -> None:
        self._tally.listed += page.listed
        for case, times in page.counts.items():
            self._tally.count(case, times)
        self._progress(f"{self._tally.listed:,} objects of the bucket compared")

    def _mend(self, connection: Connection, found: FoundPage) -> None:
        """Mend what a page has, in one transaction."""
        self._count(found)
        if not found.findings and not found.healed:
            return
        judged: list[Judged] = []
        with self._database.transaction(connection):
            ids, effects = Ids(), Effects()
            tx = Tx(connection, self._database.dialect, ids, "reconcile", effects)
            page = _Page(tx, Namer(tx, ids, self._prefix), set(), {}, [])
            rows.require_numbers(tx, [finding.origin for finding in found.findings])
            for row in found.healed:
                rows.heal(tx, row.ino)
            for finding in found.findings:
                judged += self._apply(page, finding)
            is_import = any(one.outcome is Outcome.IMPORTED for one in judged)
            if found.healed or page.noted or is_import:
                self._tally.asks_again = True
                _distrust(tx)
            for key, ino in list(page.noted.items())[: self._keys_left]:
                rows.note_key(tx, key, ino)
        self._keys_left = max(0, self._keys_left - len(page.noted))
        for ino, epoch in page.aside:
            if self._files.path(ino, epoch).exists():
                self._files.set_aside(ino, epoch)
        self._tally.add(judged)

    def _apply(self, page: _Page, finding: Compared) -> list[Judged]:
        """Mend a finding. Returns what was done, first to its file."""
        decision = self._decide(page.tx, finding, page.placed)
        parts = self._parts(finding)
        if decision.outcome in (Outcome.CAME_BACK, Outcome.NAMELESS):
            parts = self._bring_back(page, finding)
        elif decision.outcome is Outcome.IMPORTED:
            decision = self._import(page, finding, decision, parts)
        elif decision.how is not None and decision.state is not None:
            self._take(page, finding, decision.state, decision.how)
        elif decision.outcome is Outcome.SENT_AGAIN and decision.state is not None:
            rows.send_again(page.tx, decision.state.ino)
            page.noted[finding.key] = decision.state.ino
        elif decision.outcome is Outcome.LOST and decision.state is not None:
            ino = decision.state.ino
            if decision.state.damage is None:
                page.noted[finding.key] = ino
            rows.lose(page.tx, decision.state, self._displaced.get(ino, finding.key))
        elif decision.case is Case.MANIFEST and decision.outcome is Outcome.RECORDED:
            _record_manifest(page.tx, finding, self._comparison.volumes)
        judged = [Judged(decision.case, decision.outcome, finding.key, parts)]
        for ino, path in page.namer.beside:
            key = self._displaced.get(ino, finding.key)
            judged.append(Judged(decision.case, Outcome.SET_BESIDE, key, path))
        page.namer.beside.clear()
        return judged

    def _bring_back(self, page: _Page, finding: Compared) -> tuple[bytes, ...]:
        """Make an object a file again. Returns its path."""
        self._make_way(page, finding, None)
        ino, path = page.namer.make(finding)
        self._record(page, finding, ino, Take.ALL)
        if path is None:
            page.namer.keep(ino)
        page.namer.settle(ino, finding.key, path)
        return path or ()

    def _is_file(self, finding: Compared) -> bool:
        """Return whether the object of another program can be a file, at its key."""
        assert finding.head is not None
        if not finding.is_path or not finding.head.etag:
            return False
        parts = rules.path_of(self._prefix, finding.key, finding.head)
        # An object at any other key would be moved.
        return parts is not None and key_mapper.key_of(self._prefix, parts) == finding.key

    def _import(
        self, page: _Page, finding: Compared, decision: _Decision, parts: tuple[bytes, ...]
    ) -> _Decision:
        """Make the object of another program a file, if nothing has its path. Nothing of the
        gateway's own gives way to it."""
        if not page.namer.is_free(parts):
            return decision._replace(outcome=Outcome.LEFT)
        ino, _path = page.namer.make(finding)
        self._record(page, finding, ino, Take.ALL)
        return decision

    def _take(self, page: _Page, finding: Compared, state: FileState, how: Take) -> None:
        """Have a file take an object, and its path if that is another one."""
        if state.stored_key != finding.key:
            self._make_way(page, finding, state.ino)
            # An object that was sent while its file was renamed has the key of the former name.
            is_moving = rows.is_moving(page.tx, state.ino) and state.ino not in self._displaced
            path = None if is_moving else page.namer.move(finding, state)
            self._record(page, finding, state.ino, how)
            page.namer.settle(state.ino, finding.key, path)
        else:
            self._record(page, finding, state.ino, how)

    def _record(self, page: _Page, finding: Compared, ino: int, how: Take) -> None:
        state = state_of(page.tx, ino)
        assert state is not None, "the file was just made or read"
        page.aside.extend(rows.record(page.tx, finding, state, how))
        if state.damage is not None and state.damage.startswith(rules.DAMAGE):
            page.tx.run(sql.DAMAGE_DELETE, the_ino=ino)
        page.placed.add(ino)
        if finding.case is not Case.FOREIGN:
            page.noted[finding.key] = ino
        # The drain must delete nothing that is a file again.
        for row in page.tx.all(rows.TOMBSTONES_OF, key=finding.key):
            page.tx.run(sql.TOMBSTONE_DELETE, the_key=finding.key, the_ino=row[0])
        self._comparison.saw(ino)

    def _make_way(self, page: _Page, finding: Compared, ino: int | None) -> None:
        """Take the key of an object from another file's row."""
        row = finding.row
        if row is None or row.ino == ino:
            return
        now = state_of(page.tx, row.ino)
        # A finding of this page may have moved it already.
        if now is not None and now.stored_key == finding.key:
            self._displaced[row.ino] = finding.key
            rows.make_way(page.tx, self._prefix, row.ino)

    def _decide(self, session: Session, finding: Compared, placed: Collection[int]) -> _Decision:
        """Return what becomes of a finding."""
        case = finding.case
        if case is Case.MANIFEST:
            assert finding.head is not None
            ino = rules.manifest_ino(finding.head, self._comparison.volumes) or 0
            is_known = session.one(sql.CONTENT_VERSION, ino=ino) is not None
            return _Decision(case, Outcome.RECORDED if is_known else Outcome.LEFT)
        if case in (Case.SECOND_COPY, Case.PROMOTED, Case.FOREIGN):
            is_taken = case is Case.FOREIGN and self._imports and self._is_file(finding)
            return _Decision(case, Outcome.IMPORTED if is_taken else Outcome.LEFT)
        if case in (Case.UNKNOWN, Case.MOVED):
            return self._decide_unrecorded(session, finding, placed)
        assert finding.row is not None
        state = state_of(session, finding.row.ino)
        assert state is not None, "the row of an object has its inode"
        if case is Case.CHANGED and not self._has_same_content(session, finding, state):
            case = Case.REPLACED
        if case in rules.LOSSES:
            can_send = rules.can_be_sent_again(state, self._stat(state))
            return _Decision(case, Outcome.SENT_AGAIN if can_send else Outcome.LOST, state)
        return self._decide_take(finding, state)

    def _decide_unrecorded(
        self, session: Session, finding: Compared, placed: Collection[int]
    ) -> _Decision:
        origin = finding.origin
        state = file_of(session, origin)
        if state is None or not state.is_file:
            assert finding.head is not None
            path = None
            if finding.is_path:
                path = rules.path_of(self._prefix, finding.key, finding.head)
            outcome = Outcome.NAMELESS if path is None else Outcome.CAME_BACK
            return _Decision(Case.UNKNOWN, outcome)
        if state.ino in placed and rules.version_of(origin) <= (state.stored_version or 0):
            # Two objects of it are on this page.
            return _Decision(Case.SECOND_COPY, Outcome.LEFT)
        return self._decide_take(finding, state)

    def _decide_take(self, finding: Compared, state: FileState) -> _Decision:
        assert finding.head is not None
        how = rules.take(state, finding.head, self._stat(state))
        return _Decision(finding.case, _OF_TAKE[how], state, how)

    def _has_same_content(self, session: Session, finding: Compared, state: FileState) -> bool:
        """Return whether an object with another ETag has the bytes of its row. If nothing shows
        that, an absent file with digests takes it: each read is compared with them."""
        assert finding.row is not None and finding.head is not None
        if rules.has_same_content(finding.row.checksum, finding.head):
            return True
        is_absent = not rules.can_be_sent_again(state, self._stat(state))
        return is_absent and intent.of_object(session, state.ino) is not None

    def _stat(self, state: FileState) -> os.stat_result | None:
        try:
            return self._files.path(state.ino, state.epoch).stat()
        except FileNotFoundError:
            return None

    def _parts(self, finding: Compared) -> tuple[bytes, ...]:
        try:
            return tuple(key_mapper.parts_of(self._prefix, finding.key))
        except ValueError:
            return ()


def _distrust(session: Session) -> None:
    """Have readers of the journal read everything again, and policies ask before they delete."""
    journal.forget_readers(session)
    policies.ask_again(session, AUTHOR)


def _record_manifest(tx: Tx, finding: Compared, volumes: Iterable[str]) -> None:
    """Have the catalogue compare a manifest with its checkpoint, and write it again if that is
    durable."""
    assert finding.head is not None
    ino = rules.manifest_ino(finding.head, frozenset(volumes))
    assert ino is not None
    path = b"/".join([name for _at, _parent, name in way_up(tx, ino)][::-1])
    tx.run(
        _MANIFEST_INSERT,
        key=finding.key,
        ino=ino,
        path=path,
        change=0,
        evidence="",
        durable_ns=0,
        etag=finding.head.etag,
        written_ns=tx.now_ns,
        check_after_ns=None,
    )
