"""Views of the namespace for checkpoint rules: places in the database, bytes in data files.

A view sees one transaction. Names are read page by page, so a directory of any size takes the
memory of one page for each level.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from gateway.catalogue import statements as own
from gateway.catalogue.facts import Parts, PlaceEntry, Recognised, Unread
from gateway.catalogue.indexes import lone_number
from gateway.catalogue.record import CheckpointRecord, Neighbour
from gateway.catalogue.rules import UNFINISHED, Rules
from gateway.common.types import Extent, InodeKind, Residency
from gateway.db.compiled import Session, numbers_of
from gateway.db.engine import Database
from gateway.db.models import RESERVED_INO, ROOT_INO
from gateway.db.statements import IMPORT_TOPS
from gateway.namespace.data_files import DataFiles
from gateway.namespace.lookup import DirectoryMemo, way_up

KEPT = 256
KEPT_MAX_BYTES = 16_384
"""Larger pieces are not remembered."""


class FileReader:
    """Pieces of files. It remembers small ones: the tracker of a run is asked for by each of its
    checkpoints, and a file that is evicted still has the same bytes."""

    def __init__(self, database: Database, files: DataFiles) -> None:
        self._database = database
        self._files = files
        self._kept: OrderedDict[tuple[int, int, int, int], bytes] = OrderedDict()

    def read(self, name: bytes, entry: PlaceEntry, start: int, length: int) -> bytes:
        """Return ``length`` bytes of a version of a file, from ``start``, or those up to its end.

        Raises Unread if the version is not whole on the local disk, is being written, or is not the
        newest one.
        """
        if entry.is_open:
            raise Unread(name, entry)
        where = (entry.ino, entry.content_version, start, length)
        if (kept := self._kept.get(where)) is not None:
            self._kept.move_to_end(where)
            return kept
        if entry.is_absent:
            raise Unread(name, entry)
        try:
            with self._files.path(entry.ino, entry.epoch).open("rb") as file:
                file.seek(start)
                data = file.read(length)
        except FileNotFoundError:
            data = b""  # nothing was ever written, or the disk lost it
        except OSError as exc:
            # A disk that fails must not end the look at all other checkpoints.
            raise Unread(name, entry) from exc
        if len(data) < min(length, entry.size - start):
            # The disk lost the end of the data file. A checkpoint is not judged by what is left.
            raise Unread(name, entry)
        # What was read may be of a writer who came since, or of the epoch after an eviction.
        if not self._is_unchanged(entry):
            raise Unread(name, entry)
        if len(data) <= KEPT_MAX_BYTES:
            self._kept[where] = data
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return data

    def _is_unchanged(self, entry: PlaceEntry) -> bool:
        with self._database.reader() as connection:
            row = Session(connection, self._database.dialect).one(own.INODE, ino=entry.ino)
        return row is not None and entry_of(row)[3:] == entry[3:]


def entry_of(row: object) -> PlaceEntry:
    """Return the entry of a row that ends with ENTRY_COLUMNS."""
    assert isinstance(row, tuple)
    ino, kind, size, is_open, change, content_version, epoch, residency = row[-8:]
    is_absent = residency == Residency.ABSENT
    return PlaceEntry(ino, kind, size, bool(is_open), change, content_version, epoch, is_absent)


PAGE = 1024
MARKERS_MAX = 4096
SERIES_MAX = 4096
"""The names in which a sibling is looked for that differs in its number only."""
NEIGHBOURS_MAX = 32
DEPTH_MAX = 3
DIRECTORIES_MAX = 4096
"""So deep, and in so many directories, another checkpoint is looked for in one."""


class Node:
    """A place in the database (``facts.Place``).

    Args:
        parts: its path.
        parent: the directory that has its name.
    """

    def __init__(self, view: CatalogueView, parts: Parts, parent: int, entry: PlaceEntry) -> None:
        self._view = view
        self.parts = parts
        self.parent = parent
        self.entry = entry

    def inside(self, *names: bytes) -> PlaceEntry | None:
        entry: PlaceEntry | None = self.entry
        for name in names:
            if entry is None:
                return None
            entry = self._view.entry(entry.ino, name)
        return entry

    def beside(self, name: bytes) -> PlaceEntry | None:
        return self._view.beside(self.parent, name)

    def ending(self, suffix: bytes, most: int) -> Sequence[bytes]:
        return self._view.ending(self.entry.ino, suffix, most)

    def starting(self, prefix: bytes, most: int) -> Sequence[bytes]:
        return self._view.starting(self.entry.ino, prefix, most)

    def is_in_series(self, before: bytes, after: bytes) -> bool:
        if self._view.record(self.entry.ino) is not None:
            # It was a step of its run. Its siblings may be gone since.
            return True
        return self._view.is_series(self.parent, before, after, self.parts[-1])

    def read(self, name: bytes, entry: PlaceEntry, start: int, length: int) -> bytes:
        return self._view.file_reader.read(name, entry, start, length)


class Concerned(NamedTuple):
    """What changes of inodes concern."""

    roots: dict[int, tuple[Node, Recognised]]
    """The checkpoints that they are, or are members of, by inode."""
    passed: set[int]
    """All inodes on their paths."""
    directories: set[int]
    """The directories whose checkpoints may depend on them."""


class CatalogueView:
    """The namespace in one transaction."""

    def __init__(self, session: Session, rules: Rules, file_reader: FileReader) -> None:
        self.session = session
        self.rules = rules
        self.file_reader = file_reader
        self._markers: dict[int, frozenset[bytes]] = {}
        self._trackers: dict[tuple[int, bytes], PlaceEntry | None] = {}
        self._found: dict[int, Recognised | None] = {}
        self._records: dict[int, CheckpointRecord | None] = {}
        self._series: dict[tuple[int, bytes, bytes], list[bytes]] = {}
        self._ways = DirectoryMemo[list[Node]]({ROOT_INO: []})
        self._imports = frozenset(top for (top,) in session.all(IMPORT_TOPS))
        """The directories of imports: others have their files."""

    def entry(self, parent: int, name: bytes) -> PlaceEntry | None:
        """Return what a name in a directory leads to."""
        row = self.session.one(own.ENTRY, parent=parent, name=name)
        return None if row is None else entry_of(row)

    def beside(self, parent: int, name: bytes) -> PlaceEntry | None:
        """Return the same for a marker or tracker. All checkpoints of a run ask for them."""
        if name.endswith(UNFINISHED):
            if parent not in self._markers:
                self._markers[parent] = frozenset(self.ending(parent, UNFINISHED, MARKERS_MAX))
            if name not in self._markers[parent]:
                return None
        if (parent, name) not in self._trackers:
            self._trackers[parent, name] = self.entry(parent, name)
        return self._trackers[parent, name]

    def ending(self, parent: int, suffix: bytes, most: int) -> list[bytes]:
        """Return up to ``most`` names in a directory that end so."""
        before_end = len(suffix) - 1
        rows = self.session.all(
            own.ENDING, parent=parent, name_end=suffix, before_end=before_end, most=most
        )
        return [bytes(name) for (name,) in rows]

    def starting(self, parent: int, prefix: bytes, most: int) -> list[bytes]:
        """Return up to ``most`` names in a directory that begin so."""
        rows = self.session.all(own.STARTING, parent=parent, name_start=prefix, most=most)
        names = [bytes(name) for (name,) in rows]
        return [name for name in names if name.startswith(prefix)]

    def is_series(self, parent: int, before: bytes, after: bytes, name: bytes) -> bool:
        """Return whether a directory has another name that differs from one in its number only."""
        where = parent, before, after
        if where not in self._series:
            names = self.starting(parent, before, SERIES_MAX)
            alike = [sibling for sibling in names if _is_numbered(sibling, before, after)]
            self._series[where] = alike[:2]
        return any(sibling != name for sibling in self._series[where])

    def record(self, ino: int) -> CheckpointRecord | None:
        """Return what a checkpoint was when it became complete, or None."""
        if ino not in self._records:
            row = self.session.one(own.RECORD, ino=ino)
            self._records[ino] = None if row is None else record_of(row)
        return self._records[ino]

    def neighbours(self, run: bytes, ino: int) -> list[Neighbour]:
        """Return the newest checkpoints of a run that were complete, but for one."""
        rows = self.session.all(own.NEIGHBOURS, run=run, ino=ino, most=NEIGHBOURS_MAX)
        return [Neighbour(*row) for row in rows]

    def pages(self, statement: Any, parent: int) -> Iterator[list[Sequence[Any]]]:
        """Yield the rows of a directory's names, a page at a time."""
        after = b""
        while rows := self.session.all(statement, parent=parent, after=after, most=PAGE):
            yield rows
            after = rows[-1][0]

    def recognise(self, node: Node) -> Recognised | None:
        """Return what a directory or file is, whatever it is in."""
        ino = node.entry.ino
        if ino not in self._found:
            self._found[ino] = self._recognised(node)
        return self._found[ino]

    def _recognised(self, node: Node) -> Recognised | None:
        recognition = self.rules.recognise(node)
        if recognition is None:
            # What showed that it is one may be gone: then it is broken.
            record = self.record(node.entry.ino)
            is_known = record is not None and self.rules.knows(record.rule)
            if (
                is_known
                and record is not None
                and (record.extent == Extent.FILE) != (node.entry.kind == InodeKind.DIRECTORY)
            ):
                recognition = Recognised(
                    record.rule, record.run, record.step, Extent(record.extent)
                )
        if (
            recognition is not None
            and recognition.extent is Extent.TREE
            and self._has_another(node, recognition)
        ):
            recognition = recognition._replace(extent=Extent.FILES)
        return recognition

    def _has_another(self, node: Node, recognition: Recognised) -> bool:
        """Return whether a tree contains a checkpoint of its own: then it is no tree with it. What
        frameworks save below a step has no step, or the same one."""
        is_by_name = self.rules.is_by_name(recognition.rule)
        level, looked = [node], 0
        for _depth in range(DEPTH_MAX):
            below: list[Node] = []
            for above in level:
                for rows in self.pages(own.DIRECTORIES, above.entry.ino):
                    for row in rows:
                        parts = (*above.parts, bytes(row[0]))
                        inner = Node(self, parts, above.entry.ino, entry_of(row))
                        itself = self.rules.recognise(inner)
                        step = None if itself is None else itself.step
                        if step is not None and not (is_by_name and step == recognition.step):
                            return True
                        below.append(inner)
                    looked += len(rows)
                    if looked >= DIRECTORIES_MAX:
                        return False
            level = below
        return False

    def concerned(self, inos: Collection[int]) -> Concerned:
        """Return what changes of inodes concern, by all of their names."""
        concerns = Concerned({}, set(inos), set())
        for row in self.session.all(own.NAMES, inos=numbers_of(inos)):
            parent, name, entry = row[0], row[1], entry_of(row)
            if entry.kind == InodeKind.DIRECTORY:
                concerns.directories.add(entry.ino)
            if parent is None or entry.ino == ROOT_INO or entry.ino in self._imports:
                continue
            if bytes(name) in self.rules.trackers:
                concerns.directories.add(parent)
            way = self.way_to(parent)
            if way is None:
                continue
            concerns.passed.update(node.entry.ino for node in way)
            above = () if not way else way[-1].parts
            node = Node(self, (*above, bytes(name)), parent, entry)
            if (owner := self._owner(way, node)) is not None:
                concerns.roots.setdefault(owner[0].entry.ino, owner)
        return concerns

    def root(self, ino: int) -> tuple[Node, Recognised] | None:
        """Return an inode as a checkpoint, or None if it is none."""
        return self.concerned([ino]).roots.get(ino)

    def way_to(self, directory: int) -> list[Node] | None:
        """Return the directories from the root's entry down to a directory, or None if it has no
        path, or is in the gateway's own directory or in an import: what is kept there is no
        checkpoint of a run."""
        return self._ways.of(directory, way_up(self.session, directory), self._way_below)

    def _way_below(self, above: list[Node], ino: int, name: bytes) -> list[Node] | None:
        is_ours = ino == RESERVED_INO or ino in self._imports
        row = None if is_ours else self.session.one(own.INODE, ino=ino)
        if row is None:
            return None
        parts, parent = (above[-1].parts, above[-1].entry.ino) if above else ((), ROOT_INO)
        return [*above, Node(self, (*parts, bytes(name)), parent, entry_of(row))]

    def _owner(self, way: list[Node], node: Node) -> tuple[Node, Recognised] | None:
        """Return the checkpoint that a place is, or is a member of."""
        recognition: Recognised | None = None
        for above in way:
            recognition = self.recognise(above)
            if recognition is not None and recognition.extent is Extent.TREE:
                return above, recognition
        if recognition is not None and node.entry.kind != InodeKind.DIRECTORY:
            return way[-1], recognition
        itself = self.recognise(node)
        return None if itself is None else (node, itself)


def record_of(row: Sequence[Any]) -> CheckpointRecord:
    """Return the record of a row of ``checkpoint_record``."""
    made = CheckpointRecord(*row)
    members = None if made.members is None else bytes(made.members)
    return made._replace(run=bytes(made.run), members=members)


def _is_numbered(name: bytes, before: bytes, after: bytes) -> bool:
    lone = lone_number(name)
    return lone is not None and (lone[0], lone[2]) == (before, after)
