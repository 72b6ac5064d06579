"""Rows of ``checkpoint``: what the namespace says of each, and what its record says.

``look`` makes the row of an inode in one read transaction, and ``write`` writes many rows in one
short write transaction. Until a checkpoint is complete, rules judge it. Then its members are
recorded, and it is compared with the record from then on (gateway.catalogue.record). A row is made
from nothing that an earlier row said, with one exception: if a rule cannot read a file now, because
it is evicted or open, the checkpoint keeps its state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from gateway.cache.warming import REQUEST_WHOLE
from gateway.catalogue import statements as own
from gateway.catalogue.display_state import CheckpointRow, Look
from gateway.catalogue.facts import CheckpointState, Parts, PlaceEntry, Recognised, Unread
from gateway.catalogue.frameworks import BUILT_IN
from gateway.catalogue.indexes import lone_number
from gateway.catalogue.judge import CheckpointJudge
from gateway.catalogue.member_scan import MemberScan
from gateway.catalogue.record import CheckpointRecord, Neighbour, names_of, unpacked
from gateway.catalogue.rules import Configured, Rules
from gateway.catalogue.tree import NEIGHBOURS_MAX, CatalogueView, FileReader, Node, entry_of
from gateway.common import clock, failpoints
from gateway.common.failpoints import CATALOGUE_COMMIT
from gateway.common.patterns import IncompleteNames
from gateway.common.types import Extent, InodeKind
from gateway.config.settings import Settings
from gateway.db.compiled import Session, numbers_of
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.namespace.data_files import DataFiles

PAGE = 512


class AsIs(NamedTuple):
    """A checkpoint as it is in the namespace now, whatever its row says."""

    node: Node
    found: Recognised
    evidence: str


class OutsideName(NamedTuple):
    """A name outside of trees that are checkpoints."""

    parts: Parts
    entry: PlaceEntry
    found: Recognised | None
    """The checkpoint that begins with it."""
    is_member: bool
    """Whether it is a file of the checkpoint that its directory's own files are."""


class Catalogue:
    """The catalogue of one namespace. Not safe to use from several threads."""

    def __init__(self, settings: Settings, database: Database, rules: Rules) -> None:
        self._prefix = settings.bucket.prefix
        self._database = database
        self._rules = rules
        self._file_reader = FileReader(database, DataFiles(settings.files_dir))
        self._judge = CheckpointJudge(rules, settings.bucket.prefix)

    @contextmanager
    def viewing(self) -> Iterator[CatalogueView]:
        """Open a read transaction. Raises TryAgain."""
        with self._database.reading() as session:
            yield CatalogueView(session, self._rules, self._file_reader)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a write transaction. It is durable on return. Raises TryAgain."""
        with self._database.reader() as connection:
            with self._database.transaction(connection):
                yield Session(connection, self._database.dialect)
                failpoints.hit_counted(CATALOGUE_COMMIT.format(when="before"))
            failpoints.hit_counted(CATALOGUE_COMMIT.format(when="after"))

    def look(self, ino: int) -> Look:
        """Look at an inode as it is now. Raises TryAgain."""
        with self.viewing() as view:
            return self.look_in(view, ino)

    def look_in(self, view: CatalogueView, ino: int) -> Look:
        """Look at an inode as a transaction sees it. Raises TryAgain."""
        before = self.row(view, ino)
        known, root = view.record(ino), view.root(ino)
        if root is None:
            self._judge.forget(ino)
            # What is in the trash may be taken back.
            return Look(ino, before, None, None, known, known)
        return self._judge.look(view, *root, before, known)

    def row(self, view: CatalogueView, ino: int) -> CheckpointRow | None:
        """Return the row of a checkpoint."""
        row = view.session.one(own.ROW, ino=ino)
        return None if row is None else _row(row)

    def as_is(self, view: CatalogueView, ino: int) -> AsIs | None:
        """Return a checkpoint as it is, or None if it is none. No rule reads a file for it."""
        root = view.root(ino)
        return (
            None if root is None else AsIs(*root, MemberScan(view, *root, self._prefix).evidence())
        )

    def write(self, session: Session, looks: Sequence[Look]) -> None:
        """Write rows, inside a write transaction."""
        for look in looks:
            if not look.is_news:
                continue
            if look.before != look.now:
                session.run(own.ROW_DELETE, the_ino=look.ino)
                if look.now is not None:
                    session.run(own.ROW_INSERT, the_ino=look.ino, **look.now._asdict())
            if look.known != look.record:
                session.run(own.RECORD_DELETE, the_ino=look.ino)
                if look.record is not None:
                    session.run(own.RECORD_INSERT, the_ino=look.ino, **look.record._asdict())
                if look.completes is not None and look.record is not None:
                    _supersede(session, look.record)
        wanted = [look.wanted for look in looks if look.wanted is not None]
        if wanted:
            session.run(REQUEST_WHOLE, inos=numbers_of(wanted), now_ns=clock.now_ns())

    def number(self, session: Session) -> int:
        """Give the records that have none a place in the order of completions, inside a write
        transaction. Called when no earlier completion can be found any more. Returns how many."""
        ((last,),) = session.all(own.LAST_COMPLETION)
        inos = [ino for (ino,) in session.all(own.UNNUMBERED)]
        for number, ino in enumerate(inos, (last or 0) + 1):
            session.run(own.NUMBER, the_ino=ino, the_number=number)
        return len(inos)

    def concerned(self, inos: Collection[int]) -> tuple[set[int], set[int]]:
        """Return the checkpoints that inodes are or are members of, with those that were on their
        paths; and the directories whose checkpoints may depend on them. Raises TryAgain."""
        with self.viewing() as view:
            concerns = view.concerned(inos)
            known = view.session.all(own.KNOWN, inos=numbers_of(concerns.passed))
        return {*concerns.roots, *(ino for (ino,) in known)}, concerns.directories

    def writing_of(self, runs: Collection[bytes]) -> set[int]:
        """Return the checkpoints of runs that are not complete, and may be alike to one that is by
        now. Raises TryAgain."""
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            rows = [session.all(own.WRITING_OF, run=run, most=PAGE) for run in runs]
        return {ino for row in rows for (ino,) in row}

    def beside(self, directory: int) -> set[int]:
        """Return the checkpoints in a directory that may have another state because of what is
        beside them. Raises TryAgain."""
        neighbours: set[int] = set()
        is_asked = False
        after = 0
        while True:
            with self.viewing() as view:
                rows = view.session.all(own.BESIDE, parent=directory, after_ino=after, most=PAGE)
                for row in rows:
                    try:
                        turns = self._turns(view, directory, row)
                    except Unread as exc:
                        # A file that is open is named by the journal when it is sealed. An evicted
                        # one is asked for by the look at one checkpoint, and named when it arrives.
                        turns = exc.entry.is_absent and not is_asked
                        is_asked = is_asked or turns
                    if turns:
                        neighbours.add(entry_of(row).ino)
            if len(rows) < PAGE:
                return neighbours
            after = entry_of(rows[-1]).ino

    def _turns(self, view: CatalogueView, directory: int, row: Sequence[Any]) -> bool:
        path, step, state = row[:3]
        if state == CheckpointState.WRITING:
            return True
        node = Node(view, tuple(bytes(path).split(b"/")), directory, entry_of(row))
        if step is None and lone_number(node.parts[-1]) is not None:
            return True  # it may have a sibling now, and be a step
        return self._rules.unfinished(node) is not None

    def below(self, directory: int) -> Iterator[int]:
        """Yield the inodes at and below a directory that are or were checkpoints. Raises
        TryAgain."""
        with self.viewing() as view:
            row = view.session.one(own.INODE, ino=directory)
            if row is None or entry_of(row).kind != InodeKind.DIRECTORY:
                return
            known = [ino for (ino,) in view.session.all(own.BELOW, top=directory)]
            way = () if directory == ROOT_INO else view.way_to(directory)
            if way is None:
                yield from known
                return
            recognition = None if not way else view.recognise(way[-1])
            is_in_tree = bool(view.concerned([directory]).roots.keys() - {directory})
        yield from known
        if is_in_tree or (recognition is not None and recognition.extent is Extent.TREE):
            return
        yield from self._inside(() if not way else way[-1].parts, directory, recognition)

    def outside(
        self, parts: Parts = (), directory: int = ROOT_INO, found: Recognised | None = None
    ) -> Iterator[list[OutsideName]]:
        """Yield what is at and below a directory, but in no tree that is a checkpoint as a whole. A
        page is of one directory, and read in a transaction of its own. Raises TryAgain.

        Args:
            parts: parts and inode of the directory.
            found: the checkpoint of its own files.
        """
        after = b""
        while True:
            page, below = [], []
            with self.viewing() as view:
                rows = view.session.all(own.ENTRIES, parent=directory, after=after, most=PAGE)
                for row in rows:
                    node = Node(view, (*parts, bytes(row[0])), directory, entry_of(row))
                    is_directory = node.entry.kind == InodeKind.DIRECTORY
                    is_member = found is not None and not is_directory
                    inner = None if is_member else view.recognise(node)
                    if is_directory and (inner is None or inner.extent is not Extent.TREE):
                        below.append((node.parts, node.entry.ino, inner))
                    page.append(OutsideName(node.parts, node.entry, inner, is_member))
            yield page
            for nested in below:
                yield from self.outside(*nested)
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def _inside(self, *where: Any) -> Iterator[int]:
        """Yield the checkpoints in a directory. Args: as of ``outside``."""
        for page in self.outside(*where):
            yield from [name.entry.ino for name in page if name.found is not None]

    def everything(self) -> Iterator[int]:
        """Yield all checkpoints, and then the inodes that have a row and are none. Raises
        TryAgain."""
        yield from self._inside()
        for row in self.rows():
            with self.viewing() as view:
                is_one = view.root(row.ino) is not None
            if not is_one:
                yield row.ino

    def rows(self) -> Iterator[CheckpointRow]:
        """Yield all rows, a page at a time. Raises TryAgain."""
        after = 0
        while True:
            with self._database.reader() as connection:
                session = Session(connection, self._database.dialect)
                rows = session.all(own.ROWS, after=after, most=PAGE)
            yield from map(_row, rows)
            if len(rows) < PAGE:
                return
            after = rows[-1][0]


def _supersede(session: Session, record: CheckpointRecord) -> None:
    """Have no checkpoint be alike to one that lacks files of a later one: it may be the half of a
    save. Inside a write transaction."""
    if record.members is None or not record.shape:
        return
    names = names_of(unpacked(record.members))
    given = {"run": record.run, "ino": record.ino, "most": NEIGHBOURS_MAX}
    for row in session.all(own.NEIGHBOURS, **given):
        neighbour = Neighbour(*row)
        # Most have the same names. To read those takes longer than to save a small checkpoint.
        if neighbour.shape and neighbour.shape != record.shape and neighbour.names() < names:
            session.run(own.NO_PATTERN, the_ino=neighbour.ino)


def catalogue_of(settings: Settings, database: Database) -> Catalogue:
    """Return the catalogue of a gateway, with the rules of its configuration and of frameworks."""
    return Catalogue(settings, database, rules_of(settings))


def rules_of(settings: Settings) -> Rules:
    """Return the rules of a gateway's configuration and of frameworks."""
    configured = [Configured(table) for table in settings.checkpoints.rule]
    holds, quiet_seconds = (
        IncompleteNames(settings.drain.incomplete_patterns),
        settings.checkpoints.quiet_seconds,
    )
    return Rules([*configured, *BUILT_IN], holds, quiet_seconds)


def _row(row: Sequence[Any]) -> CheckpointRow:
    made = CheckpointRow(*row)
    return made._replace(path=bytes(made.path), run=bytes(made.run))
